"""Group equal hosts, and place a layout in the order in which Ray gives ranks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, product
from math import inf, prod
from operator import attrgetter

from medley.errors import Problem
from medley.planner import Device, HostLink, Layout, LinkFinder, build_pipeline, group_by_host, join_names
from medley.values import Value

_EQUAL_SPEED_SHARE = 0.9
"""Speeds count as equal from this share of the faster one on: measured speeds are never equal."""
_MAX_COMBINATIONS = 64
_MAX_SMALL_COUNT = 8
"""If a group can form at most so many stages, every number is tried; else powers of two, and all stages."""


class HostGroup(Value):
    """Hosts with equally many devices of one kind and speed."""

    hosts: tuple[tuple[Device, ...], ...]
    """The devices of each host; hosts with the most memory come first."""

    @property
    def devices_per_host(self) -> int:
        """The number of devices on each host."""
        return len(self.hosts[0])

    @property
    def is_cpu(self) -> bool:
        """Whether the devices are CPUs."""
        return self.hosts[0][0].kind == "cpu"


def group_hosts(devices: Iterable[Device]) -> tuple[HostGroup, ...]:
    """Group equal hosts, the fastest first; a host of unlike GPUs is in several groups."""
    ordered = sorted(devices, key=lambda device: (device.kind, device.name, *_compute_speed_key(device)))
    groups = [
        group
        for _, same_devices in groupby(ordered, key=lambda device: (device.kind, device.name))
        for speed in _split_by_speed(same_devices)
        for group in _group_by_count(speed)
    ]
    return tuple(sorted(groups, key=lambda group: _compute_speed_key(group.hosts[0][0])))


def order_by_link(group: HostGroup, head: str | None, find_link: LinkFinder) -> HostGroup:
    """Order equal hosts so that each has the fastest link to the one before it, the first to the head.

    Stages and pipelines take hosts in this order, so hosts with a cable of their own stay together.
    """
    remaining, ordered, previous = list(group.hosts), [], head
    while remaining:
        speeds = [_find_mbit(previous, host[0].host, find_link) for host in remaining]
        next_host = remaining.pop(speeds.index(max(speeds)))
        ordered.append(next_host)
        previous = next_host[0].host
    return HostGroup(tuple(ordered))


def _find_mbit(first: str | None, second: str, find_link: LinkFinder) -> float:
    """Return the link's speed: infinity on the same host, 0 without a first host, -1 without a link."""
    if first is None or first == second:
        return inf if first == second else 0
    link = find_link(first, second)
    return link.mbit if isinstance(link, HostLink) else -1


def _compute_speed_key(device: Device) -> tuple[float, float, int, str, int]:
    return (-device.bandwidth_gb_s, -device.bf16_tflops, -device.memory_bytes, device.host, device.index)


def _split_by_speed(devices: Iterable[Device]) -> Iterator[list[Device]]:
    """Yield groups of about equal speed; `devices`: of one kind, the fastest first."""
    group: list[Device] = []
    for device in devices:
        if group and not _is_equally_fast(device, group[0]):
            yield group
            group = []
        group.append(device)
    yield group


def _is_equally_fast(device: Device, fastest: Device) -> bool:
    min_tflops = _EQUAL_SPEED_SHARE * fastest.bf16_tflops
    max_tflops = fastest.bf16_tflops / _EQUAL_SPEED_SHARE
    has_bandwidth = device.bandwidth_gb_s >= _EQUAL_SPEED_SHARE * fastest.bandwidth_gb_s
    return has_bandwidth and min_tflops <= device.bf16_tflops <= max_tflops


def _group_by_count(devices: Iterable[Device]) -> Iterator[HostGroup]:
    """Yield groups of hosts with equally many devices."""
    by_host = group_by_host(devices)
    hosts = [tuple(sorted(host, key=lambda device: device.index)) for host in by_host.values()]
    hosts.sort(key=lambda host: (-len(host), -min(device.memory_bytes for device in host), host[0].host))
    for _, equal_hosts in groupby(hosts, key=len):
        yield HostGroup(tuple(equal_hosts))


def list_stage_counts(max_counts: Sequence[int], stages: int | None) -> Iterator[tuple[int, ...]]:
    """Yield how many stages of each group form a pipeline; `max_counts`: the stages that each group can form.

    `stages`: the number of stages that the user forced, if any.
    """
    all_counts = [
        range(count + 1) if count <= _MAX_SMALL_COUNT else sorted({0, *_list_powers(count), count})
        for count in max_counts
    ]
    extreme_counts = [sorted({0, min(1, count), count}) for count in max_counts]
    combinations: Iterable[tuple[int, ...]] = _list_prefixes(max_counts)
    # The finest set of counts below the limit is tried.
    for options in (extreme_counts, all_counts):
        if prod(map(len, options)) <= _MAX_COMBINATIONS:
            combinations = product(*options)
    forced: list[int] = []
    if stages is not None:
        for count in max_counts:
            forced.append(min(count, stages - sum(forced)))
    yield from (counts for counts in dict.fromkeys((*combinations, tuple(forced))) if any(counts))


def _list_powers(count: int) -> list[int]:
    return [1 << exponent for exponent in range(count.bit_length())]


def _list_prefixes(max_counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield counts with one stage of a group, with all of a group, and with all of the fastest groups."""
    for nth, count in enumerate(max_counts):
        single = tuple(int(index == nth and count > 0) for index in range(len(max_counts)))
        yield single
        yield tuple(count * number for number in single)
        if nth < _MAX_SMALL_COUNT or nth + 1 in {*_list_powers(len(max_counts)), len(max_counts)}:
            yield tuple(size if index <= nth else 0 for index, size in enumerate(max_counts))


def place_in_rank_order(layout: Layout, order: Sequence[str]) -> tuple[Layout, tuple[int, ...]]:
    """Return the pipeline with its stages in the order in which Ray gives ranks, and their planned indexes.

    `order`: the hosts, the driver's first and then by Ray's node id. Ranks go to the devices of one host
    after the other. A stage carries the layers of the planned stage on its devices, or else of a stage on
    devices of the same type. Replicas are engines of their own, each with its own order. Raise a Problem if
    a stage would get unlike devices.
    """
    stage_devices = _group_ranks(layout, order)
    unplaced = dict(enumerate(layout.stages))
    planned_at: dict[int, int] = {}
    for read_device_type in (attrgetter("host", "kind", "name"), attrgetter("kind", "name")):
        for place, devices in enumerate(stage_devices):
            if place in planned_at:
                continue
            device_type = sorted(map(read_device_type, devices))
            stage_index = next(
                (
                    nth
                    for nth, stage in unplaced.items()
                    if sorted(map(read_device_type, stage.devices)) == device_type
                ),
                None,
            )
            if stage_index is not None:
                planned_at[place] = stage_index
                del unplaced[stage_index]
    if unplaced:
        raise _build_misplaced_stage_problem(stage_devices, planned_at, layout, order)
    permutation = tuple(planned_at[place] for place in range(len(stage_devices)))
    stages = build_pipeline(stage_devices, (layout.stages[nth].layers for nth in permutation))
    return layout.replace(stages=stages, other_pipelines=()), permutation


def _group_ranks(layout: Layout, order: Sequence[str]) -> list[tuple[Device, ...]]:
    hosts = group_by_host(device for stage in layout.stages for device in stage.devices)
    # Ray also chooses which of a host's GPUs takes which of its ranks, but the ranks follow each other.
    ranks = [
        device for host in order for device in sorted(hosts.get(host, []), key=lambda device: device.index)
    ]
    tensor_parallel = len(layout.stages[0].devices)
    return [tuple(ranks[start : start + tensor_parallel]) for start in range(0, len(ranks), tensor_parallel)]


def _build_misplaced_stage_problem(
    stage_devices: Sequence[Sequence[Device]],
    planned_at: Mapping[int, int],
    layout: Layout,
    order: Sequence[str],
) -> Problem:
    place = next(nth for nth in range(len(stage_devices)) if nth not in planned_at)
    unlike_hosts, *planned_hosts = (
        sorted({device.host for device in devices})
        for devices in (stage_devices[place], *(stage.devices for stage in layout.stages))
    )
    return Problem(
        f"stage {place + 1} would lie on {join_names(unlike_hosts)}, which are unlike",
        cause=f"Ray gives ranks to {join_names(order)} in this order; "
        f"the stages planned are {' + '.join(map(join_names, planned_hosts))}",
        fix=f"on {unlike_hosts[-1]}: medley ray-stop, then medley ray-worker HEAD, "
        "which gives it another place",
    )
