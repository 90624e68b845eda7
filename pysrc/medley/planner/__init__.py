"""Devices, links, stages, layouts and loads of the planner, and their names for people."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Literal

FAST_MBIT = 10_000
"""Tensor parallel communicates twice a layer: over 10GbE TCP it is known to work (two AGX Orin,
jetson-containers' distributed-inference.md); below, nobody reports a gain."""
_LISTED = 4
_GBIT = 1000

Goal = Literal["latency", "throughput", "context"]


@dataclass(frozen=True)
class Load:
    """What is asked of a server all the time."""

    concurrency: int = 1
    prompt_tokens: int = 512
    context_tokens: int = 1024
    """What a stream has behind it while it is answered, on average."""
    cached_tokens: int = 0
    """What stands before the prompt and was read earlier."""


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
    """Of its memory, as its maker states it or as `measured`."""
    bf16_tflops: float
    """Dense bfloat16 operations, as its maker states them; or as `measured`."""
    name: str = ""
    """The GPU's own name, where the kind does not say all."""
    total_bytes: int | None = None
    """All of its memory, which a utilisation is a share of; None where that is not known."""
    measured: bool = False
    """Bandwidth and operations are what programs really reach on it, not what its maker states."""
    most_bytes: int | None = None
    """What a rank may take where nothing fits into `memory_bytes`; None: no more than that."""


@dataclass(frozen=True)
class HostLink:
    """What joins two hosts of a layout, at the fabric's real speed."""

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
    link: HostLink | None = None
    """Between hosts; None where all is on one."""
    replicas: tuple[tuple[Stage, ...], ...] = ()
    """Further copies (data parallel), each a whole pipeline of its own."""
    expert_parallel: bool = False


def pipelines(layout: Layout) -> tuple[tuple[Stage, ...], ...]:
    return (layout.stages, *layout.replicas)


def pipeline(units: Iterable[tuple[Device, ...]], layers: Iterable[int]) -> tuple[Stage, ...]:
    """Stages on these devices, each with so many layers."""
    return tuple(Stage(devices, count) for devices, count in zip(units, layers, strict=True))


def devices_of(layout: Layout) -> tuple[Device, ...]:
    """In order of ranks, a replica after the other."""
    return tuple(device for stages in pipelines(layout) for stage in stages for device in stage.devices)


def hosts_of(layout: Layout) -> tuple[str, ...]:
    return tuple(dict.fromkeys(device.host for device in devices_of(layout)))


def on_cpu(layout: Layout) -> bool:
    """Whether CPUs run it: no engine runs on CPUs and GPUs at once."""
    return layout.stages[0].devices[0].kind == "cpu"


def sizes(layout: Layout) -> tuple[int, int, int]:
    """Tensor parallel, stages, replicas."""
    return max(len(stage.devices) for stage in layout.stages), len(layout.stages), 1 + len(layout.replicas)


def layers(layout: Layout) -> str:
    """Of each stage, as engines take it: 47,46."""
    return ",".join(str(stage.layers) for stage in layout.stages)


def arrangement(layout: Layout) -> str:
    """How it is split, in words; empty for one device."""
    wide, deep, many = sizes(layout)
    parts = [
        *([f"tensor parallel {wide}"] if wide > 1 else []),
        *(["expert parallel"] if layout.expert_parallel else []),
        *([f"{deep} stages of {layers(layout)} layers"] if deep > 1 else []),
        *([f"{many} replicas"] if many > 1 else []),
    ]
    return ", ".join(parts)


def named(layout: Layout) -> str:
    """Its arrangement and hosts; the indexes of a host's GPUs where it is not the first one only."""
    places = (
        host
        if (indexes := [device.index for device in devices]) == [0]
        else f"{host} ({', '.join(map(str, indexes))})"
        for host, devices in by_host(devices_of(layout)).items()
    )
    split = arrangement(layout)
    return f"{split} on {listed(places)}" if split else f"{listed(places)} alone"


def listed(names: Iterable[str]) -> str:
    found = list(names)
    if len(found) <= _LISTED:
        return ", ".join(found)
    return f"{', '.join(found[: _LISTED - 1])} … {found[-1]} ({len(found)} hosts)"


def by_host(devices: Iterable[Device]) -> dict[str, list[Device]]:
    """The devices of each host, in the order given."""
    found: dict[str, list[Device]] = {}
    for device in devices:
        found.setdefault(device.host, []).append(device)
    return found


def speed_and_transport(link: HostLink) -> str:
    """200 Gbit/s RDMA."""
    speed = f"{link.mbit / _GBIT:g} Gbit/s" if link.mbit >= _GBIT else f"{link.mbit} Mbit/s"
    return f"{speed} {'RDMA' if link.rdma else 'TCP'}"


LinkOf = Callable[[str, str], HostLink | str | None]
"""The link between two hosts; None where they cannot talk, or what else separates them, in words."""


GroupLink = Callable[[frozenset[str]], HostLink | str]
"""What carries between all of three hosts or more: less than each two have, where cables are no ring."""


def group_links(
    link_of: LinkOf, of_group: GroupLink | None = None
) -> Callable[[Iterable[str]], HostLink | str | None]:
    """Find the slowest link in a group of hosts, or why they have none; None for one host."""
    link_of = cache(link_of)

    @cache
    def slowest(names: frozenset[str]) -> HostLink | str | None:
        found: HostLink | None = None
        for one, other in combinations(sorted(names), 2):
            link = link_of(one, other)
            if not isinstance(link, HostLink):
                return f"{one} and {other} {link or 'have no link'}"
            found = slower(found, link)
        if found is None or of_group is None or len(names) == 2:  # noqa: PLR2004 - a pair, looked at already
            return found
        whole = of_group(names)
        if isinstance(whole, str):
            return whole
        return found if whole.rdma == found.rdma else slower(found, whole)

    return lambda hosts: slowest(frozenset(hosts))


def slower(one: HostLink | None, other: HostLink) -> HostLink:
    """The worse figure of each."""
    if one is None:
        return other
    return HostLink(
        mbit=min(one.mbit, other.mbit),
        latency_us=max(one.latency_us, other.latency_us),
        rdma=one.rdma and other.rdma,
        measured=one.measured and other.measured,
    )


def fast(link: HostLink | None) -> bool:
    """Whether tensor parallel over it is worth a look."""
    return link is None or link.rdma or link.mbit >= FAST_MBIT
