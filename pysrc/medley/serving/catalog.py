"""List the known models, and how each would run on given hosts."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from medley import config, storage
from medley.errors import Problem
from medley.model import hub_cache, hub_checkpoint, shape
from medley.model.resolve import resolve_weights
from medley.planner import describe_layout
from medley.planner.candidates import FREE
from medley.planner.choose import Choice
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.topology import Topology
from medley.schema import Model, Shape
from medley.serving.engine_sources import add_engine_gaps

_LEAST_BYTES = 1_000_000
_USABLE_TOKENS_S = 10.0
"""Judgement: twice the speed at which a person reads English, about 250 words a minute."""


@dataclass(frozen=True)
class Entry:
    name: str
    model: Model
    shape: Shape | None
    """None where neither its table nor a cached config.json gives one."""
    choice: Choice | None
    lacks: str | None
    on_disk_bytes: int | None = None
    """The size of its files on this host; None without any."""
    alone: tuple[str, ...] = ()
    """The hosts that can each hold the whole model."""

    @property
    def size_bytes(self) -> int | None:
        return self.shape.weights_bytes if self.shape else None

    @property
    def layout(self) -> str | None:
        return describe_layout(self.choice.layout) if self.choice else None


def downloaded() -> dict[str, int]:
    """Return the bytes of each downloaded repository; the few small files of a look at the hub are none."""
    return {name: size for name, size in sorted(hub_cache.measure_models().items()) if size >= _LEAST_BYTES}


def entries(site: Topology, wanted: PlacementOptions, here: Mapping[str, int]) -> Iterator[Entry]:
    """Yield every model by name, planned on the site, with its bytes of `downloaded`; sends no requests."""
    known = config.models()
    for name in sorted(known):
        found = resolve_weights(name, known, storage.cache())
        on_disk = storage.size_bytes(Path(found.target)) if found.is_local else here.get(found.target)
        yield replace(_entry(name, known[name], site, wanted), on_disk_bytes=on_disk or None)


def largest_usable(site: Topology, wanted: PlacementOptions, count: int) -> list[Entry]:
    """Return the models with the most parameters whose predicted speed on the site is pleasant to use.

    The fastest comes first. Only as many models are planned as it takes; none on a CPU, whose speed is not
    predicted.
    """
    devices = [*site.list_devices()]
    room = sum(each.total_bytes or each.memory_bytes for each in devices)
    shapes = {name: (model, _shape(name, model)) for name, model in config.models().items()}
    sizes = {
        name: made.parameters
        for name, (_, made) in shapes.items()
        if made is not None and made.weights_bytes < room
    }
    usable: list[Entry] = []
    has_gpu = any(each.kind != "cpu" for each in devices)
    for name in sorted(sizes, key=lambda name: -sizes[name]) if has_gpu else ():
        entry = _entry(name, shapes[name][0], site, wanted)
        told = entry.choice and entry.choice.prediction
        if told and told.fitted and told.tokens_per_s >= _USABLE_TOKENS_S:
            usable.append(entry)
        if len(usable) == count:
            break
    return sorted(usable, key=lambda each: -(each.choice.prediction.tokens_per_s if each.choice else 0))


def to_try() -> str:
    """Return the name of the model for trying medley: it needs no GPU and no hub."""
    return next(name for name, model in config.models().items() if model.package)


def _shape(name: str, model: Model) -> Shape | None:
    look = hub_checkpoint.load_record(model.repository) if model.repository and not model.shape else None
    if look:
        return shape.compute_shape(look.checkpoint)
    known = model.shape or model.made
    return shape.find_shape(resolve_weights(name, {name: model}, storage.cache())) if known else None


def _entry(name: str, model: Model, site: Topology, wanted: PlacementOptions) -> Entry:
    made = _shape(name, model)
    if made is None:
        return Entry(name, model, None, None, f"size unknown; to read it from the hub: medley plan {name}")
    site = add_engine_gaps(site, wanted.engine, model)
    try:
        choice, lacks = place_model(made, site, wanted), None
    except Problem as problem:
        choice, lacks = None, problem.cause.partition("\n")[0]
    # A single host is all of them; forced sizes do not count.
    all_of_them = len(site.hosts) == 1 and wanted.sizes == FREE
    alone = tuple(site.hosts if choice else ()) if all_of_them else tuple(_alone(made, site, wanted))
    return Entry(name, model, made, choice, lacks, alone=alone)


def _alone(made: Shape, site: Topology, wanted: PlacementOptions) -> Iterator[str]:
    free = replace(wanted, sizes=FREE, hosts=None)
    for host in site.hosts:
        with suppress(Problem):
            place_model(made, site.keep_hosts((host,)), free)
            yield host
