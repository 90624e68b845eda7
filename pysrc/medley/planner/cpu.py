"""Choose how CPUs compute a model: the width of numbers, and whether an engine compiles.

hosts/cpu.toml has the defaults and the measured costs; the user's own flags of the engine win.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from medley.host.facts import Facts
from medley.host_schema import Compute
from medley.planner import Layout, count_parallel_sizes, join_names, list_devices, list_hosts, runs_on_cpu
from medley.planner.fit import format_gib
from medley.planner.kinds import read_host_table
from medley.planner.memory import DEFAULT_SEQUENCES
from medley.schema import EngineName, Model, Shape
from medley.values import Value

_CACHE_BITS, _FLOAT32_BITS, _FLOAT32_BYTES = 16, 32, 4
_BYTES_PER_GB = 1e9
_FLOAT32_NAMES = frozenset({"float32", "float"})
# "-O3", "-cc.mode=2" and "--compilation-config.mode" are the flags -O, -cc and --compilation-config.
_FLAG_NAME_PATTERN = re.compile(r"-[A-Za-z]+|--[a-z_-]+")
_WEIGHT_FIELDS = ("layer_bytes", "active_layer_bytes", "embedding_bytes", "head_bytes", "expert_bytes")


def read_dtype(flags: Sequence[str]) -> str | None:
    """Return the value of --dtype among the user's flags, which both engines have; None without one."""
    dtype = None
    for argument, next_argument in zip(flags, (*flags, "")[1:], strict=True):
        name, equals, value = argument.partition("=")
        if name == "--dtype":
            dtype = value if equals else next_argument
    return dtype


def is_float32(dtype: str | None) -> bool:
    """Return whether this value of --dtype is a name of float32."""
    return dtype in _FLOAT32_NAMES


def convert_to_float32(shape: Shape) -> Shape:
    """Return the model as an engine holds it in 32 bits; quantized weights stay as they are."""
    factor = 1
    if shape.weights == "bf16":
        # The files of some models have 32 bits already.
        factor = max(1, round(_FLOAT32_BYTES * shape.parameters / shape.weights_bytes))
    weight_bytes = {name: factor * getattr(shape, name) for name in _WEIGHT_FIELDS}
    cache = {"kv_bits": _FLOAT32_BITS, "state_bytes": 2 * shape.state_bytes}
    wide_cache = cache if shape.kv_bits == _CACHE_BITS else {}
    return shape.replace(**weight_bytes, **wide_cache, compute_bits=_FLOAT32_BITS)


def prefers_float32(shape: Shape, layout: Layout, facts: Mapping[str, Facts]) -> bool:
    """Return whether these hosts should compute this model in float32 if it fits."""
    table = _read_compute_table(layout)
    if table is None or shape.weights != "bf16":
        return False
    is_small = shape.weights_bytes < table.bfloat16_from_gb * _BYTES_PER_GB
    return is_small or bool(_list_hosts_without_bfloat16(table, list_hosts(layout), facts))


def explain_dtype(
    shape: Shape, layout: Layout, facts: Mapping[str, Facts], *, uses_float32: bool, missing_bytes: int = 0
) -> str | None:
    """Return the width of numbers that CPUs use, and its cost; None where there was no choice.

    `shape`: the model as stored; `missing_bytes`: the memory that float32 lacks.
    """
    table = _read_compute_table(layout)
    if table is None or shape.weights != "bf16":
        return None
    stored_bytes, float32_bytes = shape.weights_bytes, convert_to_float32(shape).weights_bytes
    sizes_gib = f"{format_gib(float32_bytes)} GiB of weights, {format_gib(stored_bytes)} in bfloat16"
    slow_hosts = _list_hosts_without_bfloat16(table, list_hosts(layout), facts)
    if uses_float32 and slow_hosts:
        flags = _join_alternatives(table.bfloat16_flags)
        return (
            f"float32, {sizes_gib}: {join_names(slow_hosts)} has no {flags}, and "
            f"{table.costs.bfloat16}; to change it: -- --dtype bfloat16"
        )
    if uses_float32:
        return f"float32, {sizes_gib}: {table.costs.float32}; to change it: -- --dtype bfloat16"
    cost = table.costs.bfloat16 if slow_hosts else table.costs.float32
    if missing_bytes:
        return f"bfloat16: float32 is {format_gib(missing_bytes)} GiB short of memory, {sizes_gib}; {cost}"
    return f"bfloat16: {cost}"


class Compilation(Value):
    """Whether an engine compiles, and the tokens of its warm-up pass; None: the tokens of a batch."""

    is_eager: bool = False
    warmup_tokens: int | None = None
    why: tuple[str, ...] = ()


def choose_compilation(
    layout: Layout,
    facts: Mapping[str, Facts],
    model: Model | None,
    engine: EngineName,
    flags: Iterable[str],
) -> Compilation:
    """Return how an engine starts on these hosts; `flags` are the user's own."""
    eager, table = bool(model and model.eager), _read_compute_table(layout)
    if not runs_on_cpu(layout):
        return Compilation(eager)
    # The engine compiles CPU code with the host's own compiler, so a host without one cannot compile.
    bare_hosts = [host for host in list_hosts(layout) if "g++" not in facts[host].software.programs]
    why = [f"not compiled: {', '.join(bare_hosts)} has no C++ compiler"] if bare_hosts else []
    if table is None or engine not in table.compile_flags:
        return Compilation(eager or bool(bare_hosts), why=tuple(why))
    compile_flags = table.compile_flags[engine]
    names = [match[0] for argument in flags if (match := _FLAG_NAME_PATTERN.match(argument))]
    if not bare_hosts and any(name in compile_flags for name in names):
        cost = f"compiled, as asked: {table.costs.compiled}; {table.costs.warmup}"
        return Compilation(is_eager=False, warmup_tokens=table.warmup_tokens, why=(cost,))
    if count_parallel_sizes(layout)[1] > 1:
        # A pipeline of vLLM 0.32.0 is traced, with a warm-up: eager code kills its first request.
        cost = f"batches of {table.warmup_tokens} tokens: {table.costs.warmup}"
        return Compilation(is_eager=True, warmup_tokens=table.warmup_tokens, why=(*why, cost))
    if not bare_hosts:
        why = [f"not compiled: {table.costs.compiled}; to compile: -- {compile_flags[0]}"]
    return Compilation(table.eager or eager or bool(bare_hosts), why=tuple(why))


def count_cache_streams(layout: Layout) -> int:
    """Return the number of streams, each of the longest context, for which a CPU reserves its KV cache."""
    table = _read_compute_table(layout)
    return table.cache_streams if table else DEFAULT_SEQUENCES


def _read_compute_table(layout: Layout) -> Compute | None:
    table = read_host_table(list_devices(layout)[0].kind) if runs_on_cpu(layout) else None
    return table.compute if table else None


def _list_hosts_without_bfloat16(
    table: Compute, hosts: Iterable[str], facts: Mapping[str, Facts]
) -> list[str]:
    """Return the hosts whose processor has no instruction for products in bfloat16."""
    return [host for host in hosts if not set(table.bfloat16_flags) & set(facts[host].cpu.flags)]


def _join_alternatives(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
