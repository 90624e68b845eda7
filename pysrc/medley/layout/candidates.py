"""Candidates are the layouts of a model over some hosts that are worth a look."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from medley.layout.classes import Class, classes
from medley.layout.counts import counts
from medley.layout.limits import refusals, too_many_stages
from medley.layout.shapes import Device, Layout, Link, Stage
from medley.layout.split import By, Timed, split
from medley.layout.wires import FAST_MBIT, Apart, LinkOf, Wires, fast, slower
from medley.layout.words import listed
from medley.tables import Shape

__all__ = ["Asked", "Candidates", "Ruled", "Sizes", "candidates", "split"]

_FEW = 8


@dataclass(frozen=True)
class Sizes:
    """What was forced: tensor parallel, stages and replicas; None leaves it to us."""

    tensor: int | None = None
    stages: int | None = None
    replicas: int | None = None

    def allow(self, tensor: int, stages: int, replicas: int) -> bool:
        pairs = ((self.tensor, tensor), (self.stages, stages), (self.replicas, replicas))
        return all(wanted in {None, size} for wanted, size in pairs)


@dataclass(frozen=True)
class Asked:
    """What a layout has to carry."""

    context: int
    concurrency: int = 1
    by: By = "speed"
    head: str | None = None
    """The host where the engine starts: its stage is the first."""
    sizes: Sizes = Sizes()
    timed: Timed | None = None
    """How fast stages are; None where layers are cut by memory alone."""


@dataclass(frozen=True)
class Ruled:
    """Out before any arithmetic of memory or speed."""

    what: str
    because: str


@dataclass(frozen=True)
class Candidates:
    layouts: tuple[Layout, ...]
    ruled: tuple[Ruled, ...]


Unit = tuple[Device, ...]
"""The devices of one stage."""


def candidates(shape: Shape, devices: Iterable[Device], link_of: LinkOf, asked: Asked) -> Candidates:
    """The fastest hosts first; whether a layout fits, and how fast it is, is not asked here."""
    found, wires = classes(devices), Wires(link_of)
    every = [
        each
        for tensor in _tensors(found, asked.sizes)
        for each in _of_tensor(shape, found, tensor, wires, asked)
    ]
    return Candidates(
        layouts=tuple(each for each in every if isinstance(each, Layout)),
        ruled=tuple(dict.fromkeys(each for each in every if isinstance(each, Ruled))),
    )


def _tensors(found: Sequence[Class], sizes: Sizes) -> list[int]:
    if sizes.tensor is not None:
        return [sizes.tensor]
    most = max((one.each * len(one.hosts) for one in found), default=0)
    powers = {1 << nth for nth in range(most.bit_length())}
    whole = {size for one in found for size in (one.each, one.each * len(one.hosts)) if size <= _FEW}
    return sorted(powers | whole)


def _of_tensor(
    shape: Shape, found: Sequence[Class], tensor: int, wires: Wires, asked: Asked
) -> Iterator[Layout | Ruled]:
    ways = [way for way in (False, True) if _runs(shape, tensor, expert_parallel=way)]
    if not ways:
        yield Ruled(f"tensor parallel {tensor}", "; ".join(refusals(shape, tensor)))
        return
    units: list[list[Unit]] = []
    for one in found:
        made = list(_units(_from(one, asked.head), tensor, wires, forced=asked.sizes.tensor is not None))
        whole = [_headed(each, asked.head) for each in made if not isinstance(each, Ruled)]
        units.append(sorted(whole, key=lambda unit: unit[0].host != asked.head))
        yield from (each for each in made if isinstance(each, Ruled))
    for pipelines in _pipelines(found, units, asked):
        for way in ways:
            yield from dict.fromkeys(
                layout(shape, pipelines, wires, each, expert_parallel=way) for each in _cuts(pipelines, asked)
            )


def _cuts(pipelines: Sequence[Sequence[Unit]], asked: Asked) -> list[Asked]:
    """With fewer streams than stages, unlike ones take turns: then the fastest may carry all it can."""
    stages = pipelines[0]
    unlike = len({(unit[0].kind, unit[0].name, unit[0].bandwidth_gb_s) for unit in stages}) > 1
    turns = asked.by == "speed" and unlike and asked.concurrency < len(stages) * len(pipelines)
    return [asked, replace(asked, by="turns")] if turns else [asked]


def _runs(shape: Shape, tensor: int, *, expert_parallel: bool) -> bool:
    if expert_parallel and (tensor == 1 or not shape.experts):
        return False
    return not refusals(shape, tensor, expert_parallel=expert_parallel)


def _units(one: Class, tensor: int, wires: Wires, *, forced: bool) -> Iterator[Unit | Ruled]:
    """Stages that hosts of this class can make: several on one host, one on each, or one over several."""
    if tensor <= one.each:
        for host in one.hosts:
            yield from (host[first : first + tensor] for first in range(0, one.each - tensor + 1, tensor))
        return
    span = tensor // one.each
    if tensor % one.each:
        return
    for first in range(0, len(one.hosts) - span + 1, span):
        hosts = one.hosts[first : first + span]
        names = [host[0].host for host in hosts]
        link = wires.between(names)
        if isinstance(link, Apart) or not (forced or fast(link)):
            yield Ruled(f"tensor parallel {tensor} over {listed(names)}", _unwired(link))
        else:
            yield tuple(device for host in hosts for device in host)


def _from(one: Class, head: str | None) -> Class:
    """With the engine's own host first: of hosts that do not come out even, it is not the one left over."""
    return replace(one, hosts=tuple(sorted(one.hosts, key=lambda host: host[0].host != head)))


def _headed(unit: Unit, head: str | None) -> Unit:
    """Its first rank is the engine's own host's, where that is in it."""
    return tuple(sorted(unit, key=lambda device: device.host != head))


def _unwired(link: Link | Apart | None) -> str:
    if isinstance(link, Apart):
        return f"{link.hosts[0]} and {link.hosts[1]} {link.because}"
    carried = link.mbit if link else 0
    return (
        f"the link carries {carried / 1000:g} Gbit/s, below {FAST_MBIT / 1000:g}, "
        "and it is used twice for each layer"
    )


def _pipelines(
    found: Sequence[Class], units: Sequence[Sequence[Unit]], asked: Asked
) -> Iterator[tuple[tuple[Unit, ...], ...]]:
    """Which units make up a pipeline, and the same again for each of its replicas."""
    for chosen in counts([len(each) for each in units], asked.sizes.stages):
        used = [nth for nth, count in enumerate(chosen) if count]
        if len({found[nth].cpu for nth in used}) != 1:
            continue  # no engine runs on CPUs and GPUs at once
        most = min(len(units[nth]) // chosen[nth] for nth in used)
        for replicas in sorted({1, most, min(most, asked.sizes.replicas or 1)}):
            if asked.sizes.allow(len(units[used[0]][0]), sum(chosen), replicas):
                yield tuple(_pipeline(units, chosen, copy, asked.head) for copy in range(replicas))


def _pipeline(
    units: Sequence[Sequence[Unit]], many: Sequence[int], copy: int, head: str | None
) -> tuple[Unit, ...]:
    """The head's stage first, then the fastest."""
    chosen = [
        unit
        for each, count in zip(units, many, strict=True)
        for unit in each[copy * count : (copy + 1) * count]
    ]
    return tuple(sorted(chosen, key=lambda unit: unit[0].host != head))


def layout(
    shape: Shape,
    pipelines: Sequence[Sequence[Unit]],
    wires: Wires,
    asked: Asked,
    *,
    expert_parallel: bool = False,
) -> Layout | Ruled:
    """These units as a layout, its layers cut for its slowest replica."""
    first = pipelines[0]
    where = listed(dict.fromkeys(device.host for unit in first for device in unit))
    if because := too_many_stages(shape, len(first)):
        return Ruled(f"a pipeline over {where}", because)
    link: Link | None = None
    for units in pipelines:
        found = wires.between(device.host for unit in units for device in unit)
        if isinstance(found, Apart):
            return Ruled(f"a pipeline over {where}", _unwired(found))
        link = found if link is None or found is None else slower(link, found)
    weakest = [min(units, key=_memory) for units in zip(*pipelines, strict=True)]
    each = -(-asked.concurrency // len(pipelines))
    layers = split(
        shape,
        weakest,
        context=asked.context,
        concurrency=each,
        by=asked.by,
        expert_parallel=expert_parallel,
        seconds=asked.timed and asked.timed(-(-each // len(first)), link),
    )
    stages = [
        tuple(Stage(unit, count) for unit, count in zip(units, layers, strict=True)) for units in pipelines
    ]
    return Layout(stages[0], link, tuple(stages[1:]), expert_parallel)


def _memory(unit: Unit) -> int:
    return min(device.memory_bytes for device in unit)
