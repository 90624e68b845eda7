"""Build `docker run` and `podman run` commands: limits, GPUs, RDMA, mounts."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from medley import storage
from medley.command import AnnotatedCommand, Flag, Variable
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host_schema import HostTable
from medley.values import Value

Runtime = Literal["docker", "podman"]

CACHE_FOLDERS: Mapping[str, str] = {
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
_ENGINE_VARIABLE_PREFIXES = (
    *("VLLM_", "SGLANG_", "HF_", "NCCL_", "UCX_", "GLOO_", "TORCH", "PYTORCH_", "FLASHINFER_", "TIKTOKEN_"),
    *("TRITON_", "MAX_JOBS", "MALLOC_", "TRANSFORMERS_OFFLINE"),
    *("RAY_", "CUDA_", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
# Variables that name a toolchain's files on this host, which an image does not have.
_TOOLCHAIN_VARIABLES = {
    *("CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST"),
    *("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_LIBCUDA_PATH"),
}
# An entrypoint with this prefix prepares CUDA's forward compatibility, then runs the words that follow.
_NVIDIA_ENTRYPOINT_PREFIX = "/opt/nvidia/"
# Variables that name files and folders of this host: why they are mounted, and whether they are writable.
_MOUNTED_VARIABLES = {
    "RAY_AUTH_TOKEN_PATH": ("the file of the cluster's token", False),
    "VLLM_CONFIG_ROOT": ("its list of variables that other hosts do not receive", True),
    "HF_TOKEN_PATH": ("your account on the model hub", False),
    "HF_HUB_CACHE": ("the cache of downloaded models", True),
    "TIKTOKEN_ENCODINGS_BASE": ("encodings, which the engine would fetch when it starts", False),
    **dict.fromkeys(CACHE_FOLDERS, ("what it compiled, for the next time", True)),
}
# Flags whose value is a file of this host.
_FILE_FLAGS = (
    *("--chat-template", "--reasoning-parser-plugin", "--tool-parser-plugin", "--completion-template"),
    *("--config", "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--speculative-draft-model-path"),
)
# Podman 4 lowers its own limit to this number, and without CAP_SYS_RESOURCE cannot raise it for a container.
_PODMAN_MAX_PROCESSES = 32_768
_MEMLOCK_FIX = (
    "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/memlock.conf, then log in again; "
    "or: --container docker"
)


class Image(Value):
    name: str
    id: str = ""
    """64 hex digits; empty if the image is not on this host yet."""
    digests: tuple[str, ...] = ()
    """One digest per registry, for all the architectures that the name stands for."""
    entrypoint: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """The names of the variables that the image itself sets."""

    @property
    def short_id(self) -> str:
        return self.id[:12] or "not here yet"


class Mount(Value):
    source: Path
    why: str
    is_writable: bool = False
    target: Path | None = None
    """The path in the container, if it differs from the source."""

    @property
    def flag(self) -> Flag:
        target = self.target or self.source
        return Flag(("--volume",), f"{self.source}:{target}{'' if self.is_writable else ':ro'}", self.why)


class ContainerSpec(Value):
    """The flags, mounts and variables that all containers of one image on this host share."""

    runtime: Runtime
    image: Image
    flags: tuple[Flag, ...] = ()
    """The flags for this host's limits, GPUs and RDMA devices."""
    mounts: tuple[Mount, ...] = ()
    variables: tuple[Variable, ...] = ()
    pid_container: str | None = None
    """The container whose process IDs it shares."""

    def wrap(
        self, annotated: AnnotatedCommand, name: str, environ: Mapping[str, str], *, detached: bool = False
    ) -> AnnotatedCommand:
        """Return the command in a container of this name; detached it outlives its client."""
        variables = (*annotated.variables, *self.variables)
        names = [variable.name for variable in variables]
        environment_flags = (
            word
            for variable_name in (*names, *list_engine_variables_set_by_user(environ, names))
            for word in ("--env", variable_name)
        )
        variable_mounts = (
            Mount(Path(variable.value), *_MOUNTED_VARIABLES[variable.name])
            for variable in variables
            if variable.name in _MOUNTED_VARIABLES
        )
        mounts = (*self.mounts, *variable_mounts, *_list_file_mounts(annotated.command.argv))
        return AnnotatedCommand(
            (self.runtime, "run", *environment_flags),
            (
                *self._list_container_flags(name, detached=detached),
                *self.flags,
                *{mount.target or mount.source: mount.flag for mount in mounts}.values(),
                *self._list_program_flags(annotated),
                *annotated.flags,
            ),
            variables,
            annotated.extra,
            unset=(),  # the client has none of the engine's Python
            undo=build_removal_words(self.runtime, name),
            inherits=self.image.names,
        )

    def _list_container_flags(self, name: str, *, detached: bool) -> Iterator[Flag]:
        if detached:
            yield Flag(("--detach",), None, "it goes on until ray-stop")
        else:
            yield Flag(("--rm",), None, "nothing of it stays behind")
        yield Flag(("--name",), name, "what it is ended by")
        if self.pid_container:
            why = "Ray's node takes no driver whose process it does not see"
            yield Flag(("--pid",), f"container:{self.pid_container}", why)
        else:
            yield Flag(("--init",), None, "a first process that forwards signals and reaps children")
        yield Flag(("--pull",), "never", "runs the image that was checked")
        yield Flag(("--network",), "host", "NCCL, Gloo and Ray need the host's own addresses")
        yield Flag(("--ipc",), "host", "ranks, and Ray's processes, share memory through /dev/shm")
        yield Flag(("--uts",), "host", "Ray shows a host by its name")
        if self.runtime == "podman":
            why = "else SELinux, where there is one, hides what is mounted"
            yield Flag(("--security-opt",), "label=disable", why)

    def _list_program_flags(self, annotated: AnnotatedCommand) -> Iterator[Flag]:
        """Yield the image and the program, which end the flags; they have reasons as flags have."""
        program, *rest = annotated.words
        image = Flag((self.image.id or self.image.name,), None, f"{self.image.name} ({self.image.short_id})")
        if self.image.entrypoint[:1] and self.image.entrypoint[0].startswith(_NVIDIA_ENTRYPOINT_PREFIX):
            yield image
            yield Flag((program,), None, "after the image's own entrypoint, which prepares CUDA")
        else:
            yield Flag(("--entrypoint",), program, "whatever the image would run by itself")
            yield image
        yield from (Flag((word,), None, "as without an image") for word in rest)


def name_container(role: str) -> str:
    """Return a container's name from its role and medley's state folder, so that users do not clash."""
    return f"medley-{role}-{storage.hash_bytes(str(storage.find_state_folder()).encode())[:6]}"


def build_removal_words(runtime: Runtime, container: str) -> tuple[str, ...]:
    """Return the command that ends a container at once, if it exists."""
    return (
        runtime,
        "rm",
        "--force",
        *(("--ignore", "--time", "0") if runtime == "podman" else ()),
        container,
    )


def list_engine_variables_set_by_user(environ: Mapping[str, str], excluded: Iterable[str]) -> Iterator[str]:
    """Yield variables of the user's shell that an engine reads; their values are on no command line."""
    excluded_names = {*excluded, *_TOOLCHAIN_VARIABLES}
    return (
        name
        for name in sorted(environ)
        if name.startswith(_ENGINE_VARIABLE_PREFIXES) and name not in excluded_names
    )


def _list_file_mounts(words: Iterable[str]) -> Iterator[Mount]:
    """Yield a mount for each file that an engine's flags name, `--flag FILE` or `--flag=FILE`."""
    flag_name = ""
    for word in words:
        option, _, value = word.partition("=") if word.startswith("--") else (flag_name, "", word)
        if option in _FILE_FLAGS and value.startswith("/"):
            yield Mount(Path(value), f"{option} names it")
        flag_name = word


class HardLimits(Value):
    """The hard limits of a process; None is unlimited."""

    files: int | None
    processes: int | None
    memlock_bytes: int | None
    can_raise: bool
    """Whether the process has CAP_SYS_RESOURCE."""


UNLIMITED = HardLimits(files=None, processes=None, memlock_bytes=None, can_raise=True)
"""The limits assumed for another host, which medley cannot read."""


def list_host_flags(runtime: Runtime, table: HostTable, facts: Facts, limits: HardLimits) -> Iterator[Flag]:
    """Yield the flags of a container on this kind of host, with these facts.

    Raise a Problem if RDMA needs more locked memory than podman may give.
    """
    yield from list_limit_flags(runtime, limits)
    rdma_devices = sorted({port.device for port in facts.rdma if port.active})
    if rdma_devices:
        if runtime == "podman" and limits.memlock_bytes is not None and not limits.can_raise:
            raise Problem(
                "RDMA needs locked memory, and rootless podman may lock only "
                f"{limits.memlock_bytes >> 10} KiB",
                cause=f"this process may lock {limits.memlock_bytes >> 10} KiB (ulimit -Hl), and without "
                "root it cannot give more",
                fix=_MEMLOCK_FIX,
            )
        yield Flag(("--ulimit",), "memlock=-1:-1", "RDMA locks its buffers in memory")
    yield from _list_gpu_flags(runtime, table)
    if rdma_devices:
        why = f"RDMA: {', '.join(rdma_devices)}; without it NCCL falls to TCP and does not say so"
        yield Flag(("--device",), "/dev/infiniband", why)


def list_limit_flags(runtime: Runtime, limits: HardLimits) -> Iterator[Flag]:
    """Yield podman's limits: its own default may exceed the host's limit, and then no container starts."""
    if runtime == "podman":
        files = -1 if limits.files is None else limits.files
        yield Flag(("--ulimit",), f"nofile={files}:{files}", "this host's own limit; Ray opens many files")
        processes = min(_PODMAN_MAX_PROCESSES, limits.processes or _PODMAN_MAX_PROCESSES)
        why = "what podman lets itself have, and Ray's threads need"
        yield Flag(("--ulimit",), f"nproc={processes}:{processes}", why)


def _list_gpu_flags(runtime: Runtime, table: HostTable) -> Iterator[Flag]:
    if table.device == "cpu":
        return
    if runtime == "podman":
        yield Flag(("--device",), "nvidia.com/gpu=all", "GPUs by CDI, as podman takes them")
    elif table.container.nvidia_runtime:
        why = "on this L4T the driver's libraries and devices are mounted by NVIDIA's runtime"
        yield Flag(("--runtime",), "nvidia", why)
        # The guide for two Orins sets it; without, only what CUDA itself needs is mounted.
        yield Flag(("--env",), "NVIDIA_DRIVER_CAPABILITIES=all", "all of the driver, as L4T's images expect")
    else:
        yield Flag(("--gpus",), "all", "which of them it takes, CUDA_VISIBLE_DEVICES says")
