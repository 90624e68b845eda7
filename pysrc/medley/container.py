"""A container is where a command runs out of an image: what it is given of this host, and why.

Docker's flags are podman's too, but for the GPU, the limits and SELinux.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from medley.command import Command
from medley.reasoned import Flag, Reasoned
from medley.variables import Variable

Runtime = Literal["docker", "podman"]

CACHES: Mapping[str, str] = MappingProxyType(
    {
        "VLLM_CACHE_ROOT": "vllm",
        "SGLANG_CACHE_DIR": "sglang",
        "FLASHINFER_WORKSPACE_BASE": "flashinfer",
        "TRITON_CACHE_DIR": "triton",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "CUDA_CACHE_PATH": "cuda",
        "TVM_FFI_CACHE_DIR": "tvm-ffi",
        "TILELANG_CACHE_DIR": "tilelang",
    }
)
"""Where engines and their libraries keep what they compile, and the folder of each below that of images.

Libraries name what they keep there by their version and the GPU's architecture, or by a hash of both."""

# What a shell says to an engine and its libraries reaches one that runs on the host by itself.
_SPEAKS = (
    *("VLLM_", "SGLANG_", "HF_", "NCCL_", "UCX_", "GLOO_", "TORCH", "PYTORCH_", "FLASHINFER_", "TIKTOKEN_"),
    *("TRITON_", "MAX_JOBS", "MALLOC_"),
    *("RAY_", "CUDA_", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
# Of a toolchain on this host, and no folder in an image.
_OF_THE_HOST = {
    *("CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST"),
    *("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_LIBCUDA_PATH"),
}
# Its entrypoint makes CUDA's forward compatibility ready, and then runs what follows.
_KEPT_ENTRYPOINT = "/opt/nvidia/"


@dataclass(frozen=True)
class Image:
    name: str
    """As it was named."""
    id: str = ""
    """64 hex digits; empty where it is not here yet."""
    digests: tuple[str, ...] = ()
    """By which registries know it: one for all the architectures that a name stands for."""
    entrypoint: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Of the variables that it sets."""

    @property
    def short(self) -> str:
        return self.id[:12] or "not here yet"


@dataclass(frozen=True)
class Mount:
    source: Path
    target: Path
    why: str
    writable: bool = False

    def flag(self) -> Flag:
        return Flag(("--volume",), f"{self.source}:{self.target}{'' if self.writable else ':ro'}", self.why)


def same(path: Path, why: str, *, writable: bool = False) -> Mount:
    """At the same path inside."""
    return Mount(path, path, why, writable)


@dataclass(frozen=True)
class Box:
    """All that the containers of one image on this host have in common."""

    runtime: Runtime
    image: Image
    flags: tuple[Flag, ...] = ()
    """Of this host: its limits, its GPUs, its RDMA devices."""
    mounts: tuple[Mount, ...] = ()
    variables: tuple[Variable, ...] = ()
    beside: str | None = None
    """A container whose processes it sees, and they it."""

    def contained(
        self, inner: Reasoned, name: str, environ: Mapping[str, str], *, detached: bool = False
    ) -> "Contained":
        """The same command out of the image, in a container of this name; `environ` is our own environment.

        Detached it goes on when its client ends, and its output stays until it is removed.
        """
        variables = (*inner.variables, *self.variables)
        given = (*(each.name for each in variables), *spoken(environ, {each.name for each in variables}))
        passed = (word for each in given for word in ("--env", each))
        here = (*self.mounts, *of_variables(variables), *of_files(inner.command.argv))
        return Contained(
            (self.runtime, "run", *passed),
            (
                *_of_container(name, self.beside, detached=detached),
                *self._of_host(),
                *(each.flag() for each in {each.target: each for each in here}.values()),
                *self._program(inner),
                *inner.flags,
            ),
            variables,
            inner.extra,
            undo=removal(self.runtime, name),
            inherits=self.image.names,
        )

    def asked(self, command: Command, name: str, *reads: Path) -> Command:
        """A short question to what the image holds; `reads` are files and folders that it needs."""
        variables = tuple(Variable(each, value, "") for each, value in command.env.items())
        box = replace(self, mounts=(*self.mounts, *(same(path, "what is asked") for path in reads)))
        return box.contained(Reasoned(command.argv, (), variables), name, {}).command

    def _of_host(self) -> Iterator[Flag]:
        if self.runtime == "podman":
            why = "else SELinux, where there is one, hides what is mounted"
            yield Flag(("--security-opt",), "label=disable", why)
        yield from self.flags

    def _program(self, inner: Reasoned) -> Iterator[Flag]:
        """The image and the program, where flags end: what stands there is no flag, but has its reason."""
        program, *rest = inner.words
        image = Flag((self.image.id or self.image.name,), None, f"{self.image.name} ({self.image.short})")
        if self.image.entrypoint[:1] and self.image.entrypoint[0].startswith(_KEPT_ENTRYPOINT):
            yield image
            yield Flag((program,), None, "after the image's own entrypoint, which prepares CUDA")
        else:
            yield Flag(("--entrypoint",), program, "whatever the image would run by itself")
            yield image
        yield from (Flag((word,), None, "as without an image") for word in rest)


@dataclass(frozen=True)
class Contained(Reasoned):
    undo: tuple[str, ...] = ()
    inherits: tuple[str, ...] = ()

    @property
    def command(self) -> Command:
        # Nothing of ours is unset for the client, which has none of the engine's Python.
        return replace(super().command, unset=(), undo=self.undo, inherits=self.inherits)


def name(role: str, state: Path) -> str:
    """One for each role and each user: another medley on this host, with a state of its own, has another."""
    return f"medley-{role}-{hashlib.sha256(str(state).encode()).hexdigest()[:6]}"


def removal(runtime: Runtime, name: str) -> tuple[str, ...]:
    """Ends a container at once, and is content where there is none."""
    return (runtime, "rm", "--force", *(("--ignore", "--time", "0") if runtime == "podman" else ()), name)


def of_variables(variables: Iterable[Variable]) -> Iterator[Mount]:
    """The files and folders that these variables name."""
    for each in variables:
        if each.name in _PLACES:
            why, writable = _PLACES[each.name]
            yield same(Path(each.value), why, writable=writable)


def of_files(words: Iterable[str]) -> Iterator[Mount]:
    """The files that flags of an engine name, `--flag FILE` or `--flag=FILE`."""
    flag = ""
    for word in words:
        name, _, value = word.partition("=") if word.startswith("--") else (flag, "", word)
        if name in _FILES and value.startswith("/"):
            yield same(Path(value), f"{name} names it")
        flag = word


_PLACES = {
    "RAY_AUTH_TOKEN_PATH": ("the cluster's token, in a file alone", False),
    "VLLM_CONFIG_ROOT": ("its list of what the other hosts are not told", True),
    "HF_TOKEN_PATH": ("whom the model hub takes you for", False),
    "HF_HUB_CACHE": ("models that have been fetched, and those to come", True),
    "TIKTOKEN_ENCODINGS_BASE": ("encodings, which the engine would fetch when it starts", False),
    **dict.fromkeys(CACHES, ("what it compiled, for the next time", True)),
}
# Flags whose value is a file of this host.
_FILES = (
    *("--chat-template", "--reasoning-parser-plugin", "--tool-parser-plugin", "--completion-template"),
    *("--config", "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--speculative-draft-model-path"),
)


def spoken(environ: Mapping[str, str], ours: Iterable[str]) -> Iterator[str]:
    """Names in the user's shell that an engine listens to; their values are on no command line."""
    known = {*ours, *_OF_THE_HOST}
    return (each for each in sorted(environ) if each.startswith(_SPEAKS) and each not in known)


def _of_container(name: str, beside: str | None, *, detached: bool) -> Iterator[Flag]:
    if detached:
        yield Flag(("--detach",), None, "it goes on until ray-stop")
    else:
        yield Flag(("--rm",), None, "nothing of it stays behind")
    yield Flag(("--name",), name, "what it is ended by")
    if beside:
        why = "Ray's node takes no driver whose process it does not see"
        yield Flag(("--pid",), f"container:{beside}", why)
    else:
        yield Flag(("--init",), None, "a first process that passes signals on, and buries what died")
    yield Flag(("--pull",), "never", "what was looked at is what runs")
    yield Flag(("--network",), "host", "NCCL, Gloo and Ray need the host's own addresses")
    yield Flag(("--ipc",), "host", "ranks, and Ray's processes, share memory through /dev/shm")
    yield Flag(("--uts",), "host", "Ray shows a host by its name")
