"""Find the layers, heads, experts and bytes of a model; bytes of each weight format."""

import re
from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Literal

from msgspec import ValidationError, convert

from medley import config
from medley.model import checkpoint, demo, hub_checkpoint
from medley.model.checkpoint import Checkpoint, Tensor, TensorSizes, sum_tensors
from medley.model.config_fields import (
    FIELD_NAMES,
    ConfigFields,
    count_layers,
    find_context_length,
    find_text_fields,
)
from medley.model.estimate import estimate_tensors, find_feed_forward_width, read_total_bytes
from medley.model.kv_cache import build_cache_fields
from medley.model.resolve import Weights
from medley.progress import SILENT, Progress
from medley.schema import DemoSpec, Shape
from medley.schema import WeightFormat as Format
from medley.values import FileTable, list_mistakes


class _FormatTable(FileTable):
    """A weight format, as weight_formats.toml describes it."""

    bytes: float
    block: int | None = None
    methods: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()


_FORMATS: Mapping[Format, _FormatTable] = convert(
    config.read_module_table(__file__, "weight_formats.toml"), dict[Format, _FormatTable]
)
_LIMITS = config.read_module_table(__file__, "engine_limits.toml")
BYTES_PER_WEIGHT: Mapping[str, float] = {name: table.bytes for name, table in _FORMATS.items()}
BLOCK_WEIGHTS: Mapping[str, int] = {
    name: table.block for name, table in _FORMATS.items() if table.block is not None
}
"""The number of weights that share a scale, where the format itself fixes it."""
ONE_STAGE_ARCHITECTURES = frozenset(_LIMITS["one_stage"])


def find_shape(weights: Weights, progress: Progress = SILENT) -> Shape:
    """Return the model's shape without fetching its weights; raise a Problem if it cannot be found."""
    if weights.model and weights.model.shape:
        return weights.model.shape
    if weights.model and weights.model.made:
        return compute_demo_shape(weights.model.made)
    if weights.is_local:
        files = checkpoint.read_checkpoint(Path(weights.target))
    else:
        with progress.stage(f"ask the hub for the shape of {weights.target}"):
            files = hub_checkpoint.fetch_checkpoint(weights.target, progress)
    return compute_shape(files)


def compute_demo_shape(spec: DemoSpec) -> Shape:
    """Compute the shape of a model that need not be written yet."""
    tensors = {
        name: Tensor("BF16", size, 2 * prod(size)) for name, size in demo.list_tensor_shapes(spec).items()
    }
    return compute_shape(Checkpoint("the made model", demo.build_config(spec), tensors))


def compute_shape(checkpoint_files: Checkpoint) -> Shape:
    """Compute the shape; raise a Problem that names the bad entry of config.json."""
    fields = find_text_fields(checkpoint_files.config, checkpoint_files.where)
    layers = count_layers(fields)
    # The weights first: they show whether config.json's number of layers is sound.
    entries = build_weight_fields(checkpoint_files) | build_cache_fields(fields, layers)
    entries |= {
        "layers": layers,
        "hidden": fields.require_number(*FIELD_NAMES["hidden"]),
        "vocabulary": fields.require_number("vocab_size"),
        "context": find_context_length(fields),
        "architecture": find_architecture(checkpoint_files.config),
        **_build_engine_limits(checkpoint_files.config),
    }
    try:
        return Shape.from_table(entries)
    except ValidationError as error:
        mistake = next(list_mistakes(entries, Shape))
        raise fields.build_problem(str(mistake.path[-1]), mistake.why) from error


def find_architecture(config: Mapping[str, Any]) -> str | None:
    """Return the `model_type` of a config.json, if it has a sound one."""
    name = config.get("model_type")
    return name if isinstance(name, str) and re.fullmatch(r"[\w.-]+", name) else None


def _build_engine_limits(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that follow from the engines' limits for the architecture."""
    fields = ConfigFields(config, "config.json")
    architectures = fields.find_words("architectures") or ()
    one_stage = {
        # vLLM refuses most cuts of models whose names begin as in `refused`.
        "vllm": any(
            known_name in ONE_STAGE_ARCHITECTURES or known_name.startswith(tuple(_LIMITS["refused"]))
            for known_name in architectures
        ),
        "sglang": fields.find_flag("tie_word_embeddings")
        and not set(_LIMITS["tied_one_stage_sglang"]).isdisjoint(architectures),
    }
    limits: dict[str, Any] = {
        "one_stage": tuple(engine for engine, is_limited in one_stage.items() if is_limited)
    }
    sparse = _LIMITS["sparse_attention"]
    if any(name.startswith(tuple(sparse["names"])) for name in architectures):
        limits["capabilities"] = {"vllm": tuple(sparse["capabilities"])}
    return limits


def build_weight_fields(checkpoint_files: Checkpoint) -> dict[str, Any]:
    """Return the entries of `Shape` for the weights: bytes and parameters by part."""
    fields = find_text_fields(checkpoint_files.config, checkpoint_files.where)
    layers = count_layers(fields)
    sizes, weight_format = sum_checkpoint(checkpoint_files)
    _require_all_layers(fields, sizes, layers)
    is_tied = fields.find_flag("tie_word_embeddings") or sizes.head.size_bytes == 0
    return _build_expert_fields(fields, sizes, layers) | {
        "layer_bytes": sizes.layers.size_bytes // layers,
        "embedding_bytes": sizes.first.size_bytes,
        "head_bytes": 0 if is_tied else sizes.head.size_bytes,
        "draft_bytes": sizes.draft.size_bytes,
        "weights": weight_format,
        "weights_source": _find_source(checkpoint_files),
        "feed_forward": find_feed_forward_width(fields),
        "block": _find_block_weights(fields, weight_format),
    }


def _find_source(checkpoint_files: Checkpoint) -> Literal["headers", "index", "config"]:
    if checkpoint_files.index is None:
        return "headers"
    return "config" if read_total_bytes(checkpoint_files.index) is None else "index"


def sum_checkpoint(checkpoint_files: Checkpoint) -> tuple[TensorSizes, Format]:
    """Add up the headers by part, in bytes, and find the format of most weights."""
    fields = find_text_fields(checkpoint_files.config, checkpoint_files.where)
    if checkpoint_files.index is not None:
        bytes_per_weight = BYTES_PER_WEIGHT[_find_format(fields) or "bf16"]
        checkpoint_files = checkpoint_files.replace(
            tensors=estimate_tensors(fields, checkpoint_files.index, bytes_per_weight)
        )
    sizes = Counter[str]()
    for tensor in checkpoint_files.tensors.values():
        sizes[tensor.dtype] += tensor.size_bytes
    # Some repositories say the format in no config.json: it is the one that most bytes have.
    main_dtype = max(sizes, key=lambda dtype: sizes[dtype], default="BF16")
    weight_format = _find_format(fields) or _find_format_by_name("dtypes", main_dtype) or "bf16"
    count = fields.find_number(*FIELD_NAMES["experts"], minimum=0)
    bits = 8 if weight_format in {"int8", "fp8"} else 4
    return sum_tensors(checkpoint_files.tensors, count_layers(fields), bits, count), weight_format


def _require_all_layers(fields: ConfigFields, sizes: TensorSizes, layers: int) -> None:
    if len(sizes.layer_numbers) != layers:
        missing_layers = sorted(set(range(min(layers, len(sizes.layer_numbers) + 1))) - sizes.layer_numbers)
        raise fields.build_problem(
            "num_hidden_layers",
            f"it is {layers}, and the weights name {len(sizes.layer_numbers)} layers"
            + (f"; layer {missing_layers[0]} is not among them" if missing_layers else ""),
        )
    if sizes.first.size_bytes == 0:
        raise fields.build_problem("vocab_size", "no tensor is an embedding")


def _build_expert_fields(fields: ConfigFields, sizes: TensorSizes, layers: int) -> dict[str, int]:
    """Return the entries of `Shape` for parameters and experts.

    They are means over all layers, also where some have no experts, so that sums over layers are right.
    """
    count = fields.find_number(*FIELD_NAMES["experts"], minimum=0) or 0
    layer_sizes = sizes.layers
    total = layer_sizes.parameters + sizes.first.parameters + sizes.head.parameters
    if layer_sizes.expert_bytes == 0 or count == 0:
        if layer_sizes.expert_bytes:
            raise fields.build_problem(
                FIELD_NAMES["experts"][0], "it is missing, and the weights hold experts"
            )
        size = layer_sizes.size_bytes // layers
        return {"parameters": total, "active_parameters": total, "active_layer_bytes": size}
    active_experts = fields.require_number(*FIELD_NAMES["experts_per_token"])
    if active_experts > count:
        raise fields.build_problem(
            FIELD_NAMES["experts_per_token"][0], f"it is {active_experts} of {count} experts"
        )
    idle_experts = count - active_experts
    expert_bytes = layer_sizes.expert_bytes // (count * layers)
    return {
        "parameters": total,
        "active_parameters": total - layer_sizes.expert_parameters * idle_experts // count,
        "active_layer_bytes": layer_sizes.size_bytes // layers - idle_experts * expert_bytes,
        "experts": count,
        "experts_per_token": active_experts,
        "expert_bytes": expert_bytes,
    }


def _find_format(fields: ConfigFields) -> Format | None:
    """Return the format of most weights; None if config.json does not name it."""
    quantization = _find_quantization(fields)
    if quantization is None:
        return None
    if fields.find_word("expert_dtype") == "fp4" and quantization.find_word("quant_method") == "fp8":
        return "mxfp4"  # DeepSeek V4: most of it is experts
    method = quantization.find_word("quant_method") or "modelopt"
    weight_format = _find_format_by_name("methods", method)
    if weight_format is not None:
        return weight_format
    if method in {"gptq", "auto-round"}:
        weight_format = "int8" if quantization.find_number("bits") == 8 else "int4"  # noqa: PLR2004 - bits
    elif method == "compressed-tensors":
        weight_format = _find_group_format(quantization)
    elif method.startswith("modelopt"):
        algorithm = quantization.find_word("quant_algo")
        weight_format = (
            _find_group_format(quantization)
            if algorithm is None
            else _find_format_by_name("algorithms", algorithm)
        )
    if weight_format is None:
        raise quantization.build_problem(
            "quant_method", f"medley does not know how {method!r} stores its weights"
        )
    return weight_format


def _find_quantization(fields: ConfigFields) -> ConfigFields | None:
    quantization = fields.find_table("quantization_config") or fields.find_table("compression_config")
    # ModelOpt's file of its own has it one table deeper, beside the producer.
    return quantization and (quantization.find_table("quantization") or quantization)


def _find_format_by_name(by: Literal["methods", "algorithms", "dtypes"], name: str) -> Format | None:
    return next((candidate for candidate, table in _FORMATS.items() if name in getattr(table, by)), None)


def _find_group_format(quantization: ConfigFields) -> Format | None:
    """Return the narrowest format of the groups: the experts' or the feed-forward's, most of a model."""
    formats = [_find_weights_format(table) for table in _list_group_weights(quantization)]
    narrowest_first: tuple[Format, ...] = ("nvfp4", "mxfp4", "int4", "fp8", "int8")
    return next((candidate for candidate in narrowest_first if candidate in formats), None)


def _list_group_weights(quantization: ConfigFields) -> list[Mapping[str, Any]]:
    groups = quantization.table.get("config_groups")
    tables = groups.values() if isinstance(groups, dict) else ()
    weight_tables = [group.get("weights") for group in tables if isinstance(group, dict)]
    return [table for table in weight_tables if isinstance(table, dict)]


def _find_weights_format(weight_table: Mapping[str, Any]) -> Format | None:
    match weight_table.get("num_bits"), weight_table.get("type"):
        case 4, "float":
            return "nvfp4" if weight_table.get("group_size") != 32 else "mxfp4"  # noqa: PLR2004 - MXFP4's block
        case 8, "float":
            return "fp8"
        case 4, _:
            return "int4"
        case 8, _:
            return "int8"
        case _:
            return None


def _find_block_weights(fields: ConfigFields, weight_format: Format) -> int | None:
    """Return the number of weights that share a scale; None for scales of whole rows, channels or tensors."""
    quantization = _find_quantization(fields)
    if quantization is None:
        return None
    groups = [
        group for group in _list_group_weights(quantization) if _find_weights_format(group) == weight_format
    ]
    tables = [ConfigFields(group, quantization.where) for group in groups] or [quantization]
    # DeepSeek V4 has FP8 in such blocks beside experts in MXFP4.
    names = ("weight_block_size", "block_structure") if weight_format == "fp8" else ()
    sizes = [size for table in tables for name in names for size in table.find_numbers(name)]
    sizes += [table.find_number("group_size", minimum=-1) or 0 for table in tables]
    return max((size for size in sizes if size > 0), default=None)


def compute_feed_forward_width(shape: Shape) -> int:
    """Return the inner width of an expert, else of the feed-forward part; guess from bytes if it is unknown.

    The guess assumes that each layer has an attention whose output is as wide as its queries. It is too large
    for layers with gates or recurrent states, so it may fill buffers and may not refuse a layout.
    """
    if shape.feed_forward is not None:
        return shape.feed_forward
    per_row = 3 * shape.hidden * BYTES_PER_WEIGHT[shape.weights]
    if shape.experts:
        return round(shape.expert_bytes / per_row)
    attention = 2 * shape.hidden * shape.head_dim * (shape.heads + shape.kv_heads)
    return max(0, round((shape.layer_bytes - attention * BYTES_PER_WEIGHT[shape.weights]) / per_row))
