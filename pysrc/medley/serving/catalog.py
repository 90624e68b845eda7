"""List the known models, and how each would run on given hosts."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from medley import config, storage
from medley.errors import Problem
from medley.model import hub_cache, hub_checkpoint, shape
from medley.model.resolve import resolve_weights
from medley.planner import describe_layout
from medley.planner.candidates import NO_FORCED_SIZES
from medley.planner.choose import Choice
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.site import Site
from medley.schema import Model, Shape
from medley.serving.engine_sources import add_engine_gaps
from medley.values import Value

_MIN_DOWNLOAD_BYTES = 1_000_000
_MIN_USABLE_TOKENS_PER_S = 10.0
"""Tokens per second; an estimate: twice the speed at which people read English, about 250 words a minute."""


class CatalogEntry(Value):
    """A known model, and how it would run on a site."""

    name: str
    model: Model
    shape: Shape | None
    """The model's shape; None if neither its table nor a cached config.json has one."""
    choice: Choice | None
    """The best layout; None if it does not fit."""
    refusal: str | None
    """The reason why it does not fit, or could not be planned."""
    on_disk_bytes: int | None = None
    """The bytes of its files on this host; None without any."""
    single_hosts: tuple[str, ...] = ()
    """The hosts that can each hold the whole model."""

    @property
    def size_bytes(self) -> int | None:
        return self.shape.weights_bytes if self.shape else None

    @property
    def layout(self) -> str | None:
        return describe_layout(self.choice.layout) if self.choice else None


def measure_downloads() -> dict[str, int]:
    """Return the bytes of each downloaded repository, without those of which only small files were read."""
    return {
        name: size for name, size in sorted(hub_cache.measure_models().items()) if size >= _MIN_DOWNLOAD_BYTES
    }


def list_entries(
    site: Site, options: PlacementOptions, downloads: Mapping[str, int]
) -> Iterator[CatalogEntry]:
    """Yield every model by name, planned on the site, with its bytes in `downloads`; send no requests."""
    models = config.load_models()
    for name in sorted(models):
        weights = resolve_weights(name, models, storage.find_cache_folder())
        size_bytes = (
            storage.measure_disk_usage(Path(weights.target))
            if weights.is_local
            else downloads.get(weights.target)
        )
        yield _plan_entry(name, models[name], site, options).replace(on_disk_bytes=size_bytes or None)


def find_largest_usable_models(site: Site, options: PlacementOptions, count: int) -> list[CatalogEntry]:
    """Return the models with the most parameters whose predicted speed on the site is pleasant to use.

    The fastest comes first. Only as many models are planned as it takes; none on a CPU, whose speed is not
    predicted.
    """
    devices = [*site.list_devices()]
    memory_bytes = sum(item.total_bytes or item.memory_bytes for item in devices)
    shapes = {name: (model, _find_shape(name, model)) for name, model in config.load_models().items()}
    sizes = {
        name: model_shape.parameters
        for name, (_, model_shape) in shapes.items()
        if model_shape is not None and model_shape.weights_bytes < memory_bytes
    }
    usable: list[CatalogEntry] = []
    has_gpu = any(item.kind != "cpu" for item in devices)
    for name in sorted(sizes, key=lambda name: -sizes[name]) if has_gpu else ():
        entry = _plan_entry(name, shapes[name][0], site, options)
        prediction = entry.choice and entry.choice.prediction
        if prediction and prediction.is_calibrated and prediction.tokens_per_s >= _MIN_USABLE_TOKENS_PER_S:
            usable.append(entry)
        if len(usable) == count:
            break
    return sorted(usable, key=lambda item: -(item.choice.prediction.tokens_per_s if item.choice else 0))


def find_trial_model() -> str:
    """Return the name of the model for a first trial: it needs no GPU and no hub."""
    return next(name for name, model in config.load_models().items() if model.package)


def _find_shape(name: str, model: Model) -> Shape | None:
    record = hub_checkpoint.load_record(model.repository) if model.repository and not model.shape else None
    if record:
        return shape.compute_shape(record.checkpoint)
    has_shape = model.shape or model.made
    return (
        shape.find_shape(resolve_weights(name, {name: model}, storage.find_cache_folder()))
        if has_shape
        else None
    )


def _plan_entry(name: str, model: Model, site: Site, options: PlacementOptions) -> CatalogEntry:
    model_shape = _find_shape(name, model)
    if model_shape is None:
        return CatalogEntry(
            name, model, None, None, f"size unknown; to read it from the hub: medley plan {name}"
        )
    site = add_engine_gaps(site, options.engine, model)
    try:
        choice, refusal = place_model(model_shape, site, options), None
    except Problem as problem:
        choice, refusal = None, problem.cause.partition("\n")[0]
    # A site of one host was planned already; without forced sizes that plan is the host's own.
    is_single_host = len(site.hosts) == 1 and options.sizes == NO_FORCED_SIZES
    single_hosts = (
        tuple(site.hosts if choice else ())
        if is_single_host
        else tuple(_find_single_hosts(model_shape, site, options))
    )
    return CatalogEntry(name, model, model_shape, choice, refusal, single_hosts=single_hosts)


def _find_single_hosts(model_shape: Shape, site: Site, options: PlacementOptions) -> Iterator[str]:
    free_options = options.replace(sizes=NO_FORCED_SIZES, host_count=None)
    for host in site.hosts:
        with suppress(Problem):
            place_model(model_shape, site.select_hosts((host,)), free_options)
            yield host
