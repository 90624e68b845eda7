"""Layouts worth a look, and those of the sizes the user forced."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from medley.planner import (
    FAST_MBIT,
    Device,
    GroupLink,
    HostLink,
    Layout,
    LinkOf,
    by_host,
    fast,
    group_links,
    listed,
    pipeline,
    slower,
)
from medley.planner import sizes as sizes_of
from medley.planner.fit import Fit
from medley.planner.host_order import HostGroup, counts, host_groups, near_first
from medley.planner.partition import Workload, refusals, split, too_many_stages
from medley.planner.prediction import Prediction
from medley.schema import Shape

_FEW = 8
Unit = tuple[Device, ...]
"""The devices of one stage."""


@dataclass(frozen=True)
class Sizes:
    """Tensor parallel, stages and replicas that the user forced; None leaves one to the planner."""

    tensor: int | None = None
    stages: int | None = None
    replicas: int | None = None

    def allow(self, *found: int) -> bool:
        pairs = zip((self.tensor, self.stages, self.replicas), found, strict=True)
        return all(wanted in {None, size} for wanted, size in pairs)

    def __str__(self) -> str:
        """As switches."""
        pairs = (("--tp", self.tensor), ("--pp", self.stages), ("--dp", self.replicas))
        return " ".join(f"{flag} {size}" for flag, size in pairs if size is not None)


FREE = Sizes()


@dataclass(frozen=True)
class Request:
    """The work that a layout is sought for, and what it can be made of."""

    work: Workload
    devices: tuple[Device, ...]
    link_of: LinkOf
    sizes: Sizes = FREE
    head: str | None = None
    """The host where the engine starts: its stage is the first."""
    refusal: Callable[[Layout], str | None] = lambda _: None
    """Why a layout is not what was asked for."""
    of_group: GroupLink | None = None


@dataclass(frozen=True)
class Rejected:
    """A candidate that is not taken."""

    what: str
    because: str
    layout: Layout | None = None
    """Of one that fits, which has also a score, tokens per second, and `because` without that: a note."""
    score: float = 0
    note: str = ""


@dataclass(frozen=True)
class Evaluated:
    """A candidate with its memory and speed: one row of the planner's table."""

    layout: Layout
    fit: Fit
    prediction: Prediction
    score: float
    usual: bool
    """It is a candidate where no sizes are forced, too."""


@dataclass(frozen=True)
class Evaluation:
    """Every candidate of one request, evaluated once: choice, reasons and remedies are read from it."""

    request: Request
    rows: tuple[Evaluated, ...]
    ruled: tuple[Rejected, ...]
    """Candidates of the sizes asked for that were ruled out before any arithmetic of memory or speed."""

    def fitting(self, sizes: Sizes) -> list[Evaluated]:
        """Rows of these sizes that fit."""
        return [row for row in self.rows if row.fit.fits and sizes.allow(*sizes_of(row.layout))]


class Candidates(NamedTuple):
    layouts: tuple[Layout, ...]
    ruled: tuple[Rejected, ...]


class Uncut(NamedTuple):
    """A candidate whose layers are not cut yet."""

    pipelines: tuple[tuple[Unit, ...], ...]
    """A pipeline, and the same again for each of its replicas."""
    expert_parallel: bool
    turns: bool = False
    """One stream visits its stages in turn."""


def candidates(request: Request) -> Candidates:
    """List layouts, the fastest hosts first, each cut once; neither memory nor speed counts yet."""
    between = group_links(request.link_of, request.of_group)
    forced = () if request.sizes == FREE else _forced(request)
    made = dict.fromkeys(
        each if isinstance(each, Rejected) else _cut(request.work, between, each)
        for each in dict.fromkeys((*_arranged(request, between), *forced))
    )
    return Candidates(
        tuple(each for each in made if isinstance(each, Layout)),
        tuple(each for each in made if isinstance(each, Rejected)),
    )


def expert_ways(shape: Shape, tensor: int) -> list[bool]:
    """Whether experts may be cut (False), stay whole on a rank (True), or both."""
    return [
        whole
        for whole in (False, True)
        if not refusals(shape, tensor, expert_parallel=whole)
        and (not whole or (tensor > 1 and shape.experts > 0))
    ]


_Between = Callable[[Iterable[str]], HostLink | str | None]


def _arranged(request: Request, between: _Between) -> Iterator[Uncut | Rejected]:
    work, shape, sizes, head = request.work, request.work.shape, request.sizes, request.head
    groups = [near_first(group, head, request.link_of) for group in host_groups(request.devices)]
    for tensor in _tensors(groups) if sizes.tensor is None else [sizes.tensor]:
        if not (able := expert_ways(shape, tensor)):
            yield Rejected(f"tensor parallel {tensor}", "; ".join(refusals(shape, tensor)))
            continue
        units: list[list[Unit]] = []
        for group in groups:
            made = list(_units(group, tensor, between, head, forced=sizes.tensor is not None))
            whole = [each for each in made if not isinstance(each, Rejected)]
            units.append(sorted(whole, key=lambda unit: unit[0].host != head))
            yield from (each for each in made if isinstance(each, Rejected))
        for pipelines in _pipelines(groups, units, sizes, head):
            # With fewer streams than stages, unlike ones take turns: then the fastest may carry all it can.
            first = pipelines[0]
            unlike = len({(unit[0].kind, unit[0].name, unit[0].bandwidth_gb_s) for unit in first}) > 1
            few = work.goal != "context" and work.load.concurrency < len(first) * len(pipelines)
            ways = product(able, (False, True) if unlike and few else (False,))
            yield from (Uncut(pipelines, way, turns) for way, turns in ways)


def _tensors(groups: Sequence[HostGroup]) -> list[int]:
    most = max((group.each * len(group.hosts) for group in groups), default=0)
    whole = {size for group in groups for size in (group.each, group.each * len(group.hosts)) if size <= _FEW}
    return sorted({1 << nth for nth in range(most.bit_length())} | whole)


def _units(
    group: HostGroup, tensor: int, between: _Between, head: str | None, *, forced: bool
) -> Iterator[Unit | Rejected]:
    """Stages that hosts of this group can make: several on one host, one on each, or one over several.

    The engine's own host comes first, so that where hosts do not come out even it is not the one left over.
    """
    hosts = sorted(group.hosts, key=lambda host: host[0].host != head)
    if tensor <= group.each:
        for host in hosts:
            yield from (host[first : first + tensor] for first in range(0, group.each - tensor + 1, tensor))
        return
    span = tensor // group.each
    if tensor % group.each:
        return
    for first in range(0, len(hosts) - span + 1, span):
        chosen = hosts[first : first + span]
        names = [host[0].host for host in chosen]
        link = between(names)
        if isinstance(link, HostLink) and not (forced or fast(link)):
            link = (
                f"the link carries {link.mbit / 1000:g} Gbit/s, below {FAST_MBIT / 1000:g}, "
                "and it is used twice for each layer"
            )
        if isinstance(link, str):
            yield Rejected(f"tensor parallel {tensor} over {listed(names)}", link)
        else:
            yield tuple(device for host in chosen for device in host)


def _pipelines(
    groups: Sequence[HostGroup], units: Sequence[Sequence[Unit]], sizes: Sizes, head: str | None
) -> Iterator[tuple[tuple[Unit, ...], ...]]:
    """Which units make up a pipeline, the head's first and then the fastest, and its replicas."""
    for chosen in counts([len(each) for each in units], sizes.stages):
        used = [nth for nth, count in enumerate(chosen) if count]
        if len({groups[nth].cpu for nth in used}) != 1:
            continue  # no engine runs on CPUs and GPUs at once
        most = min(len(units[nth]) // chosen[nth] for nth in used)
        for replicas in sorted({1, most, min(most, sizes.replicas or 1)}):
            if sizes.allow(len(units[used[0]][0]), sum(chosen), replicas):
                stages = (
                    [unit for nth in used for unit in units[nth][copy * chosen[nth] :][: chosen[nth]]]
                    for copy in range(replicas)
                )
                yield tuple(tuple(sorted(each, key=lambda unit: unit[0].host != head)) for each in stages)


_ORDERS: tuple[Callable[[Device], tuple[float, float, str, int]], ...] = (
    lambda device: (-device.bandwidth_gb_s, -device.memory_bytes, device.host, device.index),
    lambda device: (-device.memory_bytes, -device.bandwidth_gb_s, device.host, device.index),
)


def _forced(request: Request) -> Iterator[Uncut]:
    """The fastest devices, and the largest, as they come: a stage may have unlike ones."""
    sizes, shape = request.sizes, request.work.shape
    tensor, replicas = sizes.tensor or 1, sizes.replicas or 1
    able = expert_ways(shape, tensor)
    for cpu, order in product((False, True), _ORDERS):
        ordered = sorted((one for one in request.devices if (one.kind == "cpu") == cpu), key=order)
        fit_in = len(ordered) // (tensor * replicas)
        for stages in [sizes.stages] if sizes.stages else range(1, min(_FEW, fit_in, shape.layers) + 1):
            if stages <= fit_in:
                size = tensor * stages
                chosen = tuple(
                    _stages(ordered[copy * size : (copy + 1) * size], tensor, request.head)
                    for copy in range(replicas)
                )
                yield from (Uncut(chosen, way) for way in able)


def _stages(chosen: Iterable[Device], tensor: int, head: str | None) -> tuple[Unit, ...]:
    """Devices of one host stay together, the head's first."""
    hosts = by_host(chosen)
    ordered = [device for host in sorted(hosts, key=lambda host: host != head) for device in hosts[host]]
    return tuple(tuple(ordered[at : at + tensor]) for at in range(0, len(ordered), tensor))


def _cut(work: Workload, between: _Between, uncut: Uncut) -> Layout | Rejected:
    """As a layout, its layers cut for its slowest replica."""
    pipelines = uncut.pipelines
    first = pipelines[0]
    what = f"a pipeline over {listed(dict.fromkeys(device.host for unit in first for device in unit))}"
    if because := too_many_stages(work.shape, len(first)):
        return Rejected(what, because)
    link: HostLink | None = None
    for units in pipelines:
        found = between(device.host for unit in units for device in unit)
        if isinstance(found, str):
            return Rejected(what, found)
        link = found and slower(link, found)
    smallest = [
        min(units, key=lambda unit: min(device.memory_bytes for device in unit))
        for units in zip(*pipelines, strict=True)
    ]
    whole, turns = uncut.expert_parallel, uncut.turns
    layers = split(work, smallest, link, replicas=len(pipelines), expert_parallel=whole, turns=turns)
    stages, *copies = (pipeline(units, layers) for units in pipelines)
    return Layout(stages, link, tuple(copies), whole)
