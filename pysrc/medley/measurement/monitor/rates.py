"""Compute rates between two samples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from medley.measurement.monitor import EngineSample, GpuSample, LinkSample, MemorySample, Ray, Sample

_DATA = ("rx_bytes", "tx_bytes")


@dataclass(frozen=True)
class Flow:
    """The traffic of one link or RDMA port."""

    name: str
    kind: str
    """`rdma`, or the kind of link."""
    up: bool | None
    mbit: int | None
    in_bytes_per_s: float
    out_bytes_per_s: float
    bad: Mapping[str, int]
    """Errors, drops and signs of loss or congestion since the first sample; only those that grew."""
    total_bytes: int
    """Since it is there, both ways."""

    @property
    def quiet(self) -> bool:
        return not (self.in_bytes_per_s or self.out_bytes_per_s or self.bad)


@dataclass(frozen=True)
class EngineRates:
    """Load of one server; None is what it does not report."""

    model: str
    url: str
    state: str
    silent: str | None
    running: float | None
    waiting: float | None
    preempted: float | None
    """Since the first sample."""
    kv_cache: float | None
    generated_tokens_per_s: float | None
    prompt_tokens_per_s: float | None
    first_token_s: float | None
    """The mean of those that came since the sample before; of all since the first, where none came."""


@dataclass(frozen=True)
class Rates:
    seconds: float
    cpu_busy: float
    load: float | None
    threads: int
    memory: MemorySample
    unified: bool
    gpus: tuple[GpuSample, ...]
    gpus_silent: str | None
    links: tuple[Flow, ...]
    ports: tuple[Flow, ...]
    retransmits: int
    """Since the first sample."""
    ray: Ray | None
    engines: tuple[EngineRates, ...]
    cost_s: float
    slow: tuple[str, ...] = ()


def rates(first: Sample, before: Sample, after: Sample) -> Rates:
    """`first` is the one since which errors are counted."""
    seconds = max(1e-3, after.at_s - before.at_s)
    busy = max(0.0, after.cpu.busy_s - before.cpu.busy_s)
    idle = max(0.0, after.cpu.idle_s - before.cpu.idle_s)
    return Rates(
        seconds=seconds,
        cpu_busy=busy / (busy + idle) if busy + idle else 0.0,
        load=after.cpu.load,
        threads=after.cpu.threads,
        memory=after.memory,
        unified=after.unified,
        gpus=after.gpus,
        gpus_silent=after.gpus_silent,
        links=tuple(_flows(first.links, before.links, after.links, seconds)),
        ports=tuple(_flows(first.ports, before.ports, after.ports, seconds)),
        retransmits=growth(first.retransmits or 0, after.retransmits or 0),
        ray=after.ray,
        engines=tuple(_engine(first, before, each, seconds) for each in after.engines),
        cost_s=after.cost_s,
        slow=after.slow,
    )


def _flows(
    first: Sequence[LinkSample], before: Sequence[LinkSample], after: Sequence[LinkSample], seconds: float
) -> Iterator[Flow]:
    """One that was not there before has no rate."""
    at_first, at_last = (
        {(each.name, each.index): each.counters for each in which} for which in (first, before)
    )
    for each in after:
        now, key = each.counters, (each.name, each.index)
        begun, was = at_first.get(key, now), at_last.get(key, now)
        came, went = (growth(was.get(key, now.get(key, 0)), now.get(key, 0)) / seconds for key in _DATA)
        grown = {key: growth(begun.get(key, count), count) for key, count in now.items() if key not in _DATA}
        bad = {key: count for key, count in grown.items() if count}
        total = sum(now.get(key, 0) for key in _DATA)
        yield Flow(each.name, each.kind, each.up, each.mbit, came, went, bad, total)


def _engine(first: Sample, before: Sample, now: EngineSample, seconds: float) -> EngineRates:
    was, begun = (_figures(sample, now) for sample in (before, first))
    figures = now.figures
    generated, prompt = (
        None if (grown := _grown(was, figures, f"{name}_tokens_total")) is None else grown / seconds
        for name in ("generated", "prompt")
    )
    return EngineRates(
        model=now.model,
        url=now.url,
        state=now.state,
        silent=now.silent,
        running=figures.get("running"),
        waiting=figures.get("waiting"),
        preempted=_grown(begun, figures, "preempted_total"),
        kv_cache=figures.get("kv_cache"),
        generated_tokens_per_s=generated,
        prompt_tokens_per_s=prompt,
        first_token_s=_first_token_s(was, figures) or _first_token_s(begun, figures),
    )


def _figures(sample: Sample, of: EngineSample) -> Mapping[str, float]:
    same = (each.figures for each in sample.engines if (each.url, each.model) == (of.url, of.model))
    return next(same, {})


def _grown(was: Mapping[str, float], now: Mapping[str, float], name: str) -> float | None:
    """A counter that was reset counts from zero; of one that is new the growth is not known."""
    if name not in now:
        return None
    before = was.get(name, 0 if was else now[name])
    return now[name] - before if now[name] >= before else now[name]


def _first_token_s(was: Mapping[str, float], now: Mapping[str, float]) -> float | None:
    count, total = (_grown(was, now, name) for name in ("first_token_total", "first_token_s_total"))
    return total / count if count and total is not None else None


def growth(was: int, now: int) -> int:
    """Compute a counter's growth: it wrapped if it was past half of 32 or 64 bits, else it began at zero."""
    if now >= was:
        return now - was
    bits = 32 if was < 1 << 32 else 64
    return now - was + (1 << bits) if was >= 1 << (bits - 1) else now
