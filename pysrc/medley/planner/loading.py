"""Predict how long weights take to load, and choose the engine's loader."""

from medley.host.facts import GIB
from medley.planner import list_hosts
from medley.planner.choose import Choice
from medley.planner.fit import format_gib
from medley.planner.plan import Arguments
from medley.planner.site import Site
from medley.schema import EngineName
from medley.values import Value


class LoadTime(Value):
    """The time in which the slowest rank loads its weights, at the published rate of its kind of host."""

    seconds: float
    host: str
    weights_bytes: int
    rate_gb_s: float
    source: str

    def __str__(self) -> str:
        minutes = "under a minute" if self.seconds < 60 else f"about {self.seconds / 60:.0f} min"  # noqa: PLR2004 - a minute
        size = f"{self.weights_bytes / 1e9:.1f} GB at {self.rate_gb_s:g} GB/s"
        return f"loading: {minutes}: {size} on {self.host} ({self.source})"


def compute_load_time(choice: Choice, site: Site) -> LoadTime | None:
    """Return how long the engine reads weights; None where no rank's kind of host has a published rate."""
    times = []
    for rank in choice.fit.ranks:
        host, size_bytes = rank.device.host, rank.weights_bytes
        loading = site.find_loading(host)
        if loading.gb_s and loading.source:
            seconds = size_bytes / 1e9 / loading.gb_s
            times.append(LoadTime(seconds, host, size_bytes, loading.gb_s, loading.source))
    return max(times, key=lambda time: time.seconds, default=None)


def list_loader_arguments(choice: Choice, site: Site, engine: EngineName) -> Arguments:
    """Return the flags of the loader of this kind of host, if its buffer fits next to the weights.

    Images and a user's own virtualenvs may lack its package, so it is for environments of locks/.
    With several ranks vLLM's fastsafetensors reads each file on one rank and sends it to the others (0.33,
    weight_utils.py, fastsafetensors_weights_iterator): that gains nothing over a network, so it is for one.
    """
    if len(choice.fit.ranks) != 1 or not site.is_engine_locked(list_hosts(choice.layout)[0]):
        return ()
    rank = choice.fit.ranks[0]
    loading = site.find_loading(rank.device.host)
    loader = loading.loader.get(engine)
    # The KV cache is allocated when the buffer is gone.
    if loader is None or rank.weights_bytes + loading.buffer_gib * GIB > rank.device.memory_bytes:
        return ()
    why = f"it reads past the page cache; its buffer, {loading.buffer_gib:g} GiB, fits next to the weights"
    return ((("--load-format", loader), f"{why} ({format_gib(rank.weights_bytes)} GiB)"),)
