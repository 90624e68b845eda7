"""Define `Sample`: counters and gauges of one host, which agents send as JSON."""

from collections.abc import Mapping

from msgspec import field

from medley.values import Value


class CpuSample(Value):
    """Processor time since boot."""

    threads: int
    busy_s: float
    """The busy time of all threads together."""
    idle_s: float
    """The time of all threads without work, or in wait for a disk."""
    load: float | None = None
    """The load average of one minute."""


class MemorySample(Value):
    """The host's memory and swap."""

    total_bytes: int
    available_bytes: int
    swap_total_bytes: int = 0
    swap_free_bytes: int = 0


class GpuSample(Value):
    """One GPU; None for what its driver does not report."""

    index: int
    name: str
    busy: float | None = None
    """The busy share of the last sampling period, 0 to 1."""
    memory_total_bytes: int | None = None
    """The GPU's own memory; None if it uses the host's."""
    memory_used_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_mhz: float | None = None
    clock_most_mhz: float | None = None
    held_back: tuple[str, ...] = ()
    """The reasons that keep its clock below the maximum."""


class LinkSample(Value):
    """A link, or a port of an RDMA device."""

    name: str
    """The link's name, or DEVICE/PORT."""
    index: int
    """The kernel's index, which changes when a link of the same name is new; 0 for a port."""
    counters: Mapping[str, int]
    """The counters by the names of kernel (rx_bytes, tx_errors …) or RDMA driver; data in bytes."""
    up: bool | None = None
    mbit: int | None = None
    """The speed that the driver reports: twice the real one for an interface of a Spark's port."""
    kind: str = "ethernet"
    """The kind of link; `rdma` for a port."""


class RaySample(Value):
    """The part of this host in a cluster of Ray."""

    role: str
    head: str
    alive: bool
    """Whether its processes run."""
    interface: str | None = None
    slots: float | None = None
    """The slots of this host in Ray's metrics; None if unknown."""
    taken: float | None = None
    """The slots in use."""


class EngineSample(Value):
    """A server of this host."""

    model: str
    url: str
    state: str
    figures: Mapping[str, float] = field(default_factory=dict)
    silent: str | None = None
    """The reason why its figures are unknown."""
    said: str | None = None
    """The text of its metrics, if the request asked for it."""


class Sample(Value):
    """Everything that one host measures at one time."""

    at_s: float
    """The time since boot."""
    cpu: CpuSample
    memory: MemorySample
    gpus: tuple[GpuSample, ...] = ()
    gpus_silent: str | None = None
    """The reason why its GPUs are missing."""
    links: tuple[LinkSample, ...] = ()
    ports: tuple[LinkSample, ...] = ()
    retransmits: int | None = None
    """The number of TCP segments that were sent again."""
    ray: RaySample | None = None
    engines: tuple[EngineSample, ...] = ()
    events: Mapping[str, int] = field(default_factory=dict)
    """The number of all events so far, by kind."""
    slow: tuple[str, ...] = ()
    """Devices and links that the newest probe measured as slower than before."""
    cost_s: float = 0
    """The processor time of the sampling process."""

    @property
    def has_unified_memory(self) -> bool:
        """Whether the GPU uses the host's memory; its driver then reports none."""
        return bool(self.gpus) and all(gpu.memory_total_bytes is None for gpu in self.gpus)
