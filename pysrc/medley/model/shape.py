"""Find the layers, heads, experts and bytes of a model; bytes of each weight format."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import ValidationError

from medley import config
from medley.model import checkpoint, demo, hub_checkpoint
from medley.model.checkpoint import Checkpoint, Stored, Tensor, stored
from medley.model.config_fields import NAMES, Fields, context_length, layer_count, of_text
from medley.model.estimate import estimated, feed_forward_width, total_bytes
from medley.model.kv_cache import cache_fields
from medley.model.resolve import Weights
from medley.progress import SILENT, Progress
from medley.schema import Made, Shape
from medley.schema import Weights as Format

_FORMATS: Mapping[Format, Mapping[str, Any]] = cast("Any", config.beside(__file__, "weight_formats.toml"))
_LIMITS = config.beside(__file__, "engine_limits.toml")
BYTES: Mapping[str, float] = {name: each["bytes"] for name, each in _FORMATS.items()}
BLOCK: Mapping[str, int] = {name: each["block"] for name, each in _FORMATS.items() if "block" in each}
"""Weights that share a scale where the format itself fixes their number."""
ONE_STAGE = frozenset(_LIMITS["one_stage"])


def shape(weights: Weights, watch: Progress = SILENT) -> Shape:
    """Find the model's shape, its weights neither fetched nor read; a Problem if it cannot be had."""
    if weights.model and weights.model.shape:
        return weights.model.shape
    if weights.model and weights.model.made:
        return of_made(weights.model.made)
    if weights.local:
        found = checkpoint.read_checkpoint(Path(weights.target))
    else:
        with watch.stage(f"ask the hub for the shape of {weights.target}"):
            found = hub_checkpoint.checkpoint(weights.target, watch)
    return shape_of_config(found)


def of_made(made: Made) -> Shape:
    """Compute the shape of a model that need not be written yet."""
    tensors = {name: Tensor("BF16", size, 2 * prod(size)) for name, size in demo.shapes(made).items()}
    return shape_of_config(Checkpoint("the made model", demo.config(made), tensors))


def shape_of_config(found: Checkpoint) -> Shape:
    """Compute the shape; a Problem names the bad entry of config.json."""
    fields = of_text(found.config, found.where)
    layers = layer_count(fields)
    # The weights first: they show whether config.json's number of layers is sound.
    known = weight_fields(found) | cache_fields(fields, layers)
    try:
        return Shape.model_validate(
            known
            | {
                "layers": layers,
                "hidden": fields.whole(*NAMES["hidden"]),
                "vocabulary": fields.whole("vocab_size"),
                "context": context_length(fields),
                "architecture": architecture(found.config),
                **_engine_limits(found.config),
            }
        )
    except ValidationError as error:
        raise fields.problem(str(error.errors()[0]["loc"][-1]), error.errors()[0]["msg"]) from error


def architecture(config: Mapping[str, Any]) -> str | None:
    """Return the `model_type` of a config.json, if it has a sound one."""
    found = config.get("model_type")
    return found if isinstance(found, str) and re.fullmatch(r"[\w.-]+", found) else None


def _engine_limits(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that follow from the engines' limits for the architecture."""
    fields = Fields(config, "config.json")
    names = fields.words("architectures") or ()
    one_stage = {
        "vllm": any(name in ONE_STAGE or name.startswith(tuple(_LIMITS["refused"])) for name in names),
        "sglang": fields.flag("tie_word_embeddings")
        and not set(_LIMITS["tied_one_stage_sglang"]).isdisjoint(names),
    }
    limits: dict[str, Any] = {"one_stage": tuple(engine for engine, is_so in one_stage.items() if is_so)}
    sparse = _LIMITS["sparse_attention"]
    if any(name.startswith(tuple(sparse["names"])) for name in names):
        limits["capabilities"] = {"vllm": tuple(sparse["capabilities"])}
    return limits


def weight_fields(found: Checkpoint) -> dict[str, Any]:
    """Return the entries of `Shape` for the weights: bytes and parameters by part."""
    fields = of_text(found.config, found.where)
    layers = layer_count(fields)
    held, weights = held_by(found)
    _require_all(fields, held, layers)
    tied = fields.flag("tie_word_embeddings") or held.head.size_bytes == 0
    return _experts(fields, held, layers) | {
        "layer_bytes": held.layers.size_bytes // layers,
        "embedding_bytes": held.first.size_bytes,
        "head_bytes": 0 if tied else held.head.size_bytes,
        "draft_bytes": held.draft.size_bytes,
        "weights": weights,
        "weights_source": _source(found),
        "feed_forward": feed_forward_width(fields),
        "block": _block(fields, weights),
    }


def _source(found: Checkpoint) -> Literal["headers", "index", "config"]:
    if found.index is None:
        return "headers"
    return "config" if total_bytes(found.index) is None else "index"


def held_by(found: Checkpoint) -> tuple[Stored, Format]:
    """Add up the headers by part, in bytes, and find the format of most weights."""
    fields = of_text(found.config, found.where)
    if found.index is not None:
        each = BYTES[_format(fields) or "bf16"]
        found = replace(found, tensors=estimated(fields, found.index, each))
    sizes = Counter[str]()
    for tensor in found.tensors.values():
        sizes[tensor.dtype] += tensor.size_bytes
    # Some repositories say the format in no config.json: it is the one that most bytes have.
    most = max(sizes, key=lambda dtype: sizes[dtype], default="BF16")
    weights = _format(fields) or _named("dtypes", most) or "bf16"
    count, bits = fields.optional(*NAMES["experts"], least=0), 8 if weights in {"int8", "fp8"} else 4
    return stored(found.tensors, layer_count(fields), bits, count), weights


def _require_all(fields: Fields, held: Stored, layers: int) -> None:
    if len(held.seen) != layers:
        lacking = sorted(set(range(min(layers, len(held.seen) + 1))) - held.seen)
        raise fields.problem(
            "num_hidden_layers",
            f"it is {layers}, and the weights name {len(held.seen)} layers"
            + (f"; layer {lacking[0]} is not among them" if lacking else ""),
        )
    if held.first.size_bytes == 0:
        raise fields.problem("vocab_size", "no tensor is an embedding")


def _experts(fields: Fields, held: Stored, layers: int) -> dict[str, int]:
    """Means over all layers, also where some have no experts, so that sums over layers come out right."""
    count = fields.optional(*NAMES["experts"], least=0) or 0
    every = held.layers
    total = every.parameters + held.first.parameters + held.head.parameters
    if every.expert_bytes == 0 or count == 0:
        if every.expert_bytes:
            raise fields.problem(NAMES["experts"][0], "it is missing, and the weights hold experts")
        size = every.size_bytes // layers
        return {"parameters": total, "active_parameters": total, "active_layer_bytes": size}
    chosen = fields.whole(*NAMES["experts_per_token"])
    if chosen > count:
        raise fields.problem(NAMES["experts_per_token"][0], f"it is {chosen} of {count} experts")
    idle = count - chosen
    each = every.expert_bytes // (count * layers)
    return {
        "parameters": total,
        "active_parameters": total - every.expert_parameters * idle // count,
        "active_layer_bytes": every.size_bytes // layers - idle * each,
        "experts": count,
        "experts_per_token": chosen,
        "expert_bytes": each,
    }


def _format(fields: Fields) -> Format | None:
    """The format of most weights, if config.json names it."""
    quantised = _quantization(fields)
    if quantised is None:
        return None
    if fields.word("expert_dtype") == "fp4" and quantised.word("quant_method") == "fp8":
        return "mxfp4"  # DeepSeek V4: most of it is experts
    method = quantised.word("quant_method") or "modelopt"
    found = _named("methods", method)
    if found is not None:
        return found
    if method in {"gptq", "auto-round"}:
        found = "int8" if quantised.optional("bits") == 8 else "int4"  # noqa: PLR2004 - bits
    elif method == "compressed-tensors":
        found = _of_groups(quantised)
    elif method.startswith("modelopt"):
        algorithm = quantised.word("quant_algo")
        found = _of_groups(quantised) if algorithm is None else _named("algorithms", algorithm)
    if found is None:
        raise quantised.problem("quant_method", f"medley does not know how {method!r} stores its weights")
    return found


def _quantization(fields: Fields) -> Fields | None:
    found = fields.inner("quantization_config") or fields.inner("compression_config")
    # ModelOpt's file of its own has it one table deeper, beside the producer.
    return found and (found.inner("quantization") or found)


def _named(by: str, name: str) -> Format | None:
    return next((each for each, known in _FORMATS.items() if name in known.get(by, ())), None)


def _of_groups(quantised: Fields) -> Format | None:
    """The narrowest format of the groups: the experts' or the feed-forward's, which are most of a model."""
    formats = [_of_weights(each) for each in _group_weights(quantised)]
    order: tuple[Format, ...] = ("nvfp4", "mxfp4", "int4", "fp8", "int8")
    return next((each for each in order if each in formats), None)


def _group_weights(quantised: Fields) -> list[Mapping[str, Any]]:
    groups = quantised.table.get("config_groups")
    tables = groups.values() if isinstance(groups, dict) else ()
    weights = [group.get("weights") for group in tables if isinstance(group, dict)]
    return [each for each in weights if isinstance(each, dict)]


def _of_weights(weights: Mapping[str, Any]) -> Format | None:
    match weights.get("num_bits"), weights.get("type"):
        case 4, "float":
            return "nvfp4" if weights.get("group_size") != 32 else "mxfp4"  # noqa: PLR2004 - MXFP4's block
        case 8, "float":
            return "fp8"
        case 4, _:
            return "int4"
        case 8, _:
            return "int8"
        case _:
            return None


def _block(fields: Fields, weights: Format) -> int | None:
    """Return the weights that share a scale; None where scales are of whole rows, channels or tensors."""
    quantised = _quantization(fields)
    if quantised is None:
        return None
    groups = [each for each in _group_weights(quantised) if _of_weights(each) == weights]
    tables = [Fields(each, quantised.where) for each in groups] or [quantised]
    # DeepSeek V4 has FP8 in such blocks beside experts in MXFP4.
    names = ("weight_block_size", "block_structure") if weights == "fp8" else ()
    sizes = [size for each in tables for name in names for size in each.numbers(name)]
    sizes += [each.optional("group_size", least=-1) or 0 for each in tables]
    return max((size for size in sizes if size > 0), default=None)


def feed_forward(shape: Shape) -> int:
    """Return the inner width of an expert, else of the feed-forward part; guess from bytes if it is unknown.

    The guess takes every layer's mixer for an attention with as many queries as outputs. It is too large for
    layers with gates or recurrent states, so it may fill buffers and may not refuse a layout.
    """
    if shape.feed_forward is not None:
        return shape.feed_forward
    per_row = 3 * shape.hidden * BYTES[shape.weights]
    if shape.experts:
        return round(shape.expert_bytes / per_row)
    attention = 2 * shape.hidden * shape.head_dim * (shape.heads + shape.kv_heads)
    return max(0, round((shape.layer_bytes - attention * BYTES[shape.weights]) / per_row))
