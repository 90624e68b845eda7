"""The longest context of a model: what config.json gives, and what its maker serves beyond that.

vLLM refuses more than config.json gives (config/model.py, _get_and_verify_max_len) unless a variable allows
it. It then warns that rotary positions past the model's own lead to NaN. Models without such positions, as
Nemotron 3, are served so by their maker; others with YaRN.
"""

from collections.abc import Mapping

from medley.schema import TITLES, EngineName, Shape

LONGER: Mapping[EngineName, str] = {
    "vllm": "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    "sglang": "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
}
"""By which each engine serves a longer context than config.json gives."""
_YES = {"1", "true"}


def allows_longer(environ: Mapping[str, str], engine: EngineName) -> bool:
    """Whether the user's environment lets this engine serve more than config.json gives."""
    return environ.get(LONGER[engine], "").strip().lower() in _YES


def longest_context(shape: Shape, engine: EngineName) -> int:
    """Return the tokens that config.json gives, or its maker's where it serves more on this engine."""
    return shape.long_context.tokens if maker_flags(shape, engine) is not None else shape.context


def maker_flags(shape: Shape, engine: EngineName) -> tuple[str, ...] | None:
    """Return the engine's flags for the maker's context; None where the maker names none for this engine."""
    return {"vllm": shape.long_context.vllm, "sglang": shape.long_context.sglang}[engine]


def limits(shape: Shape, engine: EngineName) -> str:
    """Name both limits, for a Problem or a warning."""
    more = longest_context(shape, engine)
    served = f", and its maker serves {more:,} on {TITLES[engine]}" if more > shape.context else ""
    return f"config.json gives {shape.context:,} tokens{served}"
