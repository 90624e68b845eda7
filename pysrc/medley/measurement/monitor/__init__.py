"""`Sample`: counters and gauges of one host, as they travel between hosts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True)
class CpuSample:
    threads: int
    busy_s: float
    """Of all threads together since the start."""
    idle_s: float
    """Nothing to do, or waiting for a disk."""
    load: float | None = None
    """Of the last minute."""


@dataclass(frozen=True)
class MemorySample:
    total_bytes: int
    available_bytes: int
    swap_total_bytes: int = 0
    swap_free_bytes: int = 0


@dataclass(frozen=True)
class GpuSample:
    """One GPU; None is what its driver does not report."""

    index: int
    name: str
    busy: float | None = None
    """Of the last moments, 0 to 1."""
    memory_total_bytes: int | None = None
    """None where it is the host's."""
    memory_used_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_mhz: float | None = None
    clock_most_mhz: float | None = None
    held_back: tuple[str, ...] = ()
    """What keeps its clock below what it could be."""


@dataclass(frozen=True)
class LinkSample:
    """A link, or a port of an RDMA device."""

    name: str
    """Of a port DEVICE/PORT."""
    index: int
    """A new link of an old name has another; 0 of a port."""
    counters: Mapping[str, int]
    """By the kernel's names (rx_bytes, tx_errors, rx_dropped …), of a port by the driver's; data in bytes."""
    up: bool | None = None
    mbit: int | None = None
    """As the driver reports it, which for a Spark's half is twice what it carries."""
    kind: str = "ethernet"
    """`rdma` of a port."""


@dataclass(frozen=True)
class Ray:
    role: str
    head: str
    alive: bool
    """Its processes are there."""
    interface: str | None = None
    slots: float | None = None
    """Of this host, by Ray's metrics; None if unknown."""
    taken: float | None = None


@dataclass(frozen=True)
class EngineSample:
    """A server of this host."""

    model: str
    url: str
    state: str
    figures: Mapping[str, float] = field(default_factory=dict)
    silent: str | None = None
    """Why its figures are not known."""
    said: str | None = None
    """Its unchanged metrics, if asked for."""


@dataclass(frozen=True)
class Sample:
    at_s: float
    """On a clock that never goes back."""
    cpu: CpuSample
    memory: MemorySample
    gpus: tuple[GpuSample, ...] = ()
    gpus_silent: str | None = None
    """Why its GPUs, which are there, do not show."""
    links: tuple[LinkSample, ...] = ()
    ports: tuple[LinkSample, ...] = ()
    retransmits: int | None = None
    """Segments that TCP sent again."""
    ray: Ray | None = None
    engines: tuple[EngineSample, ...] = ()
    events: Mapping[str, int] = field(default_factory=dict)
    """How many there ever were, by kind."""
    slow: tuple[str, ...] = ()
    """Devices and links that are slower than they were, by the newest probe."""
    cost_s: float = 0
    """Processor time of medley on this host since it began to sample."""

    @property
    def unified(self) -> bool:
        """Whether the GPU uses the host's memory: its driver then reports none."""
        return bool(self.gpus) and all(gpu.memory_total_bytes is None for gpu in self.gpus)

    @property
    def table(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(table: Mapping[str, Any]) -> "Sample":
        """Read what `table` gave, after JSON."""
        return _adapter().validate_python(table)


@cache
def _adapter() -> "TypeAdapter[Sample]":
    from pydantic import TypeAdapter  # noqa: PLC0415 - a tenth of a second, which only a reader needs

    return TypeAdapter(Sample)
