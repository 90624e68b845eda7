"""Rates are what a host did between two samples, beside what its gauges say at the second."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from medley.link.traffic import growth
from medley.monitor.sample import Cpu, Engine, Gpu, Memory, Ray, Sample

_DATA = {"rx_bytes", "tx_bytes"}


@dataclass(frozen=True)
class Flow:
    """What one link or RDMA port carries."""

    name: str
    kind: str
    """`rdma`, or the kind of link."""
    up: bool | None
    mbit: int | None
    in_bytes_per_s: float
    out_bytes_per_s: float
    bad: Mapping[str, int]
    """Errors, drops and signs of loss or congestion since we look; only those that grew."""


@dataclass(frozen=True)
class Serves:
    """What one server does; None is what it does not tell."""

    model: str
    url: str
    state: str
    silent: str | None
    running: float | None
    waiting: float | None
    preempted: float | None
    """Since we look."""
    kv_cache: float | None
    generated_tokens_per_s: float | None
    prompt_tokens_per_s: float | None
    first_token_s: float | None
    """The mean of those that came since the sample before; of all since we look, where none came."""


@dataclass(frozen=True)
class Rates:
    seconds: float
    cpu_busy: float
    load: float | None
    threads: int
    memory: Memory
    unified: bool
    gpus: tuple[Gpu, ...]
    gpus_silent: str | None
    links: tuple[Flow, ...]
    ports: tuple[Flow, ...]
    retransmits: int
    """Since we look."""
    ray: Ray | None
    engines: tuple[Serves, ...]
    cost_s: float

    @property
    def table(self) -> dict[str, Any]:
        return asdict(self)


def rates(first: Sample, before: Sample, after: Sample) -> Rates:
    """`first` is the one since which errors are counted."""
    seconds = max(1e-3, after.at_s - before.at_s)
    return Rates(
        seconds=seconds,
        cpu_busy=_busy(before.cpu, after.cpu),
        load=after.cpu.load,
        threads=after.cpu.threads,
        memory=after.memory,
        unified=after.unified,
        gpus=after.gpus,
        gpus_silent=after.gpus_silent,
        links=tuple(_links(first, before, after, seconds)),
        ports=tuple(_ports(first, before, after, seconds)),
        retransmits=growth(first.retransmits or 0, after.retransmits or 0),
        ray=after.ray,
        engines=tuple(_served(first, before, each, seconds) for each in after.engines),
        cost_s=after.cost_s,
    )


def _busy(before: Cpu, after: Cpu) -> float:
    busy, idle = max(0.0, after.busy_s - before.busy_s), max(0.0, after.idle_s - before.idle_s)
    return busy / (busy + idle) if busy + idle else 0.0


def _links(first: Sample, before: Sample, after: Sample, seconds: float) -> Iterator[Flow]:
    """A new link of an old name has no rate."""
    begun = {(link.name, link.index): link.counters for link in first.links}
    was = {(link.name, link.index): link.counters for link in before.links}
    for link in after.links:
        key = link.name, link.index
        told = was.get(key, link.counters), begun.get(key, link.counters), link.counters
        yield Flow(link.name, link.kind, link.up, link.mbit, *_carried(*told, seconds))


def _ports(first: Sample, before: Sample, after: Sample, seconds: float) -> Iterator[Flow]:
    begun = {port.name: port.counters for port in first.ports}
    was = {port.name: port.counters for port in before.ports}
    for port in after.ports:
        told = was.get(port.name, port.counters), begun.get(port.name, port.counters), port.counters
        yield Flow(port.name, "rdma", port.active, port.mbit, *_carried(*told, seconds))


def _carried(
    was: Mapping[str, int], begun: Mapping[str, int], now: Mapping[str, int], seconds: float
) -> tuple[float, float, dict[str, int]]:
    """In, out, and what went wrong since we look."""
    came, went = (growth(was.get(key, now.get(key, 0)), now.get(key, 0)) for key in ("rx_bytes", "tx_bytes"))
    grown = {key: growth(begun.get(key, count), count) for key, count in now.items() if key not in _DATA}
    return came / seconds, went / seconds, {key: count for key, count in grown.items() if count}


def _served(first: Sample, before: Sample, now: Engine, seconds: float) -> Serves:
    was, begun = (_figures(sample, now) for sample in (before, first))
    tokens = {
        name: _per_s(was, now.figures, f"{name}_tokens_total", seconds) for name in ("generated", "prompt")
    }
    figures = now.figures
    return Serves(
        model=now.model,
        url=now.url,
        state=now.state,
        silent=now.silent,
        running=figures.get("running"),
        waiting=figures.get("waiting"),
        preempted=_grown(begun, figures, "preempted_total"),
        kv_cache=figures.get("kv_cache"),
        generated_tokens_per_s=tokens["generated"],
        prompt_tokens_per_s=tokens["prompt"],
        first_token_s=_first_token_s(was, figures) or _first_token_s(begun, figures),
    )


def _figures(sample: Sample, of: Engine) -> Mapping[str, float]:
    """Those that the same server told then."""
    return next(
        (each.figures for each in sample.engines if each.url == of.url and each.model == of.model), {}
    )


def _grown(was: Mapping[str, float], now: Mapping[str, float], name: str) -> float | None:
    """One that was started anew counts from zero; of one that tells for the first time nothing is known."""
    if name not in now:
        return None
    before = was.get(name, 0 if was else now[name])
    return now[name] - before if now[name] >= before else now[name]


def _per_s(was: Mapping[str, float], now: Mapping[str, float], name: str, seconds: float) -> float | None:
    grown = _grown(was, now, name)
    return grown / seconds if grown is not None else None


def _first_token_s(was: Mapping[str, float], now: Mapping[str, float]) -> float | None:
    count, total = (_grown(was, now, name) for name in ("first_token_total", "first_token_s_total"))
    return total / count if count and total is not None else None
