"""Convert a recipe's memory flags: carry over a small share of a host, and let the plan decide otherwise."""

from medley.command import quote_word
from medley.engine.accepted_flags import AcceptedFlags
from medley.planner.memory import UNIFIED_SHARE
from medley.serving.community_recipe.entries import RULES, RecipeEntry, build_flag_entry
from medley.serving.community_recipe.flag_values import UNFILLED_PATTERN
from medley.serving.community_recipe.shell_command import EngineFlag, needs_shell

MEMORY_SHARE_FLAGS = frozenset(RULES["flags"]["memory"]["shares"])
MEMORY_SIZE_FLAGS = frozenset(RULES["flags"]["memory"]["sizes"])
_GIB_FLAG = "--gpu-memory-utilization-gb"
_SPARK_GIB = 121.7
"""MemTotal of hosts/typical/spark.txt; the flag is of eugr/spark-vllm-docker's patch gpu-mem-util-gb."""
_SMALL_SHARE = 0.6
"""A recipe with less leaves room on its host for another server: 40 of 383 public ones give 0.55 or less."""


def build_memory_entry(
    key: str, name: str, flag: EngineFlag, accepted_flags: AcceptedFlags | None
) -> RecipeEntry:
    """Return the outcome of a memory flag: carry over a small share of a host, or a KV cache size."""
    value = " ".join(flag.values)
    if UNFILLED_PATTERN.search(value) or needs_shell(value) or not value:
        return RecipeEntry(
            key, "decided", f"the plan sets it from each host's free memory; the recipe has {value or 'none'}"
        )
    faults = list(accepted_flags.list_faults((name, *flag.values))) if accepted_flags else []
    amount = _parse_share(value)
    if name == _GIB_FLAG and amount is not None and amount < _SMALL_SHARE * _SPARK_GIB:
        words = ("--gpu-memory-utilization", f"{amount / _SPARK_GIB:.2f}")
        why = f"{amount:g} of a Spark's {_SPARK_GIB} GiB: the recipe leaves the rest to others"
        return build_flag_entry(key, *words, why=why, is_changed=True)
    if name in MEMORY_SHARE_FLAGS and amount is not None and amount < _SMALL_SHARE:
        why = (
            f"the recipe leaves the rest of its host to others; without it medley takes up to {UNIFIED_SHARE}"
        )
        return build_flag_entry(key, name, value, why=f"{value}: {why}", is_changed=True)
    if name == "--kv-cache-memory-bytes" and not faults:
        why = f"{value}: the recipe's size of the KV cache; without it the plan sets one"
        return build_flag_entry(key, name, value, why=why, is_changed=True)
    fault_text = f"; {faults[0].cause}" if faults else ""
    share_text = f"; to take the recipe's share: -- {name} {quote_word(value)}"
    advice = share_text if name in MEMORY_SHARE_FLAGS else ""
    why = f"the plan sets it from each host's free memory, up to {UNIFIED_SHARE}; the recipe has {value}"
    return RecipeEntry(key, "decided", f"{why}{advice}{fault_text}")


def _parse_share(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
