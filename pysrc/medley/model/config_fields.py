"""Read the fields of config.json under every name models use; find the kind of each layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from medley import config
from medley.errors import Problem

_T = TypeVar("_T")

# More than any real one, and small enough that products of a few stay sensible.
_LARGEST = 2**40
NAMES: Mapping[str, list[str]] = config.beside(__file__, "config_names.toml")
# vLLM's where config.json has none of these, as of Mamba and BLOOM (0.32, config/model.py,
# _get_and_verify_max_len).
_ASSUMED_CONTEXT = 2048
_LARGEST_FACTOR = 4096
SPARSE = {
    "deepseek_sparse_attention",
    "qwen_sparse_attention",
    "indexed_attention",
    "sparse_attention",
    "sparse",
}
FULL = {"full_attention", "attention", "global", "global_attention"} | SPARSE
WINDOWED = {"sliding_attention", "chunked_attention", "local", "local_attention"}
RECURRENT = {"linear_attention", "mamba", "conv"}
PARALLEL = {"hybrid"}
"""Attention and a recurrent state in one layer."""
# Nemotron-H counts a bare feed-forward as a layer.
NEITHER = {"moe", "mlp", "-"}
# Where these stand and no list of kinds, layers differ in a way that medley does not know.
_OTHERWISE = ("block_configs", "compress_ratios")
# Inkling's convolutions beside an attention are counted with it.
_INKLING = {"hybrid": "full_attention", "hybrid_sliding": "sliding_attention"}
_LETTERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
# Their config.json lists no kinds.
_ALL_ALIKE = {"mamba": "mamba", "mamba2": "mamba", "falcon_mamba": "mamba", "falcon_h1": "hybrid"}
# Of its layers every fourth attends to everything, where its config.json does not say so.
_LLAMA_4 = 4
_TIED = "tie_word_embeddings"


@dataclass(frozen=True)
class Fields:
    """The entries that shape the language model, and where they come from."""

    table: Mapping[str, Any]
    where: str

    def whole(self, *names: str, least: int = 1) -> int:
        """Return the first of `names` in the table; a Problem if none is."""
        found = self.optional(*names, least=least)
        if found is None:
            raise self.problem(
                names[0], "it is missing" + (f", and so are {', '.join(names[1:])}" if names[1:] else "")
            )
        return found

    def optional(self, *names: str, least: int = 1) -> int | None:
        for name in names:
            value = self.table.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _LARGEST:
                raise self.problem(name, f"it is {_shown(value)}, and not a whole number from {least} on")
            return value
        return None

    def flag(self, name: str) -> bool | None:
        return self._typed(name, bool, "neither true nor false")

    def word(self, name: str) -> str | None:
        return self._typed(name, str, "no word")

    def words(self, *names: str) -> tuple[str, ...] | None:
        for name in names:
            value = self._typed(name, list, "no list of words")
            if value is not None:
                if not all(isinstance(word, str) for word in value):
                    raise self.problem(name, f"it is {_shown(value)}, and no list of words")
                return tuple(value)
        return None

    def numbers(self, name: str) -> tuple[int, ...]:
        value = self._typed(name, list, "no list of numbers") or []
        if not all(isinstance(number, int) for number in value):
            raise self.problem(name, f"it is {_shown(value)}, and no list of numbers")
        return tuple(value)

    def inner(self, name: str) -> "Fields | None":
        value = self._typed(name, dict, "no table")
        return None if value is None else Fields(value, f"{self.where}: {name}")

    def _typed(self, name: str, kind: type[_T], otherwise: str) -> _T | None:
        value = self.table.get(name)
        if value is not None and not isinstance(value, kind):
            raise self.problem(name, f"it is {_shown(value)}, and {otherwise}")
        return value

    def problem(self, name: str, cause: str) -> Problem:
        return Problem(
            f"{self.where}: '{name}' does not say what the model is",
            cause=cause,
            fix="write the model's [shape] down yourself: docs/reference/tables.md, models/NAME.toml",
        )


def of_text(config: Mapping[str, Any], where: str) -> Fields:
    """Find the language model's entries, one table deeper if the model also sees or hears."""
    top = Fields(config, where)
    for name in ("text_config", "llm_config", "language_config"):
        inner = top.inner(name)
        if inner is not None:
            # What stands at the top holds for the part too, unless the part says otherwise. Whether the head
            # is the embedding is said at the top, where transformers 5 and vLLM look first.
            tied = {_TIED: config[_TIED]} if config.get(_TIED) is not None else {}
            return Fields({**config, **inner.table, **tied}, inner.where)
    thinker = top.inner("thinker_config")
    if thinker:
        return of_text(thinker.table, thinker.where)
    # DBRX keeps what shapes its layers in two tables.
    parts = [part.table for part in map(top.inner, ("attn_config", "ffn_config")) if part]
    return Fields({key: value for part in (*parts, config) for key, value in part.items()}, where)


def context_length(fields: Fields) -> int:
    """Return the tokens that vLLM 0.33 takes from config.json (config/model.py, _get_and_verify_max_len).

    YaRN counts from the length before it; max_position_embeddings may be either length.
    """
    told = fields.optional(*NAMES["context"]) or _ASSUMED_CONTEXT
    for name in ("rope_parameters", "rope_scaling"):
        rope = fields.inner(name)
        if rope is None or "yarn" not in {rope.table.get("rope_type"), rope.table.get("type")}:
            continue
        before, factor = rope.optional("original_max_position_embeddings"), rope.table.get("factor")
        if before and isinstance(factor, int | float) and 1 <= factor <= _LARGEST_FACTOR:
            return max(told, int(before * factor))
    return told


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"  # noqa: PLR2004 - a line's worth


def layer_count(fields: Fields) -> int:
    listed = fields.words("layers_block_type") or fields.word("hybrid_override_pattern")
    # HRM runs its two stacks in turn and counts each turn in num_hidden_layers.
    stack = fields.optional("num_layers_per_stack")
    if stack is not None:
        return stack
    names = NAMES["layers"]
    return len(listed) if listed and fields.optional(*names) is None else fields.whole(*names)


def layer_kinds(fields: Fields, layers: int) -> tuple[str, ...]:
    """Find each layer's kind from config.json's list, pattern or interval."""
    kinds = _listed(fields, layers) or _regular(fields, layers)
    unknown = set(kinds) - FULL - WINDOWED - RECURRENT - PARALLEL - NEITHER
    if unknown:
        raise fields.problem("layer_types", f"medley does not know layers of the kind {min(unknown)!r}")
    if window(fields) is None:
        # A window that is switched off.
        return tuple("full_attention" if kind in WINDOWED else kind for kind in kinds)
    return kinds


def _listed(fields: Fields, layers: int) -> tuple[str, ...] | None:
    kinds = fields.words("layer_types", "layers_block_type")
    pattern = fields.word("hybrid_override_pattern")
    if kinds is None and pattern is not None:
        kinds = tuple(_LETTERS.get(letter, letter) for letter in pattern)
    if kinds is not None and (fields.word("model_type") or "").startswith("inkling"):
        kinds = tuple(_INKLING.get(kind, kind) for kind in kinds)
    if kinds is not None and len(kinds) != layers:
        name = "hybrid_override_pattern" if pattern is not None else "layer_types"
        raise fields.problem(name, f"it names {len(kinds)} layers of {layers}")
    return kinds


def _regular(fields: Fields, layers: int) -> tuple[str, ...]:
    pattern = fields.numbers("hybrid_layer_pattern")
    if pattern:
        return tuple("sliding_attention" if number else "full_attention" for number in pattern)
    local = fields.numbers("local_layer_ids")
    if local:
        return _among(local, "full_attention", layers, kind="sliding_attention")
    odd = next((name for name in _OTHERWISE if fields.table.get(name)), None)
    if odd is not None:
        raise fields.problem(odd, "its layers differ in a way that medley does not know")
    recurrent = _with_recurrent(fields, layers)
    if recurrent is not None:
        return recurrent
    if window(fields) is None:
        return ("full_attention",) * layers
    interval = fields.optional("sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval")
    if interval is None and fields.optional("attention_chunk_size") is not None:
        interval = _LLAMA_4
    if interval is not None:
        return _every(interval, "full_attention", "sliding_attention", layers)
    return ("sliding_attention",) * layers


def _with_recurrent(fields: Fields, layers: int) -> tuple[str, ...] | None:
    """List layer kinds of a recurrent or mixed model; None if it has only attention."""
    all_alike = _ALL_ALIKE.get(fields.word("model_type") or "")
    interval, period = fields.optional("full_attention_interval"), fields.optional("attn_layer_period")
    delta = fields.inner("linear_attn_config")
    if all_alike:
        return (all_alike,) * layers
    if interval is not None and fields.optional("linear_num_value_heads") is not None:
        return _every(interval, "full_attention", "linear_attention", layers)
    group = fields.optional("layer_group_size")
    if group is not None:
        return _grouped(fields, group, layers)
    if period is not None:
        offset = fields.optional("attn_layer_offset", least=0) or 0
        return tuple("attention" if number % period == offset else "mamba" for number in range(layers))
    if delta is not None:
        return _among(delta.numbers("full_attn_layers"), "linear_attention", layers, first=1)
    full = fields.numbers("attn_layer_indices")
    return _among(full, "mamba", layers) if full else None


def _grouped(fields: Fields, group: int, layers: int) -> tuple[str, ...]:
    """Bailing: the last layer of each group has attention; in version 3 also an incomplete last group."""
    kinds = _every(group, "full_attention", "linear_attention", layers)
    whole = layers - layers % group if fields.optional("short_conv_kernel_size") else layers
    return (*kinds[:whole], *("full_attention",) * (layers - whole))


def _among(
    listed: Sequence[int], others: str, layers: int, first: int = 0, kind: str = "full_attention"
) -> tuple[str, ...]:
    return tuple(kind if number in listed else others for number in range(first, first + layers))


def _every(interval: int, one: str, others: str, layers: int) -> tuple[str, ...]:
    return tuple(one if (layer + 1) % interval == 0 else others for layer in range(layers))


def window(fields: Fields) -> int | None:
    """Return the tokens that windowed layers keep; None without an active window."""
    if fields.flag("use_sliding_window") is False:
        return None
    return fields.optional("sliding_window", "sliding_window_size", "attention_chunk_size", least=1)
