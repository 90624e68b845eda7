"""A chosen layout as text: each rank's layers and memory as a bar, the reasons, what was rejected."""

from collections.abc import Iterator

from medley.layout.choose import UNFITTED, Choice, P, predicted
from medley.layout.fit import Fit, Rank, gib
from medley.layout.shapes import Layout
from medley.layout.words import named, pipelines, wire

_BAR = 24
_SHOWN = 12
"""Rejected layouts that are listed; the rest are counted."""


def lines(model: str, choice: Choice[P], *, everything: bool = False) -> Iterator[str]:
    yield f"{model}: {named(choice.layout)}"
    yield ""
    yield from bars(choice.layout, choice.fit)
    if (link := choice.layout.link) is not None:
        seen = "measured" if link.measured else "stated"
        yield f"  between hosts: {' '.join(wire(link))}, {link.latency_us:g} µs one way, as {seen}"
    yield ""
    yield from predicted(choice.prediction)
    yield from (f"warning: {each}" for each in choice.warnings)
    yield ""
    yield from (f"why: {each}" for each in choice.why if not each.startswith(("predicted ", UNFITTED)))
    shown = choice.rejected if everything else choice.rejected[:_SHOWN]
    yield from (f"not: {each.what}: {each.because}" for each in shown)
    if len(shown) < len(choice.rejected):
        yield f"not: {len(choice.rejected) - len(shown)} more (--all shows them)"


def bars(layout: Layout, fit: Fit) -> Iterator[str]:
    """A line for each rank: layers, and its memory filled by weights (#), KV cache (=) and engine (-)."""
    placed = list(_layers(layout))
    names = [f"{rank.device.host} {rank.device.index}" for rank in fit.ranks]
    wide = max(map(len, names), default=0)
    layers = [placed[rank.replica][rank.stage] for rank in fit.ranks]
    deep = max(map(len, layers), default=0)
    for rank, name, which in zip(fit.ranks, names, layers, strict=True):
        yield f"  {name:<{wide}}  {which:<{deep}}  {bar(rank)}  {_memory(rank)}"


def bar(rank: Rank) -> str:
    whole = max(1, rank.device.memory_bytes)
    parts = (("#", rank.weights_bytes), ("=", rank.kv_bytes), ("-", rank.overhead_bytes))
    filled, drawn = 0, ""
    for sign, size in parts:
        filled += size
        drawn += sign * (round(_BAR * min(filled, whole) / whole) - len(drawn))
    return f"[{drawn:<{_BAR}}]"


def _memory(rank: Rank) -> str:
    return (
        f"{gib(rank.total_bytes)} of {gib(rank.device.memory_bytes)} GiB: weights {gib(rank.weights_bytes)}, "
        f"KV cache {gib(rank.kv_bytes)}, engine {gib(rank.overhead_bytes)}"
    )


def _layers(layout: Layout) -> Iterator[list[str]]:
    """Of each pipeline, the layers of each stage: `layers 1-24`."""
    for stages in pipelines(layout):
        first, found = 1, []
        for stage in stages:
            found.append(f"layers {first}-{first + stage.layers - 1}")
            first += stage.layers
        yield found
