"""List the layouts that may be the best, and the layouts of the sizes that the user forced."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from medley.planner import (
    TENSOR_PARALLEL_MBIT,
    Device,
    GroupLinkFinder,
    HostLink,
    Layout,
    LinkFinder,
    SlowestLinkFinder,
    build_group_finder,
    build_pipeline,
    combine_links,
    count_parallel_sizes,
    group_by_host,
    is_fast_link,
    join_names,
)
from medley.planner.fit import Fit
from medley.planner.host_order import HostGroup, group_hosts, list_stage_counts, order_by_link
from medley.planner.partition import Workload, find_stage_refusal, list_refusals, split_layers
from medley.planner.prediction import Prediction
from medley.schema import Shape
from medley.values import Value

_MAX_SMALL_COUNT = 8
"""The number of stages or ranks up to which each number is tried; above, only powers of two and groups."""
StageDevices = tuple[Device, ...]
"""The devices of one stage."""


class ForcedSizes(Value):
    """Ranks in a stage, stages and replicas as the user forced them; None: the planner decides."""

    tensor_parallel: int | None = None
    stages: int | None = None
    replicas: int | None = None

    def allows(self, *sizes: int) -> bool:
        """Return whether these numbers of ranks in a stage, stages and replicas are as the user forced."""
        pairs = zip((self.tensor_parallel, self.stages, self.replicas), sizes, strict=True)
        return all(forced_size in {None, size} for forced_size, size in pairs)

    def __str__(self) -> str:
        """Return the forced sizes as switches of the command line."""
        pairs = (("--tp", self.tensor_parallel), ("--pp", self.stages), ("--dp", self.replicas))
        return " ".join(f"{flag} {size}" for flag, size in pairs if size is not None)


NO_FORCED_SIZES = ForcedSizes()


class Request(Value):
    """The workload, and the devices, links and sizes that a layout for it may have."""

    workload: Workload
    devices: tuple[Device, ...]
    find_link: LinkFinder
    sizes: ForcedSizes = NO_FORCED_SIZES
    head: str | None = None
    """The host where the engine starts; it has the first stage."""
    find_refusal: Callable[[Layout], str | None] = lambda _: None
    """A function that returns why a layout does not match the user's options; None if it does."""
    find_group_link: GroupLinkFinder | None = None


class Rejection(Value):
    """A candidate that was not chosen, and why."""

    candidate: str
    reason: str
    layout: Layout | None = None
    """The layout of a candidate that fits; such a candidate has a score and a note, too."""
    score: float = 0
    """Predicted tokens per second."""
    note: str = ""
    """The reason without its numbers."""


class CandidateRow(Value):
    """A candidate with its memory and speed: one row of the planner's table."""

    layout: Layout
    fit: Fit
    prediction: Prediction
    score: float
    is_unforced: bool
    """Whether the layout is a candidate without forced sizes, too."""


class Evaluation(Value):
    """The candidates of one request, each evaluated once: source of the choice, its reasons and remedies."""

    request: Request
    rows: tuple[CandidateRow, ...]
    ruled_out: tuple[Rejection, ...]
    """Candidates of the forced sizes that were ruled out before memory and speed were computed."""

    def list_fitting_rows(self, sizes: ForcedSizes) -> list[CandidateRow]:
        """Return the rows of these sizes that fit into memory."""
        return [row for row in self.rows if row.fit.fits and sizes.allows(*count_parallel_sizes(row.layout))]


class Candidates(NamedTuple):
    """The layouts that may be the best, and those that were ruled out without computing their memory."""

    layouts: tuple[Layout, ...]
    ruled_out: tuple[Rejection, ...]


class UncutCandidate(NamedTuple):
    """A candidate whose layers are not cut yet."""

    pipelines: tuple[tuple[StageDevices, ...], ...]
    """The devices of each stage of the first pipeline, and of each replica."""
    expert_parallel: bool
    minimizes_sum: bool = False
    """Whether one stream visits the stages in turn, so that the sum of their times counts."""


def list_candidates(request: Request) -> Candidates:
    """List the layouts, the fastest hosts first, their layers cut; compute neither memory nor speed."""
    find_slowest_link = build_group_finder(request.find_link, request.find_group_link)
    forced = () if request.sizes == NO_FORCED_SIZES else _list_forced_candidates(request)
    candidates: dict[Layout | Rejection, None] = {}
    for candidate in dict.fromkeys((*_list_arrangements(request, find_slowest_link), *forced)):
        if isinstance(candidate, Rejection):
            candidates[candidate] = None
        else:
            candidates[_cut_candidate(request.workload, find_slowest_link, candidate)] = None
    return Candidates(
        tuple(candidate for candidate in candidates if isinstance(candidate, Layout)),
        tuple(candidate for candidate in candidates if isinstance(candidate, Rejection)),
    )


def list_expert_modes(shape: Shape, tensor_parallel: int) -> list[bool]:
    """Return which values of `expert_parallel` are possible: False cuts experts, True keeps them whole."""
    return [
        is_whole
        for is_whole in (False, True)
        if not list_refusals(shape, tensor_parallel, expert_parallel=is_whole)
        and (not is_whole or (tensor_parallel > 1 and shape.experts > 0))
    ]


def _list_arrangements(
    request: Request, find_slowest_link: SlowestLinkFinder
) -> Iterator[UncutCandidate | Rejection]:
    workload, shape, sizes, head = request.workload, request.workload.shape, request.sizes, request.head
    groups = [order_by_link(group, head, request.find_link) for group in group_hosts(request.devices)]
    for tensor_parallel in (
        _list_tensor_sizes(groups) if sizes.tensor_parallel is None else [sizes.tensor_parallel]
    ):
        if not (expert_modes := list_expert_modes(shape, tensor_parallel)):
            yield Rejection(
                f"tensor parallel {tensor_parallel}", "; ".join(list_refusals(shape, tensor_parallel))
            )
            continue
        units: list[list[StageDevices]] = []
        for group in groups:
            is_forced = sizes.tensor_parallel is not None
            candidates = list(
                _list_stage_devices(group, tensor_parallel, find_slowest_link, head, is_forced=is_forced)
            )
            group_units = [unit for unit in candidates if not isinstance(unit, Rejection)]
            units.append(sorted(group_units, key=lambda unit: unit[0].host != head))
            yield from (rejection for rejection in candidates if isinstance(rejection, Rejection))
        for pipelines in _list_device_pipelines(groups, units, sizes, head):
            sum_modes = (False, True) if _may_visit_in_turn(workload, pipelines) else (False,)
            for expert_parallel, minimizes_sum in product(expert_modes, sum_modes):
                yield UncutCandidate(pipelines, expert_parallel, minimizes_sum)


def _may_visit_in_turn(workload: Workload, pipelines: Sequence[Sequence[StageDevices]]) -> bool:
    """Return whether unlike stages take turns because there are fewer streams than stages.

    Then the fastest stage may carry as many layers as fit into it.
    """
    first_pipeline = pipelines[0]
    device_types = {(unit[0].kind, unit[0].name, unit[0].bandwidth_gb_s) for unit in first_pipeline}
    stage_count = len(first_pipeline) * len(pipelines)
    return len(device_types) > 1 and workload.goal != "context" and workload.load.concurrency < stage_count


def _list_tensor_sizes(groups: Sequence[HostGroup]) -> list[int]:
    """Return powers of two, and the devices of a host and of a whole group where they are few."""
    group_sizes = [group.devices_per_host * len(group.hosts) for group in groups]
    powers = {1 << exponent for exponent in range(max(group_sizes, default=0).bit_length())}
    whole = {*group_sizes, *(group.devices_per_host for group in groups)}
    return sorted(powers | {size for size in whole if size <= _MAX_SMALL_COUNT})


def _list_stage_devices(
    group: HostGroup,
    tensor_parallel: int,
    find_slowest_link: SlowestLinkFinder,
    head: str | None,
    *,
    is_forced: bool,
) -> Iterator[StageDevices | Rejection]:
    """Yield the stages that hosts of this group can form: several on one host, or one over several hosts.

    The head comes first, so that a remainder of hosts never leaves it out.
    """
    hosts = sorted(group.hosts, key=lambda host: host[0].host != head)
    if tensor_parallel <= group.devices_per_host:
        for host in hosts:
            starts = range(0, group.devices_per_host - tensor_parallel + 1, tensor_parallel)
            yield from (host[start : start + tensor_parallel] for start in starts)
        return
    hosts_per_stage = tensor_parallel // group.devices_per_host
    if tensor_parallel % group.devices_per_host:
        return
    for start in range(0, len(hosts) - hosts_per_stage + 1, hosts_per_stage):
        stage_hosts = hosts[start : start + hosts_per_stage]
        names = [host[0].host for host in stage_hosts]
        link = find_slowest_link(names)
        if isinstance(link, HostLink) and not (is_forced or is_fast_link(link)):
            link = (
                f"the link carries {link.mbit / 1000:g} Gbit/s, below {TENSOR_PARALLEL_MBIT / 1000:g}, "
                "and it is used twice for each layer"
            )
        if isinstance(link, str):
            yield Rejection(f"tensor parallel {tensor_parallel} over {join_names(names)}", link)
        else:
            yield tuple(device for host in stage_hosts for device in host)


def _list_device_pipelines(
    groups: Sequence[HostGroup], units: Sequence[Sequence[StageDevices]], sizes: ForcedSizes, head: str | None
) -> Iterator[tuple[tuple[StageDevices, ...], ...]]:
    """Yield the units of each pipeline and its replicas, the head's unit first and then the fastest."""
    for counts in list_stage_counts([len(group_units) for group_units in units], sizes.stages):
        used = [nth for nth, count in enumerate(counts) if count]
        if len({groups[nth].is_cpu for nth in used}) != 1:
            continue  # no engine runs on CPUs and GPUs at once
        max_replicas = min(len(units[nth]) // counts[nth] for nth in used)
        for replicas in sorted({1, max_replicas, min(max_replicas, sizes.replicas or 1)}):
            if sizes.allows(len(units[used[0]][0]), sum(counts), replicas):
                pipelines = []
                for replica in range(replicas):
                    stages = [
                        unit for nth in used for unit in units[nth][replica * counts[nth] :][: counts[nth]]
                    ]
                    pipelines.append(tuple(sorted(stages, key=lambda unit: unit[0].host != head)))
                yield tuple(pipelines)


_DEVICE_ORDERS: tuple[Callable[[Device], tuple[float, float, str, int]], ...] = (
    lambda device: (-device.bandwidth_gb_s, -device.memory_bytes, device.host, device.index),
    lambda device: (-device.memory_bytes, -device.bandwidth_gb_s, device.host, device.index),
)


def _list_forced_candidates(request: Request) -> Iterator[UncutCandidate]:
    """Yield pipelines of the fastest devices, and of the largest; a stage may have unlike devices."""
    sizes, shape = request.sizes, request.workload.shape
    tensor_parallel, replicas = sizes.tensor_parallel or 1, sizes.replicas or 1
    expert_modes = list_expert_modes(shape, tensor_parallel)
    for cpu, order in product((False, True), _DEVICE_ORDERS):
        devices = sorted((device for device in request.devices if (device.kind == "cpu") == cpu), key=order)
        max_stages = len(devices) // (tensor_parallel * replicas)
        max_small_stages = min(_MAX_SMALL_COUNT, max_stages, shape.layers)
        for stages in [sizes.stages] if sizes.stages else range(1, max_small_stages + 1):
            if stages <= max_stages:
                size = tensor_parallel * stages
                pipelines = tuple(
                    _group_into_stages(
                        devices[replica * size : (replica + 1) * size], tensor_parallel, request.head
                    )
                    for replica in range(replicas)
                )
                yield from (UncutCandidate(pipelines, mode) for mode in expert_modes)


def _group_into_stages(
    devices: Iterable[Device], tensor_parallel: int, head: str | None
) -> tuple[StageDevices, ...]:
    """Return the stages of these devices, host by host, the head's devices first."""
    hosts = group_by_host(devices)
    ordered = [device for host in sorted(hosts, key=lambda host: host != head) for device in hosts[host]]
    return tuple(
        tuple(ordered[start : start + tensor_parallel]) for start in range(0, len(ordered), tensor_parallel)
    )


def _cut_candidate(
    workload: Workload, find_slowest_link: SlowestLinkFinder, uncut: UncutCandidate
) -> Layout | Rejection:
    """Return the candidate as a layout, with its layers cut for its slowest replica; or why it is refused."""
    pipelines = uncut.pipelines
    first_pipeline = pipelines[0]
    hosts = dict.fromkeys(device.host for unit in first_pipeline for device in unit)
    name = f"a pipeline over {join_names(hosts)}"
    if reason := find_stage_refusal(workload.shape, len(first_pipeline)):
        return Rejection(name, reason)
    link: HostLink | None = None
    for units in pipelines:
        pipeline_link = find_slowest_link(device.host for unit in units for device in unit)
        if isinstance(pipeline_link, str):
            return Rejection(name, pipeline_link)
        link = pipeline_link and combine_links(link, pipeline_link)
    smallest_units = [
        min(units, key=lambda unit: min(device.memory_bytes for device in unit))
        for units in zip(*pipelines, strict=True)
    ]
    expert_parallel = uncut.expert_parallel
    layers = split_layers(
        workload,
        smallest_units,
        link,
        replicas=len(pipelines),
        expert_parallel=expert_parallel,
        minimizes_sum=uncut.minimizes_sum,
    )
    stages, *other_pipelines = (build_pipeline(units, layers) for units in pipelines)
    return Layout(stages, link, tuple(other_pipelines), expert_parallel)
