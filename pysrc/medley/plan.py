"""A plan is what an engine is told: its ranks, how they are cut, and how much memory they take."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from medley.facts import Facts
from medley.layout.choose import Choice
from medley.layout.engine_memory import GIB
from medley.layout.fit import Fit, gib, utilization
from medley.layout.shapes import Layout
from medley.layout.words import devices, hosts, layers, sizes
from medley.predict import Prediction
from medley.tables import Model, Shape

# A CPU's memory is the host's: the cache takes no more of it than this, however much could be had.
_CPU_KV_SHARE = 4
_MIB = 1 << 20


@dataclass(frozen=True)
class Plan:
    """What one engine is told; None leaves it to the engine. `why` has a sentence for each decision."""

    gpus: tuple[int, ...] = ()
    """Of this host, where it runs here alone; empty: all there are, or none."""
    tensor_parallel: int = 1
    stages: int = 1
    """Pipeline stages."""
    partition: str | None = None
    """Layers of each stage in order of ranks."""
    expert_parallel: bool = False
    over_ray: bool = False
    kv_cache_bytes: int | None = None
    """Of each rank."""
    memory_utilization: float | None = None
    """Share of a GPU's memory that the engine may take."""
    context: int | None = None
    """Tokens of the longest sequence; None: the longest that fits."""
    sequences: int | None = None
    """At once, at most."""
    batch_tokens: int | None = None
    """In one forward pass, at most."""
    eager: bool = False
    why: tuple[str, ...] = ()


def plan(
    shape: Shape,
    choice: Choice[Prediction],
    facts: Mapping[str, Facts],
    model: Model | None = None,
    *,
    context: int | None = None,
    over_ray: bool = False,
) -> Plan:
    """How an engine runs the first pipeline of this choice; `facts`: its hosts', `context`: as asked for."""
    layout, fit = choice.layout, choice.fit
    bare = unplanned(layout, facts, model, over_ray=over_ray)
    cached, reason = _on_cpu(shape, layout, fit, facts) if _is_cpu(layout) else _on_gpu(fit)
    return replace(
        bare,
        partition=layers(layout) if len(layout.stages) > 1 else None,
        expert_parallel=layout.expert_parallel,
        kv_cache_bytes=cached,
        memory_utilization=None if _is_cpu(layout) else fit.utilization,
        context=context,
        sequences=fit.sequences,
        batch_tokens=fit.batch_tokens,
        why=(*choice.why, *choice.warnings, reason, *bare.why),
    )


def unplanned(
    layout: Layout, facts: Mapping[str, Facts], model: Model | None = None, *, over_ray: bool = False
) -> Plan:
    """The ranks of a model of which no more is known: cut and fitted as the engine does by itself."""
    tensor, stages, _ = sizes(layout)
    share = _cpu_share(layout, facts) if _is_cpu(layout) else None
    bare = _without_compiler(layout, facts)
    return Plan(
        gpus=() if over_ray or _is_cpu(layout) else tuple(device.index for device in devices(layout)),
        tensor_parallel=tensor,
        stages=stages,
        over_ray=over_ray,
        kv_cache_bytes=share,
        memory_utilization=(None if _is_cpu(layout) else utilization(devices(layout))) or None,
        eager=bool(bare or (model and model.eager)),
        why=(f"not compiled: {', '.join(bare)} has no C++ compiler",) if bare else (),
    )


def _is_cpu(layout: Layout) -> bool:
    return layout.stages[0].devices[0].kind == "cpu"


def _without_compiler(layout: Layout, facts: Mapping[str, Facts]) -> list[str]:
    """Of hosts whose CPU runs the model: there code is compiled with the host's own compiler."""
    return [host for host in hosts(layout) if _is_cpu(layout) and "g++" not in facts[host].software.programs]


def _cpu_share(layout: Layout, facts: Mapping[str, Facts]) -> int:
    return min(facts[host].memory.available_bytes for host in hosts(layout)) // _CPU_KV_SHARE


def _on_gpu(fit: Fit) -> tuple[int | None, str]:
    """Each rank's KV cache, or None where a share of its memory says the same."""
    if fit.utilization_does:
        return (
            None,
            f"{fit.utilization:.0%} of each GPU's memory: weights, engine, and KV cache with the rest",
        )
    words = gib(fit.kv_cache_bytes or 0)
    return fit.kv_cache_bytes, f"KV cache {words} GiB on each rank: all that the tightest has left"


def _on_cpu(shape: Shape, layout: Layout, fit: Fit, facts: Mapping[str, Facts]) -> tuple[int, str]:
    """Each rank's: what can be of use, or the host's share; never less than what was asked for needs."""
    share = _cpu_share(layout, facts)
    useful = max(rank.need.kv_bytes(shape.context, fit.sequences) for rank in fit.ranks)
    asked = max(rank.kv_bytes for rank in fit.ranks)
    cached = max(asked, min(share, useful, fit.kv_cache_bytes or 0))
    reasons = {
        asked: "what was asked for needs no less",
        share: f"a quarter of the {gib(_CPU_KV_SHARE * share)} GiB available",
        useful: f"{fit.sequences} sequences of {shape.context} tokens need no more",
    }
    why = reasons.get(cached, "all that the tightest host has left")
    return -(-cached // _MIB) * _MIB, f"KV cache {cached / GIB:.2f} GiB on each rank: {why}"
