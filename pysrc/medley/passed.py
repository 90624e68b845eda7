"""What a container is passed of the hardware of its host, by kind: limits, GPUs, RDMA devices."""

from collections.abc import Iterator
from dataclasses import dataclass

from medley.container import Runtime
from medley.facts import Facts
from medley.problem import Problem
from medley.reasoned import Flag
from medley.tables import Host

# Podman 4 lowers its own limit to this, and without CAP_SYS_RESOURCE can give no more.
_PROCESSES = 32_768
_MEMLOCK_FIX = (
    "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/memlock.conf, then log in again; "
    "or: --container docker"
)


@dataclass(frozen=True)
class Limits:
    """The hard limits of this process; None is unlimited."""

    files: int | None
    processes: int | None
    memlock_bytes: int | None
    may_raise: bool
    """Whether it may go beyond (CAP_SYS_RESOURCE)."""


ANY = Limits(files=None, processes=None, memlock_bytes=None, may_raise=True)
"""Of a host that is not at hand."""


def of_host(runtime: Runtime, host: Host, facts: Facts, limits: Limits) -> Iterator[Flag]:
    """What a container needs of this kind of host, with these facts."""
    yield from _limits(runtime, facts, limits)
    yield from _gpus(runtime, host)
    if devices := _rdma(facts):
        why = f"RDMA: {', '.join(devices)}; without it NCCL falls to TCP and does not say so"
        yield Flag(("--device",), "/dev/infiniband", why)


def _rdma(facts: Facts) -> list[str]:
    return sorted({port.device for port in facts.rdma if port.active})


def own_limits(runtime: Runtime, limits: Limits) -> Iterator[Flag]:
    """Podman's own default is more than a host may allow, and then nothing starts."""
    if runtime == "podman":
        least = min(_PROCESSES, limits.processes or _PROCESSES)
        files = -1 if limits.files is None else limits.files
        yield Flag(("--ulimit",), f"nofile={files}:{files}", "this host's own limit; Ray opens many files")
        yield Flag(
            ("--ulimit",), f"nproc={least}:{least}", "what podman lets itself have, and Ray's threads need"
        )


def _limits(runtime: Runtime, facts: Facts, limits: Limits) -> Iterator[Flag]:
    yield from own_limits(runtime, limits)
    if not _rdma(facts):
        return
    if runtime == "podman" and limits.memlock_bytes is not None and not limits.may_raise:
        raise Problem(
            "RDMA needs memory that stays where it is, and podman cannot allow it here",
            cause=f"this process may lock {limits.memlock_bytes >> 10} KiB (ulimit -Hl), and without root it "
            "cannot give more",
            fix=_MEMLOCK_FIX,
        )
    yield Flag(("--ulimit",), "memlock=-1:-1", "RDMA locks its buffers in memory")


def _gpus(runtime: Runtime, host: Host) -> Iterator[Flag]:
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
