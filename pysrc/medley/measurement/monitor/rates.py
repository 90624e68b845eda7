"""Compute rates between two samples."""

from collections.abc import Iterator, Mapping, Sequence

from medley.measurement.monitor.sample import (
    EngineSample,
    GpuSample,
    LinkSample,
    MemorySample,
    RaySample,
    Sample,
)
from medley.values import Value

_DATA_COUNTERS = ("rx_bytes", "tx_bytes")


class Flow(Value):
    """Traffic of one link or RDMA port between two samples."""

    name: str
    kind: str
    """The kind of link, or `rdma`."""
    up: bool | None
    mbit: int | None
    in_bytes_per_s: float
    out_bytes_per_s: float
    bad: Mapping[str, int]
    """Counters of errors, drops, loss or congestion that grew since the first sample, by their names."""
    total_bytes: int
    """The data in both directions since the link exists."""

    @property
    def is_quiet(self) -> bool:
        return not (self.in_bytes_per_s or self.out_bytes_per_s or self.bad)


class EngineRates(Value):
    """The load of one server; None for what it does not report."""

    model: str
    url: str
    state: str
    silent: str | None
    """The reason why a ready server reports no figures; None if it does, or is not ready."""
    running: float | None
    waiting: float | None
    preempted: float | None
    """The number of preempted requests since the first sample."""
    kv_cache: float | None
    generated_tokens_per_s: float | None
    prompt_tokens_per_s: float | None
    first_token_s: float | None
    """The mean time to the first token since the last sample, or since the first if no request came."""


class Rates(Value):
    """The rates of one host between two samples; its fields are keys of the JSON output."""

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
    """The number of TCP segments that were sent again since the first sample."""
    ray: RaySample | None
    engines: tuple[EngineRates, ...]
    cost_s: float
    """The CPU time of the process that samples, since its start."""
    slow: tuple[str, ...] = ()
    """Devices and links that the newest probe measured as slower than before."""


def compute_rates(first: Sample, previous: Sample, current: Sample) -> Rates:
    """Compute the rates since `previous`, and the growth of errors since `first`."""
    seconds = max(1e-3, current.at_s - previous.at_s)
    busy_s = max(0.0, current.cpu.busy_s - previous.cpu.busy_s)
    idle_s = max(0.0, current.cpu.idle_s - previous.cpu.idle_s)
    return Rates(
        seconds=seconds,
        cpu_busy=busy_s / (busy_s + idle_s) if busy_s + idle_s else 0.0,
        load=current.cpu.load,
        threads=current.cpu.threads,
        memory=current.memory,
        unified=current.has_unified_memory,
        gpus=current.gpus,
        gpus_silent=current.gpus_silent,
        links=tuple(_compute_flows(first.links, previous.links, current.links, seconds)),
        ports=tuple(_compute_flows(first.ports, previous.ports, current.ports, seconds)),
        retransmits=compute_growth(first.retransmits or 0, current.retransmits or 0),
        ray=current.ray,
        engines=tuple(_compute_engine_rates(first, previous, engine, seconds) for engine in current.engines),
        cost_s=current.cost_s,
        slow=current.slow,
    )


def _compute_flows(
    first: Sequence[LinkSample],
    previous: Sequence[LinkSample],
    current: Sequence[LinkSample],
    seconds: float,
) -> Iterator[Flow]:
    """Yield the flow of each current link; one that is new has no rate."""
    first_counters, previous_counters = (
        {(link.name, link.index): link.counters for link in links} for links in (first, previous)
    )
    for link in current:
        key, counters = (link.name, link.index), link.counters
        start, last = first_counters.get(key, counters), previous_counters.get(key, counters)
        in_bytes, out_bytes = (
            compute_growth(last.get(name, counters.get(name, 0)), counters.get(name, 0))
            for name in _DATA_COUNTERS
        )
        yield Flow(
            name=link.name,
            kind=link.kind,
            up=link.up,
            mbit=link.mbit,
            in_bytes_per_s=in_bytes / seconds,
            out_bytes_per_s=out_bytes / seconds,
            bad=_compute_error_growth(start, counters),
            total_bytes=sum(counters.get(name, 0) for name in _DATA_COUNTERS),
        )


def _compute_error_growth(start: Mapping[str, int], counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters other than data that grew since `start`."""
    growth = {
        name: compute_growth(start.get(name, count), count)
        for name, count in counters.items()
        if name not in _DATA_COUNTERS
    }
    return {name: count for name, count in growth.items() if count}


def _compute_engine_rates(
    first: Sample, previous: Sample, engine: EngineSample, seconds: float
) -> EngineRates:
    start, last = _find_figures(first, engine), _find_figures(previous, engine)
    figures = engine.figures
    generated = _compute_figure_growth(last, figures, "generated_tokens_total")
    prompt = _compute_figure_growth(last, figures, "prompt_tokens_total")
    return EngineRates(
        model=engine.model,
        url=engine.url,
        state=engine.state,
        silent=engine.silent,
        running=figures.get("running"),
        waiting=figures.get("waiting"),
        preempted=_compute_figure_growth(start, figures, "preempted_total"),
        kv_cache=figures.get("kv_cache"),
        generated_tokens_per_s=None if generated is None else generated / seconds,
        prompt_tokens_per_s=None if prompt is None else prompt / seconds,
        first_token_s=_compute_first_token_s(last, figures) or _compute_first_token_s(start, figures),
    )


def _find_figures(sample: Sample, engine: EngineSample) -> Mapping[str, float]:
    """Return the figures of the same server in another sample; empty if it has none."""
    key = (engine.url, engine.model)
    return next((server.figures for server in sample.engines if (server.url, server.model) == key), {})


def _compute_figure_growth(
    start: Mapping[str, float], figures: Mapping[str, float], name: str
) -> float | None:
    """Return the growth of a counter, from zero if it is new or was reset; a new server has no growth."""
    if name not in figures:
        return None
    start_value = start.get(name, 0 if start else figures[name])
    return figures[name] - start_value if figures[name] >= start_value else figures[name]


def _compute_first_token_s(start: Mapping[str, float], figures: Mapping[str, float]) -> float | None:
    names = ("first_token_total", "first_token_s_total")
    count, total_s = (_compute_figure_growth(start, figures, name) for name in names)
    return total_s / count if count and total_s is not None else None


def compute_growth(start: int, count: int) -> int:
    """Return a counter's growth: past half of 32 or 64 bits it wrapped, else it began again at zero."""
    if count >= start:
        return count - start
    bits = 32 if start < 1 << 32 else 64
    return count - start + (1 << bits) if start >= 1 << (bits - 1) else count
