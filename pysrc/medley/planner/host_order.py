"""Groups of equal hosts; the order in which Ray gives ranks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from math import inf, prod
from operator import attrgetter

from medley.errors import Problem
from medley.planner import Device, HostLink, Layout, LinkOf, by_host, listed, pipeline
from medley.schema import EngineName

VARIABLE: Mapping[EngineName, str] = {
    "vllm": "VLLM_PP_LAYER_PARTITION",
    "sglang": "SGLANG_PP_LAYER_PARTITION",
}
"""By which each engine takes the layers of each stage."""
_ABOUT = 0.9
"""Speeds that differ by less are one speed: measured ones are never equal."""
# Above, not every number of stages of every group is tried: powers of two and all do.
_MOST = 64
_FEW = 8


@dataclass(frozen=True)
class HostGroup:
    hosts: tuple[tuple[Device, ...], ...]
    """Each host's devices of this group; those with the most memory first."""

    @property
    def each(self) -> int:
        """Devices on each host."""
        return len(self.hosts[0])

    @property
    def cpu(self) -> bool:
        return self.hosts[0][0].kind == "cpu"


def host_groups(devices: Iterable[Device]) -> tuple[HostGroup, ...]:
    """Group equal hosts, the fastest first. A host of unlike GPUs stands in several."""
    ordered = sorted(devices, key=lambda device: (device.kind, device.name, *_fastest_first(device)))
    found = [
        group
        for _, alike in groupby(ordered, key=lambda device: (device.kind, device.name))
        for speed in _of_one_speed(alike)
        for group in _by_count(speed)
    ]
    return tuple(sorted(found, key=lambda group: _fastest_first(group.hosts[0][0])))


def near_first(group: HostGroup, head: str | None, link_of: LinkOf) -> HostGroup:
    """Order equal hosts so that each has the fastest link to the one before it, the first to the head.

    Stages and pipelines take hosts in this order, so hosts with a cable of their own stay together.
    """
    left, ordered, last = list(group.hosts), [], head
    while left:
        speeds = [_mbit(last, host[0].host, link_of) for host in left]
        following = left.pop(speeds.index(max(speeds)))
        ordered.append(following)
        last = following[0].host
    return HostGroup(tuple(ordered))


def _mbit(one: str | None, other: str, link_of: LinkOf) -> float:
    if one is None or one == other:
        return inf if one == other else 0
    link = link_of(one, other)
    return link.mbit if isinstance(link, HostLink) else -1


def _fastest_first(device: Device) -> tuple[float, float, int, str, int]:
    return (-device.bandwidth_gb_s, -device.bf16_tflops, -device.memory_bytes, device.host, device.index)


def _of_one_speed(devices: Iterable[Device]) -> Iterator[list[Device]]:
    """Devices of one kind, the fastest first, cut where one is slower than the first of its group."""
    group: list[Device] = []
    for device in devices:
        if group and not (
            device.bandwidth_gb_s >= _ABOUT * group[0].bandwidth_gb_s
            and _ABOUT * group[0].bf16_tflops <= device.bf16_tflops <= group[0].bf16_tflops / _ABOUT
        ):
            yield group
            group = []
        group.append(device)
    yield group


def _by_count(devices: Iterable[Device]) -> Iterator[HostGroup]:
    """Hosts with equally many devices are equal."""
    hosts = [tuple(sorted(held, key=lambda device: device.index)) for held in by_host(devices).values()]
    hosts.sort(key=lambda host: (-len(host), -min(one.memory_bytes for one in host), host[0].host))
    for _, alike in groupby(hosts, key=len):
        yield HostGroup(tuple(alike))


def counts(units: Sequence[int], stages: int | None) -> Iterator[tuple[int, ...]]:
    """How many stages of each group of hosts make up a pipeline, for every pipeline worth a look."""
    few = [range(count + 1) if count <= _FEW else sorted({0, *_powers(count), count}) for count in units]
    fewer = [sorted({0, min(1, count), count}) for count in units]
    options = next((each for each in (few, fewer) if prod(map(len, each)) <= _MOST), None)
    made = product(*options) if options is not None else _prefixes(units)
    forced: list[int] = []
    for count in units if stages is not None else ():
        forced.append(min(count, (stages or 0) - sum(forced)))
    yield from (chosen for chosen in dict.fromkeys((*made, tuple(forced))) if any(chosen))


def _powers(count: int) -> list[int]:
    return [1 << nth for nth in range(count.bit_length())]


def _prefixes(units: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """One unit of a group, all of a group, and all of the fastest groups."""
    for nth, count in enumerate(units):
        alone = tuple(int(each == nth and count > 0) for each in range(len(units)))
        yield alone
        yield tuple(count * one for one in alone)
        if nth < _FEW or nth + 1 in {*_powers(len(units)), len(units)}:
            yield tuple(many if each <= nth else 0 for each, many in enumerate(units))


def landing(layout: Layout, order: Sequence[str]) -> tuple[Layout, tuple[int, ...]]:
    """A pipeline on hosts that take ranks in this order, and the planned stage at each place.

    The driver's host is first, then they follow by Ray's node id.

    Ranks go to the devices of one host after the other; so many as are tensor parallel make a stage. Each
    carries the layers of the planned stage on these devices, or else of one on devices of the same sort. Its
    replicas are engines of their own, each with an order of its own.
    """
    made = _made(layout, order)
    left = dict(enumerate(layout.stages))
    found: dict[int, int] = {}
    for alike in (attrgetter("host", "kind", "name"), attrgetter("kind", "name")):
        for place, devices in enumerate(made):
            if place in found:
                continue
            sort = sorted(map(alike, devices))
            planned = next(
                (nth for nth, stage in left.items() if sorted(map(alike, stage.devices)) == sort), None
            )
            if planned is not None:
                found[place] = planned
                del left[planned]
    if left:
        raise _elsewhere(made, found, layout, order)
    permutation = tuple(found[place] for place in range(len(made)))
    stages = pipeline(made, (layout.stages[nth].layers for nth in permutation))
    return replace(layout, stages=stages, replicas=()), permutation


def _made(layout: Layout, order: Sequence[str]) -> list[tuple[Device, ...]]:
    hosts = by_host(device for stage in layout.stages for device in stage.devices)
    # Which of a host's GPUs takes which of its ranks is Ray's choice too, but they follow each other.
    ranks = [
        device for host in order for device in sorted(hosts.get(host, []), key=lambda device: device.index)
    ]
    wide = len(layout.stages[0].devices)
    return [tuple(ranks[first : first + wide]) for first in range(0, len(ranks), wide)]


def _elsewhere(
    made: Sequence[Sequence[Device]], found: Mapping[int, int], layout: Layout, order: Sequence[str]
) -> Problem:
    place = next(nth for nth in range(len(made)) if nth not in found)
    unlike, *planned = (
        sorted({device.host for device in devices})
        for devices in (made[place], *(stage.devices for stage in layout.stages))
    )
    return Problem(
        f"stage {place + 1} would lie on {listed(unlike)}, which are unlike",
        cause=f"Ray gives ranks to {listed(order)} in this order; "
        f"the stages planned are {' + '.join(map(listed, planned))}",
        fix=f"on {unlike[-1]}: medley ray-stop, then medley ray-worker HEAD, which gives it another place",
    )
