"""Choose the context that must fit, and find the longest of a model: config.json's, or its maker's own.

vLLM refuses more than config.json gives (config/model.py, _get_and_verify_max_len) unless a variable allows
it. It then warns that rotary positions past the model's own lead to NaN. The maker of Nemotron 3 serves it
so, because it has no rotary positions; other makers use YaRN.
"""

from collections.abc import Mapping

from medley.host_schema import ENGINE_TABLES
from medley.schema import TITLES, EngineName, Shape

DEFAULT_CONTEXT_TOKENS = 8192
"""Tokens of context that must fit if the user gives no --context."""
_TRUE_VALUES = {"1", "true"}


def choose_context(shape: Shape, requested_tokens: int | None) -> int:
    """Return the context that must fit, in tokens: the user's --context, else the default or the model's.

    Without --context the engine's flag is the longest that fits, which is more where there is memory.
    """
    return requested_tokens or min(shape.context, DEFAULT_CONTEXT_TOKENS)


def compute_safe_context(shape: Shape, fitting_tokens: int) -> int:
    """Return the longest context that surely fits, for the engine's flag where the user gives no --context.

    The engine's own memory is an estimate, and the engine refuses a context that is too long.
    """
    return shape.context if fitting_tokens >= shape.context else fitting_tokens * 7 // 8


def allows_longer_context(environ: Mapping[str, str], engine: EngineName) -> bool:
    """Return whether the user's environment lets this engine serve more than config.json gives."""
    return environ.get(ENGINE_TABLES[engine].context_variable, "").strip().lower() in _TRUE_VALUES


def find_longest_context(shape: Shape, engine: EngineName) -> int:
    """Return the tokens that config.json gives, or the maker's longer context where this engine serves it."""
    return shape.long_context.tokens if find_maker_flags(shape, engine) is not None else shape.context


def find_maker_flags(shape: Shape, engine: EngineName) -> tuple[str, ...] | None:
    """Return the engine's flags for the maker's context; None where the maker names none for this engine."""
    flags: tuple[str, ...] | None = getattr(shape.long_context, engine)
    return flags


def describe_limits(shape: Shape, engine: EngineName) -> str:
    """Describe both limits for a Problem or a warning."""
    longest = find_longest_context(shape, engine)
    suffix = f", and its maker serves {longest:,} on {TITLES[engine]}" if longest > shape.context else ""
    return f"config.json gives {shape.context:,} tokens{suffix}"
