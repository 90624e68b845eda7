"""Build `docker run` and `podman run` commands: limits, GPUs, RDMA, mounts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from medley import storage
from medley.command import AnnotatedCommand, Flag, Variable
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host_schema import HostTable

Runtime = Literal["docker", "podman"]

CACHES: Mapping[str, str] = {
    "VLLM_CACHE_ROOT": "vllm",
    "SGLANG_CACHE_DIR": "sglang",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "cuda",
    "TVM_FFI_CACHE_DIR": "tvm-ffi",
    "TILELANG_CACHE_DIR": "tilelang",
}
"""Folder of each library's compiled files, below that of images; file names there hold version and GPU."""

# Variables of a user's shell that an engine and its libraries read.
_ENGINE_PREFIXES = (
    *("VLLM_", "SGLANG_", "HF_", "NCCL_", "UCX_", "GLOO_", "TORCH", "PYTORCH_", "FLASHINFER_", "TIKTOKEN_"),
    *("TRITON_", "MAX_JOBS", "MALLOC_", "TRANSFORMERS_OFFLINE"),
    *("RAY_", "CUDA_", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
# Of a toolchain on this host, and no folder in an image.
_HOST_VARIABLES = {
    *("CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST"),
    *("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_LIBCUDA_PATH"),
}
# Such an entrypoint makes CUDA's forward compatibility ready, and then runs what follows.
_KEPT_ENTRYPOINT = "/opt/nvidia/"
# Variables that name files and folders of this host: why they are mounted, and whether they are writable.
_MOUNTED = {
    "RAY_AUTH_TOKEN_PATH": ("the file of the cluster's token", False),
    "VLLM_CONFIG_ROOT": ("its list of variables that other hosts do not receive", True),
    "HF_TOKEN_PATH": ("your account on the model hub", False),
    "HF_HUB_CACHE": ("the cache of downloaded models", True),
    "TIKTOKEN_ENCODINGS_BASE": ("encodings, which the engine would fetch when it starts", False),
    **dict.fromkeys(CACHES, ("what it compiled, for the next time", True)),
}
# Flags whose value is a file of this host.
_FILE_FLAGS = (
    *("--chat-template", "--reasoning-parser-plugin", "--tool-parser-plugin", "--completion-template"),
    *("--config", "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--speculative-draft-model-path"),
)
# Podman 4 lowers its own limit to this, and without CAP_SYS_RESOURCE can give no more.
_PROCESSES = 32_768
_MEMLOCK_FIX = (
    "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/memlock.conf, then log in again; "
    "or: --container docker"
)


@dataclass(frozen=True)
class Image:
    name: str
    id: str = ""
    """64 hex digits; empty where it is not here yet."""
    digests: tuple[str, ...] = ()
    """By registry: one for all the architectures that a name stands for."""
    entrypoint: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        return self.id[:12] or "not here yet"


@dataclass(frozen=True)
class Mount:
    source: Path
    why: str
    writable: bool = False
    target: Path | None = None
    """Its path inside, where that is another."""

    @property
    def flag(self) -> Flag:
        target = self.target or self.source
        return Flag(("--volume",), f"{self.source}:{target}{'' if self.writable else ':ro'}", self.why)


@dataclass(frozen=True)
class ContainerSpec:
    """What the containers of one image on this host have in common."""

    runtime: Runtime
    image: Image
    flags: tuple[Flag, ...] = ()
    """Of this host: its limits, its GPUs, its RDMA devices."""
    mounts: tuple[Mount, ...] = ()
    variables: tuple[Variable, ...] = ()
    beside: str | None = None
    """A container whose processes it sees, and they it."""

    def contained(
        self, inner: AnnotatedCommand, name: str, environ: Mapping[str, str], *, detached: bool = False
    ) -> AnnotatedCommand:
        """Wrap a command into a container of this name; a detached one outlives its client."""
        variables = (*inner.variables, *self.variables)
        ours = [each.name for each in variables]
        passed = (word for each in (*ours, *spoken(environ, ours)) for word in ("--env", each))
        named = (Mount(Path(each.value), *_MOUNTED[each.name]) for each in variables if each.name in _MOUNTED)
        mounts = (*self.mounts, *named, *_file_mounts(inner.command.argv))
        return AnnotatedCommand(
            (self.runtime, "run", *passed),
            (
                *self._container_flags(name, detached=detached),
                *self.flags,
                *{each.target or each.source: each.flag for each in mounts}.values(),
                *self._program(inner),
                *inner.flags,
            ),
            variables,
            inner.extra,
            unset=(),  # the client has none of the engine's Python
            undo=removal(self.runtime, name),
            inherits=self.image.names,
        )

    def _container_flags(self, name: str, *, detached: bool) -> Iterator[Flag]:
        if detached:
            yield Flag(("--detach",), None, "it goes on until ray-stop")
        else:
            yield Flag(("--rm",), None, "nothing of it stays behind")
        yield Flag(("--name",), name, "what it is ended by")
        if self.beside:
            why = "Ray's node takes no driver whose process it does not see"
            yield Flag(("--pid",), f"container:{self.beside}", why)
        else:
            yield Flag(("--init",), None, "a first process that forwards signals and reaps children")
        yield Flag(("--pull",), "never", "runs the image that was checked")
        yield Flag(("--network",), "host", "NCCL, Gloo and Ray need the host's own addresses")
        yield Flag(("--ipc",), "host", "ranks, and Ray's processes, share memory through /dev/shm")
        yield Flag(("--uts",), "host", "Ray shows a host by its name")
        if self.runtime == "podman":
            why = "else SELinux, where there is one, hides what is mounted"
            yield Flag(("--security-opt",), "label=disable", why)

    def _program(self, inner: AnnotatedCommand) -> Iterator[Flag]:
        """The image and the program, where flags end; they are no flags, but have reasons too."""
        program, *rest = inner.words
        image = Flag((self.image.id or self.image.name,), None, f"{self.image.name} ({self.image.short})")
        if self.image.entrypoint[:1] and self.image.entrypoint[0].startswith(_KEPT_ENTRYPOINT):
            yield image
            yield Flag((program,), None, "after the image's own entrypoint, which prepares CUDA")
        else:
            yield Flag(("--entrypoint",), program, "whatever the image would run by itself")
            yield image
        yield from (Flag((word,), None, "as without an image") for word in rest)


def name(role: str) -> str:
    """Name the container by role and by medley's state folder, so that users do not clash."""
    return f"medley-{role}-{storage.hash_bytes(str(storage.state()).encode())[:6]}"


def removal(runtime: Runtime, name: str) -> tuple[str, ...]:
    """Return the command that ends a container at once, if it exists."""
    return (runtime, "rm", "--force", *(("--ignore", "--time", "0") if runtime == "podman" else ()), name)


def spoken(environ: Mapping[str, str], ours: Iterable[str]) -> Iterator[str]:
    """Variables of the user's shell that an engine reads; their values are on no command line."""
    known = {*ours, *_HOST_VARIABLES}
    return (each for each in sorted(environ) if each.startswith(_ENGINE_PREFIXES) and each not in known)


def _file_mounts(words: Iterable[str]) -> Iterator[Mount]:
    """The files that flags of an engine name, `--flag FILE` or `--flag=FILE`."""
    flag = ""
    for word in words:
        name, _, value = word.partition("=") if word.startswith("--") else (flag, "", word)
        if name in _FILE_FLAGS and value.startswith("/"):
            yield Mount(Path(value), f"{name} names it")
        flag = word


@dataclass(frozen=True)
class HardLimits:
    """The hard limits of this process; None is unlimited."""

    files: int | None
    processes: int | None
    memlock_bytes: int | None
    may_raise: bool
    """It has CAP_SYS_RESOURCE."""


ANY_DEVICE = HardLimits(files=None, processes=None, memlock_bytes=None, may_raise=True)
"""Of a host that is not at hand."""


def host_devices(runtime: Runtime, host: HostTable, facts: Facts, limits: HardLimits) -> Iterator[Flag]:
    """What a container needs of this kind of host, with these facts."""
    yield from own_limits(runtime, limits)
    rdma = sorted({port.device for port in facts.rdma if port.active})
    if rdma:
        if runtime == "podman" and limits.memlock_bytes is not None and not limits.may_raise:
            raise Problem(
                "RDMA needs memory that stays where it is, and podman cannot allow it here",
                cause=f"this process may lock {limits.memlock_bytes >> 10} KiB (ulimit -Hl), and without "
                "root it cannot give more",
                fix=_MEMLOCK_FIX,
            )
        yield Flag(("--ulimit",), "memlock=-1:-1", "RDMA locks its buffers in memory")
    yield from _gpus(runtime, host)
    if rdma:
        why = f"RDMA: {', '.join(rdma)}; without it NCCL falls to TCP and does not say so"
        yield Flag(("--device",), "/dev/infiniband", why)


def own_limits(runtime: Runtime, limits: HardLimits) -> Iterator[Flag]:
    """Podman's own default is more than a host may allow, and then nothing starts."""
    if runtime == "podman":
        files = -1 if limits.files is None else limits.files
        yield Flag(("--ulimit",), f"nofile={files}:{files}", "this host's own limit; Ray opens many files")
        least = min(_PROCESSES, limits.processes or _PROCESSES)
        why = "what podman lets itself have, and Ray's threads need"
        yield Flag(("--ulimit",), f"nproc={least}:{least}", why)


def _gpus(runtime: Runtime, host: HostTable) -> Iterator[Flag]:
    if host.device == "cpu":
        return
    if runtime == "podman":
        yield Flag(("--device",), "nvidia.com/gpu=all", "GPUs by CDI, as podman takes them")
    elif host.container.nvidia_runtime:
        why = "on this L4T the driver's libraries and devices are mounted by NVIDIA's runtime"
        yield Flag(("--runtime",), "nvidia", why)
        # The guide for two Orins sets it; without, only what CUDA itself needs is mounted.
        yield Flag(("--env",), "NVIDIA_DRIVER_CAPABILITIES=all", "all of the driver, as L4T's images expect")
    else:
        yield Flag(("--gpus",), "all", "which of them it takes, CUDA_VISIBLE_DEVICES says")
