"""A sample is what one host's counters and gauges say at one moment, as values that go through JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

Counters = Mapping[str, int]


@dataclass(frozen=True)
class Cpu:
    threads: int
    busy_s: float
    """Of all threads together since the start."""
    idle_s: float
    """Nothing to do, or waiting for a disk."""
    load: float | None = None
    """Of the last minute."""


@dataclass(frozen=True)
class Memory:
    total_bytes: int
    available_bytes: int
    swap_total_bytes: int = 0
    swap_free_bytes: int = 0


@dataclass(frozen=True)
class Gpu:
    """One GPU; None is what its driver does not say."""

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
class Link:
    name: str
    index: int
    counters: Counters
    """By the kernel's names: rx_bytes, tx_bytes, rx_errors, tx_errors, rx_dropped, tx_dropped."""
    up: bool | None = None
    mbit: int | None = None
    """As the driver reports it, which for a Spark's half is twice what it carries."""
    kind: str = "ethernet"


@dataclass(frozen=True)
class Port:
    """A port of an RDMA device."""

    name: str
    """DEVICE/PORT."""
    counters: Counters
    """By the driver's names; what counts data counts bytes here."""
    active: bool | None = None
    mbit: int | None = None


@dataclass(frozen=True)
class Ray:
    role: str
    head: str
    alive: bool
    """Its processes are there."""
    interface: str | None = None
    slots: float | None = None
    """Of this host, as its Ray tells; None where that is not known."""
    taken: float | None = None


@dataclass(frozen=True)
class Engine:
    """A server of this host."""

    model: str
    url: str
    state: str
    figures: Mapping[str, float] = field(default_factory=dict)
    """As `engine` reads them of its metrics."""
    silent: str | None = None
    """Why it tells no figures."""
    said: str | None = None
    """Its metrics as they are, where they were asked for."""


@dataclass(frozen=True)
class Sample:
    at_s: float
    """On a clock of the host's that never goes back."""
    cpu: Cpu
    memory: Memory
    gpus: tuple[Gpu, ...] = ()
    gpus_silent: str | None = None
    """Why its GPUs, which are there, do not show."""
    links: tuple[Link, ...] = ()
    ports: tuple[Port, ...] = ()
    retransmits: int | None = None
    """Segments that TCP sent again."""
    ray: Ray | None = None
    engines: tuple[Engine, ...] = ()
    cost_s: float = 0
    """Of a processor, what medley took on this host since it began to look."""

    @property
    def unified(self) -> bool:
        """Whether the GPU's memory is the host's: its driver then tells none of its own."""
        return bool(self.gpus) and all(gpu.memory_total_bytes is None for gpu in self.gpus)

    @property
    def table(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """What `table` gave, after JSON."""
        several = {"gpus": Gpu, "links": Link, "ports": Port, "engines": Engine}
        made: dict[str, Any] = {
            name: tuple(_of(kind, each) for each in table[name]) for name, kind in several.items()
        }
        made |= {"cpu": Cpu(**table["cpu"]), "memory": Memory(**table["memory"])}
        made["ray"] = Ray(**table["ray"]) if table["ray"] else None
        return cls(**{**table, **made})


def _of(kind: type[Any], table: Mapping[str, Any]) -> Any:  # noqa: ANN401 - one of several dataclasses
    known = {each.name for each in fields(kind)}
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in table.items()
            if name in known
        }
    )
