"""List the known models, and how each would run on given hosts."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from medley import config, storage
from medley.errors import Problem
from medley.model import hub_cache, hub_checkpoint, shape
from medley.model.resolve import weights
from medley.planner import named
from medley.planner.candidates import FREE
from medley.planner.choose import Choice
from medley.planner.placement import PlacementOptions, placement
from medley.planner.topology import Topology
from medley.schema import Model, Shape
from medley.serving.alternatives import of_model

_LEAST_BYTES = 1_000_000


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
        return named(self.choice.layout) if self.choice else None


def downloaded() -> dict[str, int]:
    """Return the bytes of each downloaded repository; the few small files of a look at the hub are none."""
    return {name: size for name, size in sorted(hub_cache.sizes().items()) if size >= _LEAST_BYTES}


def entries(site: Topology, wanted: PlacementOptions, here: Mapping[str, int]) -> Iterator[Entry]:
    """Yield every model by name, planned on the site, with its bytes of `downloaded`; sends no requests."""
    known = config.models()
    for name in sorted(known):
        found = weights(name, known, storage.cache())
        on_disk = storage.size_bytes(Path(found.target)) if found.local else here.get(found.target)
        yield replace(_entry(name, known[name], site, wanted), on_disk_bytes=on_disk or None)


def _entry(name: str, model: Model, site: Topology, wanted: PlacementOptions) -> Entry:
    look = hub_checkpoint.kept(model.repository) if model.repository and not model.shape else None
    if look:
        made = shape.shape_of_config(look.checkpoint)
    elif model.shape or model.made:
        made = shape.shape(weights(name, {name: model}, storage.cache()))
    else:
        return Entry(name, model, None, None, f"size unknown; to read it from the hub: medley plan {name}")
    site = of_model(site, wanted.engine, model)
    try:
        choice, lacks = placement(made, site, wanted), None
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
            placement(made, site.only((host,)), free)
            yield host
