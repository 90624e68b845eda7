"""How CPUs compute a model: the width of numbers, and whether an engine compiles, with what each costs.

hosts/cpu.toml has the defaults and the measured costs; the user's own flags of the engine win.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from medley.host.facts import Facts
from medley.host_schema import Compute
from medley.planner import Layout, devices_of, hosts_of, listed, on_cpu, sizes
from medley.planner.fit import gib
from medley.planner.kinds import host_table
from medley.planner.memory import SEQUENCES
from medley.schema import EngineName, Model, Shape

_BITS, _FLOAT32_BITS, _FLOAT32_BYTES = 16, 32, 4
_GB = 1e9
_FLOAT32 = frozenset({"float32", "float"})
# "-O3", "-cc.mode=2" and "--compilation-config.mode" are the flags -O, -cc and --compilation-config.
_NAME = re.compile(r"-[A-Za-z]+|--[a-z_-]+")
_WEIGHTS = ("layer_bytes", "active_layer_bytes", "embedding_bytes", "head_bytes", "expert_bytes")


def dtype_of(flags: Sequence[str]) -> str | None:
    """Return the value of --dtype among the user's flags, which both engines have; None without one."""
    found = None
    for word, after in zip(flags, (*flags, "")[1:], strict=True):
        name, equals, value = word.partition("=")
        if name == "--dtype":
            found = value if equals else after
    return found


def is_float32(dtype: str | None) -> bool:
    return dtype in _FLOAT32


def in_float32(shape: Shape) -> Shape:
    """Return the model as an engine holds it in 32 bits; quantized weights stay as they are."""
    factor = 1
    if shape.weights == "bf16":
        # Files may have 32 bits already.
        factor = max(1, round(_FLOAT32_BYTES * shape.parameters / shape.weights_bytes))
    wide = {name: factor * getattr(shape, name) for name in _WEIGHTS}
    cache = {"kv_bits": _FLOAT32_BITS, "state_bytes": 2 * shape.state_bytes}
    of_cache = cache if shape.kv_bits == _BITS else {}
    return shape.model_copy(update={**wide, **of_cache, "compute_bits": _FLOAT32_BITS})


def wants_float32(shape: Shape, layout: Layout, facts: Mapping[str, Facts]) -> bool:
    """Whether the kind of these hosts computes this model in float32, as long as that fits."""
    compute = _compute(layout)
    if compute is None or shape.weights != "bf16":
        return False
    small = shape.weights_bytes < compute.bfloat16_from_gb * _GB
    return small or bool(_without_bfloat16(compute, hosts_of(layout), facts))


def dtype_reason(
    shape: Shape, layout: Layout, facts: Mapping[str, Facts], *, wide: bool, short_bytes: int = 0
) -> str | None:
    """Say what the width of numbers costs on CPUs; None where there was no choice.

    `shape`: as stored; `wide`: float32 was chosen; `short_bytes`: the memory that it lacks.
    """
    compute = _compute(layout)
    if compute is None or shape.weights != "bf16":
        return None
    stored, wide_bytes = shape.weights_bytes, in_float32(shape).weights_bytes
    sizes_gib = f"{gib(wide_bytes)} GiB of weights, {gib(stored)} in bfloat16"
    slow = _without_bfloat16(compute, hosts_of(layout), facts)
    if wide and slow:
        return (
            f"float32, {sizes_gib}: {listed(slow)} has no {_either(compute.bfloat16_flags)}, and "
            f"{compute.costs.bfloat16}; to change it: -- --dtype bfloat16"
        )
    if wide:
        return f"float32, {sizes_gib}: {compute.costs.float32}; to change it: -- --dtype bfloat16"
    if short_bytes:
        why = f"float32 is {gib(short_bytes)} GiB short of memory, {sizes_gib}"
        return f"bfloat16: {why}; {compute.costs.bfloat16 if slow else compute.costs.float32}"
    return f"bfloat16: {compute.costs.bfloat16 if slow else compute.costs.float32}"


@dataclass(frozen=True)
class Compilation:
    """Whether an engine compiles, and the tokens of its warm-up pass; None: as many as a batch may have."""

    eager: bool = False
    warmup_tokens: int | None = None
    why: tuple[str, ...] = ()


def compilation(
    layout: Layout,
    facts: Mapping[str, Facts],
    model: Model | None,
    engine: EngineName,
    flags: Iterable[str],
) -> Compilation:
    """Return how an engine starts on these hosts; `flags` are the user's own."""
    eager, compute = bool(model and model.eager), _compute(layout)
    if not on_cpu(layout):
        return Compilation(eager)
    # Code for a CPU is compiled with the host's own compiler.
    bare = [host for host in hosts_of(layout) if "g++" not in facts[host].software.programs]
    why = [f"not compiled: {', '.join(bare)} has no C++ compiler"] if bare else []
    if compute is None or engine not in compute.compile_flags:
        return Compilation(eager or bool(bare), why=tuple(why))
    ways = compute.compile_flags[engine]
    asked = any((match := _NAME.match(word)) and match[0] in ways for word in flags)
    if asked and not bare:
        cost = f"compiled, as asked: {compute.costs.compiled}; {compute.costs.warmup}"
        return Compilation(eager=False, warmup_tokens=compute.warmup_tokens, why=(cost,))
    if sizes(layout)[1] > 1:
        # A pipeline of vLLM 0.32.0 is traced, with a warm-up: eager code kills its first request.
        cost = f"batches of {compute.warmup_tokens} tokens: {compute.costs.warmup}"
        return Compilation(eager=True, warmup_tokens=compute.warmup_tokens, why=(*why, cost))
    if not bare:
        why = [f"not compiled: {compute.costs.compiled}; to compile: -- {ways[0]}"]
    return Compilation(compute.eager or eager or bool(bare), why=tuple(why))


def cache_streams(layout: Layout) -> int:
    """Return the number of streams of the longest context that a CPU keeps in its cache at least."""
    compute = _compute(layout)
    return compute.cache_streams if compute else SEQUENCES


def _compute(layout: Layout) -> Compute | None:
    table = host_table(devices_of(layout)[0].kind) if on_cpu(layout) else None
    return table.compute if table else None


def _without_bfloat16(compute: Compute, hosts: Iterable[str], facts: Mapping[str, Facts]) -> list[str]:
    """Return the hosts whose processor has no instruction for products in bfloat16."""
    return [host for host in hosts if not set(compute.bfloat16_flags) & set(facts[host].cpu.flags)]


def _either(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
