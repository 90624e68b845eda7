"""The shapes of a layout: the devices there are, the wire between their hosts, and which layers lie where."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """One GPU, or the CPU of a host without one; takes one rank."""

    host: str
    index: int
    """The GPU's index on its host, as nvidia-smi counts; 0 for a CPU."""
    kind: str
    """The kind of its host, as in hosts/: spark, thor, rtx …"""
    memory_bytes: int
    """What a rank may take in all: what is available, less what the system keeps."""
    bandwidth_gb_s: float
    """Of its memory, as its maker states it; or as `measured`."""
    bf16_tflops: float
    """Dense bfloat16 operations, as its maker states them; or as `measured`."""
    name: str = ""
    """The GPU's own name, where the kind does not say all."""
    total_bytes: int | None = None
    """All of its memory, which a utilisation is a share of; None where that is not known."""
    measured: bool = False
    """Bandwidth and operations are what programs really reach on it, and not what its maker states."""


@dataclass(frozen=True)
class Link:
    """Between two hosts of a layout: the fabric's real speed."""

    mbit: int
    latency_us: float
    """One way, for a small message."""
    rdma: bool = False
    measured: bool = False
    """Speed and latency are what a collective had of it, software included."""


@dataclass(frozen=True)
class Stage:
    """A pipeline stage: so many consecutive layers, each spread over all of its devices (tensor parallel)."""

    devices: tuple[Device, ...]
    layers: int


@dataclass(frozen=True)
class Layout:
    """A pipeline, and further copies of it."""

    stages: tuple[Stage, ...]
    link: Link | None = None
    """Between hosts; None where all is on one."""
    replicas: tuple[tuple[Stage, ...], ...] = ()
    """Further copies (data parallel), each a whole pipeline of its own."""
    expert_parallel: bool = False
