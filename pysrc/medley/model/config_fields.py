"""Read the fields of config.json under every name models use; find the kind of each layer."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from medley import config
from medley.errors import Problem
from medley.values import Value

_T = TypeVar("_T")

_MAX_NUMBER = 2**40
"""A number above any real one, and small enough that products of a few stay sensible."""
FIELD_NAMES: Mapping[str, list[str]] = config.read_module_table(__file__, "config_names.toml")
_ASSUMED_CONTEXT = 2048
"""vLLM's context where config.json has none, as for Mamba and BLOOM.

See _get_and_verify_max_len in config/model.py of vLLM 0.32.
"""
_MAX_YARN_FACTOR = 4096
SPARSE_KINDS = {
    "deepseek_sparse_attention",
    "qwen_sparse_attention",
    "indexed_attention",
    "sparse_attention",
    "sparse",
}
FULL_KINDS = {"full_attention", "attention", "global", "global_attention"} | SPARSE_KINDS
WINDOWED_KINDS = {"sliding_attention", "chunked_attention", "local", "local_attention"}
RECURRENT_KINDS = {"linear_attention", "mamba", "conv"}
PARALLEL_KINDS = {"hybrid"}
"""Attention and a recurrent state in one layer."""
# Nemotron-H counts a bare feed-forward as a layer.
FEED_FORWARD_KINDS = {"moe", "mlp", "-"}
# Where these stand and no list of kinds, layers differ in a way that medley does not know.
_UNKNOWN_KIND_FIELDS = ("block_configs", "compress_ratios")
# Inkling's convolutions beside an attention are counted with it.
_INKLING_KINDS = {"hybrid": "full_attention", "hybrid_sliding": "sliding_attention"}
_KIND_BY_LETTER = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
# Their config.json lists no kinds.
_SINGLE_KIND_MODELS = {"mamba": "mamba", "mamba2": "mamba", "falcon_mamba": "mamba", "falcon_h1": "hybrid"}
# Of its layers every fourth attends to everything, where its config.json does not say so.
_LLAMA_4_INTERVAL = 4
_TIED_FIELD = "tie_word_embeddings"


class ConfigFields(Value):
    """The entries that shape the language model, and where they come from."""

    table: Mapping[str, Any]
    where: str

    def require_number(self, *names: str, minimum: int = 1) -> int:
        """Return the number of the first of `names` in the table; raise a Problem if none is there."""
        number = self.find_number(*names, minimum=minimum)
        if number is None:
            others = f", and so are {', '.join(names[1:])}" if names[1:] else ""
            raise self.build_problem(names[0], f"it is missing{others}")
        return number

    def find_number(self, *names: str, minimum: int = 1) -> int | None:
        """Return the number of the first of `names` in the table, or None.

        Raise a Problem if it is not a whole number from `minimum` on.
        """
        for name in names:
            value = self.table.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value < _MAX_NUMBER:
                raise self.build_problem(
                    name, f"it is {_format_value(value)}, and not a whole number from {minimum} on"
                )
            return value
        return None

    def find_flag(self, name: str) -> bool | None:
        return self._find_typed(name, bool, "neither true nor false")

    def find_word(self, name: str) -> str | None:
        return self._find_typed(name, str, "no word")

    def find_words(self, *names: str) -> tuple[str, ...] | None:
        for name in names:
            value = self._find_typed(name, list, "no list of words")
            if value is not None:
                if not all(isinstance(word, str) for word in value):
                    raise self.build_problem(name, f"it is {_format_value(value)}, and no list of words")
                return tuple(value)
        return None

    def find_numbers(self, name: str) -> tuple[int, ...]:
        value = self._find_typed(name, list, "no list of numbers") or []
        if not all(isinstance(number, int) for number in value):
            raise self.build_problem(name, f"it is {_format_value(value)}, and no list of numbers")
        return tuple(value)

    def find_table(self, name: str) -> "ConfigFields | None":
        value = self._find_typed(name, dict, "no table")
        return None if value is None else ConfigFields(value, f"{self.where}: {name}")

    def _find_typed(self, name: str, kind: type[_T], expectation: str) -> _T | None:
        value = self.table.get(name)
        if value is not None and not isinstance(value, kind):
            raise self.build_problem(name, f"it is {_format_value(value)}, and {expectation}")
        return value

    def build_problem(self, name: str, cause: str) -> Problem:
        return Problem(
            f"{self.where}: '{name}' does not say what the model is",
            cause=cause,
            fix="write the model's [shape] down yourself: docs/reference/tables.md, models/NAME.toml",
        )


def find_text_fields(config: Mapping[str, Any], where: str) -> ConfigFields:
    """Return the language model's entries, one table deeper if the model also sees or hears."""
    top = ConfigFields(config, where)
    for name in ("text_config", "llm_config", "language_config"):
        inner = top.find_table(name)
        if inner is not None:
            # Entries at the top hold for the part too, unless the part has its own. Whether the head is the
            # embedding stands at the top, where transformers 5 and vLLM look first.
            tied_entry = {_TIED_FIELD: config[_TIED_FIELD]} if config.get(_TIED_FIELD) is not None else {}
            return ConfigFields({**config, **inner.table, **tied_entry}, inner.where)
    thinker = top.find_table("thinker_config")
    if thinker:
        return find_text_fields(thinker.table, thinker.where)
    # DBRX keeps what shapes its layers in two tables.
    parts = [part.table for part in map(top.find_table, ("attn_config", "ffn_config")) if part]
    return ConfigFields({key: value for part in (*parts, config) for key, value in part.items()}, where)


def find_context_length(fields: ConfigFields) -> int:
    """Return the tokens that vLLM 0.33 takes from config.json (config/model.py, _get_and_verify_max_len).

    YaRN counts from the length before it; max_position_embeddings may be either length.
    """
    context = fields.find_number(*FIELD_NAMES["context"]) or _ASSUMED_CONTEXT
    for name in ("rope_parameters", "rope_scaling"):
        rope = fields.find_table(name)
        if rope is None or "yarn" not in {rope.table.get("rope_type"), rope.table.get("type")}:
            continue
        original_context = rope.find_number("original_max_position_embeddings")
        factor = rope.table.get("factor")
        if original_context and isinstance(factor, int | float) and 1 <= factor <= _MAX_YARN_FACTOR:
            return max(context, int(original_context * factor))
    return context


def _format_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"  # noqa: PLR2004 - a line's worth


def count_layers(fields: ConfigFields) -> int:
    """Return the number of layers; raise a Problem if config.json does not show it."""
    named_kinds = fields.find_words("layers_block_type") or fields.find_word("hybrid_override_pattern")
    # HRM runs its two stacks in turn and counts each turn in num_hidden_layers.
    stack_layers = fields.find_number("num_layers_per_stack")
    if stack_layers is not None:
        return stack_layers
    names = FIELD_NAMES["layers"]
    return (
        len(named_kinds)
        if named_kinds and fields.find_number(*names) is None
        else fields.require_number(*names)
    )


def list_layer_kinds(fields: ConfigFields, layers: int) -> tuple[str, ...]:
    """Return each layer's kind from config.json's list, pattern or interval.

    Raise a Problem for an unknown kind.
    """
    kinds = _list_named_kinds(fields, layers) or _list_regular_kinds(fields, layers)
    unknown = set(kinds) - FULL_KINDS - WINDOWED_KINDS - RECURRENT_KINDS - PARALLEL_KINDS - FEED_FORWARD_KINDS
    if unknown:
        raise fields.build_problem("layer_types", f"medley does not know layers of the kind {min(unknown)!r}")
    if find_window(fields) is None:
        # A window that is switched off.
        return tuple("full_attention" if kind in WINDOWED_KINDS else kind for kind in kinds)
    return kinds


def _list_named_kinds(fields: ConfigFields, layers: int) -> tuple[str, ...] | None:
    kinds = fields.find_words("layer_types", "layers_block_type")
    pattern = fields.find_word("hybrid_override_pattern")
    if kinds is None and pattern is not None:
        kinds = tuple(_KIND_BY_LETTER.get(letter, letter) for letter in pattern)
    if kinds is not None and (fields.find_word("model_type") or "").startswith("inkling"):
        kinds = tuple(_INKLING_KINDS.get(kind, kind) for kind in kinds)
    if kinds is not None and len(kinds) != layers:
        name = "hybrid_override_pattern" if pattern is not None else "layer_types"
        raise fields.build_problem(name, f"it names {len(kinds)} layers of {layers}")
    return kinds


def _list_regular_kinds(fields: ConfigFields, layers: int) -> tuple[str, ...]:
    """Return the layer kinds of a model whose config.json does not list them."""
    pattern = fields.find_numbers("hybrid_layer_pattern")
    if pattern:
        return tuple("sliding_attention" if number else "full_attention" for number in pattern)
    windowed_layers = fields.find_numbers("local_layer_ids")
    if windowed_layers:
        return _list_kinds_by_number(windowed_layers, "full_attention", layers, kind="sliding_attention")
    unknown_field = next((name for name in _UNKNOWN_KIND_FIELDS if fields.table.get(name)), None)
    if unknown_field is not None:
        raise fields.build_problem(unknown_field, "its layers differ in a way that medley does not know")
    recurrent = _list_recurrent_kinds(fields, layers)
    if recurrent is not None:
        return recurrent
    if find_window(fields) is None:
        return ("full_attention",) * layers
    interval = fields.find_number(
        "sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval"
    )
    if interval is None and fields.find_number("attention_chunk_size") is not None:
        interval = _LLAMA_4_INTERVAL
    if interval is not None:
        return _list_kinds_by_interval(interval, "full_attention", "sliding_attention", layers)
    return ("sliding_attention",) * layers


def _list_recurrent_kinds(fields: ConfigFields, layers: int) -> tuple[str, ...] | None:
    """Return the layer kinds of a recurrent or mixed model; None if it has only attention."""
    single_kind = _SINGLE_KIND_MODELS.get(fields.find_word("model_type") or "")
    interval, period = fields.find_number("full_attention_interval"), fields.find_number("attn_layer_period")
    linear_config = fields.find_table("linear_attn_config")
    if single_kind:
        return (single_kind,) * layers
    if interval is not None and fields.find_number("linear_num_value_heads") is not None:
        return _list_kinds_by_interval(interval, "full_attention", "linear_attention", layers)
    group = fields.find_number("layer_group_size")
    if group is not None:
        return _list_grouped_kinds(fields, group, layers)
    if period is not None:
        offset = fields.find_number("attn_layer_offset", minimum=0) or 0
        return tuple("attention" if number % period == offset else "mamba" for number in range(layers))
    if linear_config is not None:
        return _list_kinds_by_number(
            linear_config.find_numbers("full_attn_layers"), "linear_attention", layers, first=1
        )
    full_layers = fields.find_numbers("attn_layer_indices")
    return _list_kinds_by_number(full_layers, "mamba", layers) if full_layers else None


def _list_grouped_kinds(fields: ConfigFields, group: int, layers: int) -> tuple[str, ...]:
    """Return the layer kinds of Bailing: the last layer of each group has attention.

    In version 3 all layers of an incomplete last group have it too.
    """
    kinds = _list_kinds_by_interval(group, "full_attention", "linear_attention", layers)
    grouped = layers - layers % group if fields.find_number("short_conv_kernel_size") else layers
    return (*kinds[:grouped], *("full_attention",) * (layers - grouped))


def _list_kinds_by_number(
    numbers: Sequence[int], other_kind: str, layers: int, first: int = 0, kind: str = "full_attention"
) -> tuple[str, ...]:
    return tuple(kind if number in numbers else other_kind for number in range(first, first + layers))


def _list_kinds_by_interval(
    interval: int, interval_kind: str, other_kind: str, layers: int
) -> tuple[str, ...]:
    return tuple(interval_kind if (layer + 1) % interval == 0 else other_kind for layer in range(layers))


def find_window(fields: ConfigFields) -> int | None:
    """Return the tokens that windowed layers keep; None without an active window."""
    if fields.find_flag("use_sliding_window") is False:
        return None
    return fields.find_number("sliding_window", "sliding_window_size", "attention_chunk_size", minimum=1)
