"""Find the layers, heads, experts and bytes of a model; bytes of each weight format."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from medley.model import checkpoint, demo, hub_checkpoint
from medley.model.checkpoint import Checkpoint, Stored, Tensor, stored
from medley.model.config_fields import EXPERTS, HIDDEN, Fields, context_length, layer_count, of_text
from medley.model.estimate import estimated
from medley.model.kv_cache import cache_fields
from medley.model.resolve import Weights
from medley.progress import SILENT, Progress
from medley.schema import Made, Shape

Format = Literal["bf16", "fp8", "mxfp4", "nvfp4", "awq", "int8", "int4"]
_METHODS: Mapping[str, Format] = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "awq": "awq"}
_DTYPES: Mapping[str, Format] = {"U8": "nvfp4", "F8_E4M3": "fp8", "I8": "int8"}
_CHOSEN = (
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "moe_topk",
    "moe_k",
    "moe_top_k",
    "top_k_experts",
)
_ALGORITHMS: Mapping[str, Format] = {
    "NVFP4": "nvfp4",
    "FP8": "fp8",
    "W4A16_AWQ": "awq",
    "MIXED_PRECISION": "nvfp4",
}
# Bits of a weight and its share of the scales, by the formats' definitions: MXFP4 has one byte for 32 weights
# (OCP Microscaling 1.0), NVFP4 one for 16, AWQ and GPTQ at group size 128 a 16-bit scale and a 4-bit zero
# point.
BYTES: Mapping[str, float] = {
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": (4 + 8 / 16) / 8,
    "mxfp4": (4 + 8 / 32) / 8,
    "awq": (4 + 20 / 128) / 8,
    "int4": (4 + 20 / 128) / 8,
}
# Weights that share a scale along the dimension that tensor parallel cuts. MXFP4 is padded by the engine
# instead. fp8 is taken to be in blocks of 128, as Qwen and DeepSeek publish it; scales for whole tensors know
# no such limit.
BLOCK: Mapping[str, int] = {"fp8": 128, "awq": 128, "int4": 128, "nvfp4": 16}
# Architectures that vLLM 0.33 cannot split into the stages of a pipeline: its registry says so of most
# (supports_pp), which tests/engine/test_kv_cache.py compares; Qwen 4 and DeepSeek V4.1 refuse most cuts when
# they are configured or loaded.
ONE_STAGE = frozenset(
    {
        *("AriaForConditionalGeneration", "DeepseekV4ForConditionalGeneration", "Gemma3nForCausalLM"),
        *("DiffusionGemmaForBlockDiffusion", "FireRedASR2ForConditionalGeneration", "HrmTextForCausalLM"),
        *(
            "Gemma3nForConditionalGeneration",
            "IQuestLoopCoderForCausalLM",
            "Idefics3ForConditionalGeneration",
        ),
        *("Mamba2ForCausalLM", "NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Nano_VL_V2"),
        *("NemotronH_Omni_Reasoning_V3", "NemotronH_Super_Omni_Reasoning_V3", "Phi4MMForCausalLM"),
        *("NemotronParseForConditionalGeneration", "PaddleOCRVLForConditionalGeneration"),
        *("SmolVLMForConditionalGeneration", "WhisperForConditionalGeneration", "Zamba2ForCausalLM"),
    }
)
_REFUSED = ("Qwen4Exp", "DeepseekV41")
# Read in vLLM 0.33, vllm/v1/attention/backends/mla and vllm/models/deepseek_v4: of the backends for their
# sparse attention none takes compute capability 8.x or 11.x (an Orin, a Thor).
_SPARSE = ("DeepseekV32", "DeepseekV4", "Glm5Next", "GlmMoeDsa")
_SPARSE_CAPABILITIES = ("9", "10", "12")
# The published sizes of feed-forward layers are multiples of it.
_GRAIN = 32
_CLOSE = 0.01


def shape(weights: Weights, watch: Progress = SILENT) -> Shape:
    """Find the model's shape, its weights neither fetched nor read; a Problem if it cannot be had."""
    if weights.model and weights.model.shape:
        return weights.model.shape
    if weights.model and weights.model.made:
        return of_made(weights.model.made)
    if weights.local:
        found = checkpoint.read_checkpoint(Path(weights.target))
    else:
        found = hub_checkpoint.checkpoint(weights.target, watch)
    if found.index is not None:
        total = "the index has their total" if found.index else "there is no index with their total either"
        watch.note(f"{found.where} holds no weights: their bytes are estimated from config.json; {total}")
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
                "hidden": fields.whole(*HIDDEN),
                "vocabulary": fields.whole("vocab_size"),
                "context": context_length(fields),
                **_engine_limits(found.config),
            }
        )
    except ValidationError as error:
        raise fields.problem(str(error.errors()[0]["loc"][-1]), error.errors()[0]["msg"]) from error


def _engine_limits(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that follow from the engines' limits for the architecture."""
    names = Fields(config, "config.json").words("architectures") or ()
    one_stage = any(name in ONE_STAGE or name.startswith(_REFUSED) for name in names)
    sparse = any(name.startswith(_SPARSE) for name in names)
    return {"one_stage": ("vllm",) if one_stage else ()} | (
        {"capabilities": {"vllm": _SPARSE_CAPABILITIES}} if sparse else {}
    )


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
    }


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
    weights = _format(fields) or _DTYPES.get(most, "bf16")
    count, bits = fields.optional(*EXPERTS, least=0), 8 if weights in {"int8", "fp8"} else 4
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
    count = fields.optional(*EXPERTS, least=0) or 0
    every = held.layers
    total = every.parameters + held.first.parameters + held.head.parameters
    if every.expert_bytes == 0 or count == 0:
        if every.expert_bytes:
            raise fields.problem(EXPERTS[0], "it is missing, and the weights hold experts")
        size = every.size_bytes // layers
        return {"parameters": total, "active_parameters": total, "active_layer_bytes": size}
    chosen = fields.whole(*_CHOSEN)
    if chosen > count:
        raise fields.problem(_CHOSEN[0], f"it is {chosen} of {count} experts")
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
    quantised = fields.inner("quantization_config") or fields.inner("compression_config")
    if quantised is None:
        return None
    method = quantised.word("quant_method") or "modelopt"
    if method in _METHODS:
        return _METHODS[method]
    found: Format | None = None
    if method in {"gptq", "auto-round"}:
        found = "int8" if quantised.optional("bits") == 8 else "int4"  # noqa: PLR2004 - bits
    elif method == "compressed-tensors":
        found = _of_groups(quantised)
    elif method.startswith("modelopt"):
        algorithm = quantised.word("quant_algo")
        found = _of_groups(quantised) if algorithm is None else _ALGORITHMS.get(algorithm)
    if found is None:
        raise quantised.problem("quant_method", f"medley does not know how {method!r} stores its weights")
    return found


def _of_groups(quantised: Fields) -> Format | None:
    """The narrowest format of the groups: the experts' or the feed-forward's, which are most of a model."""
    groups = quantised.table.get("config_groups")
    tables = groups.values() if isinstance(groups, dict) else ()
    weights = [group.get("weights") for group in tables if isinstance(group, dict)]
    formats = [_of_weights(each) for each in weights if isinstance(each, dict)]
    order: tuple[Format, ...] = ("nvfp4", "mxfp4", "int4", "fp8", "int8")
    return next((each for each in order if each in formats), None)


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


def feed_forward(shape: Shape) -> int:
    """Compute the inner size of an expert, else of the feed-forward part, from its bytes."""
    per_row = 3 * shape.hidden * BYTES[shape.weights]
    if shape.experts:
        return round(shape.expert_bytes / per_row)
    attention = 2 * shape.hidden * shape.head_dim * (shape.heads + shape.kv_heads)
    return max(0, round((shape.layer_bytes - attention * BYTES[shape.weights]) / per_row))


def known_feed_forward(shape: Shape) -> int | None:
    """Round it to a multiple of 32 if it is within 1%; else return None."""
    told = feed_forward(shape)
    rounded = round(told / _GRAIN) * _GRAIN
    return rounded if rounded and abs(told - rounded) <= _CLOSE * rounded else None
