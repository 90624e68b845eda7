"""A layout as text."""

from collections.abc import Iterator
from itertools import accumulate

from medley.planner import Layout, named, pipelines, speed_and_transport
from medley.planner.choose import UNFITTED, Choice
from medley.planner.fit import Fit, Rank, gib
from medley.planner.prediction import Prediction

_BAR = 24
_SHOWN = 12
"""Rejected layouts that are listed; the rest are counted."""


def lines(model: str, choice: Choice, *, everything: bool = False) -> Iterator[str]:
    yield f"{model}: {named(choice.layout)}"
    yield ""
    yield from bars(choice.layout, choice.fit)
    if (link := choice.layout.link) is not None:
        speed, seen = " ".join(speed_and_transport(link)), "measured" if link.measured else "stated"
        yield f"  between hosts: {speed}, {link.latency_us:g} µs one way, as {seen}"
    if choice.cabling.groups:
        yield f"  cabling: {choice.cabling}"
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
    layers = list(layers_of(layout))
    rows = [
        (f"{rank.device.host} {rank.device.index}", layers[rank.replica][rank.stage], rank)
        for rank in fit.ranks
    ]
    wide = max((len(name) for name, _, _ in rows), default=0)
    deep = max((len(which) for _, which, _ in rows), default=0)
    for name, which, rank in rows:
        memory = f"{gib(rank.total_bytes)} of {gib(rank.device.memory_bytes)} GiB"
        parts = f"weights {gib(rank.weights_bytes)}, KV cache {gib(rank.kv_bytes)}"
        engine = f"engine {gib(rank.overhead_bytes)}"
        yield f"  {name:<{wide}}  {which:<{deep}}  {_bar(rank)}  {memory}: {parts}, {engine}"


def _bar(rank: Rank) -> str:
    whole = max(1, rank.device.memory_bytes)
    filled, drawn = 0, ""
    for sign, size in (("#", rank.weights_bytes), ("=", rank.kv_bytes), ("-", rank.overhead_bytes)):
        filled += size
        drawn += sign * (round(_BAR * min(filled, whole) / whole) - len(drawn))
    return f"[{drawn:<{_BAR}}]"


def layers_of(layout: Layout) -> Iterator[list[str]]:
    """Of each pipeline, the layers of each stage: `layers 1-24`."""
    for stages in pipelines(layout):
        ends = list(accumulate(stage.layers for stage in stages))
        yield [f"layers {end - stage.layers + 1}-{end}" for stage, end in zip(stages, ends, strict=True)]


def predicted(told: Prediction) -> tuple[str, ...]:
    """A plan's speed in words: how fast, and what bounds it."""
    if not told.fitted:
        return (UNFITTED,)
    rate = f"predicted: {told.tokens_per_s:.1f} tokens/s ({told.low:.1f} to {told.high:.1f})"
    soonest, latest = told.ttft_range_s
    first_token = f"first token after {told.ttft_s:.2f} s ({soonest:.2f} to {latest:.2f})"
    speeds, prompts = told.held_out, told.held_out_prompts
    first, second = (f"{each.inside} of {each.rows}" for each in (speeds, prompts))
    return (
        f"{rate}, {told.per_stream:.1f} for each stream, {first_token}",
        f"ranges: of measurements held out from the fit, {first} lay in the first, {second} in the second",
        f"bound by: {told.bound}",
    )


def printable(words: str) -> str:
    """XML has no place for control characters, and those that turn the writing round would mislead."""
    return " ".join("".join(each if each.isprintable() or each.isspace() else "�" for each in words).split())
