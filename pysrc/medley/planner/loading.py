"""Predict how long weights take to load, and choose the engine's loader."""

from dataclasses import dataclass

from medley.host.facts import GIB
from medley.planner import hosts_of
from medley.planner.choose import Choice
from medley.planner.fit import gib
from medley.planner.plan import Arguments
from medley.planner.topology import Topology
from medley.schema import EngineName


@dataclass(frozen=True)
class LoadTime:
    """Of the slowest rank with a published rate; other kinds of host have none."""

    seconds: float
    host: str
    weights_bytes: int
    rate_gb_s: float
    source: str

    def __str__(self) -> str:
        minutes = "under a minute" if self.seconds < 60 else f"about {self.seconds / 60:.0f} min"  # noqa: PLR2004 - a minute
        size = f"{self.weights_bytes / 1e9:.1f} GB at {self.rate_gb_s:g} GB/s"
        return f"loading: {minutes}: {size} on {self.host} ({self.source})"


def load_time(choice: Choice, site: Topology) -> LoadTime | None:
    """Return how long the engine reads weights; None where no rank's kind of host has a published rate."""
    found = [
        LoadTime(rank.weights_bytes / 1e9 / of.gb_s, rank.device.host, rank.weights_bytes, of.gb_s, of.source)
        for rank in choice.fit.ranks
        if (of := site.loading(rank.device.host)).gb_s and of.source
    ]
    return max(found, key=lambda each: each.seconds, default=None)


def loader_arguments(choice: Choice, site: Topology, engine: EngineName) -> Arguments:
    """Return the flags of the loader that this kind of host has, where its buffer fits beside the weights.

    Images and a user's own virtualenvs may lack its package, so it is for environments of locks/.
    With several ranks vLLM's fastsafetensors reads each file on one rank and sends it to the others (0.33,
    weight_utils.py, fastsafetensors_weights_iterator): that gains nothing over a network, so it is for one.
    """
    if len(choice.fit.ranks) != 1 or not site.locked(hosts_of(choice.layout)[0]):
        return ()
    rank = choice.fit.ranks[0]
    of = site.loading(rank.device.host)
    loader = of.loader.get(engine)
    # The KV cache is allocated when the buffer is gone.
    if loader is None or rank.weights_bytes + of.buffer_gib * GIB > rank.device.memory_bytes:
        return ()
    why = f"it reads past the page cache; its buffer, {of.buffer_gib:g} GiB, fits next to the weights"
    return ((("--load-format", loader), f"{why} ({gib(rank.weights_bytes)} GiB)"),)
