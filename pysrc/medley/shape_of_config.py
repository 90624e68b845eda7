"""The shape of any model, out of its config.json and the headers of its weights."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from medley.checkpoint import Checkpoint
from medley.fields import Fields, of_text
from medley.layer_kinds import CONTEXT, LayerKinds, layer_count, layer_kinds
from medley.safetensors import Tensor
from medley.stored import Stored, stored
from medley.tables import Shape

Format = Literal["bf16", "fp8", "mxfp4", "nvfp4", "awq", "int8", "int4"]
_METHODS: Mapping[str, Format] = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "awq": "awq"}
_DTYPES: Mapping[str, Format] = {"U8": "nvfp4", "F8_E4M3": "fp8", "I8": "int8"}
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_k")
_ALGORITHMS: Mapping[str, Format] = {
    "NVFP4": "nvfp4",
    "FP8": "fp8",
    "W4A16_AWQ": "awq",
    "MIXED_PRECISION": "nvfp4",
}


def shape_of_config(found: Checkpoint) -> Shape:
    """Raises a Problem that names the entry where what is written does not tell."""
    fields = of_text(found.config, found.where)
    layers = layer_count(fields)
    weights = _format(fields) or _seen(found.tensors)
    held = stored(found.tensors, layers, 8 if weights in {"int8", "fp8"} else 4)
    _require_all(fields, held, layers)
    known = _heads(fields) | _experts(fields, held, layers) | _kept(layer_kinds(fields, layers), layers)
    tied = fields.flag("tie_word_embeddings") or held.head.size_bytes == 0
    head = 0 if tied else held.head.size_bytes
    try:
        return Shape.model_validate(
            known
            | {
                "layers": layers,
                "hidden": fields.whole("hidden_size", "n_embd"),
                "vocabulary": fields.whole("vocab_size"),
                "context": fields.whole(*CONTEXT),
                "layer_bytes": held.layers.size_bytes // layers,
                "embedding_bytes": held.first.size_bytes,
                "head_bytes": head,
                "draft_bytes": held.draft.size_bytes,
                "weights": weights,
            }
        )
    except ValidationError as error:
        raise fields.problem(str(error.errors()[0]["loc"][-1]), error.errors()[0]["msg"]) from error


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


def _heads(fields: Fields) -> dict[str, int]:
    heads = fields.whole("num_attention_heads", "n_head")
    latent = fields.optional("kv_lora_rank")
    if latent is not None:
        # All heads share one compressed key and value, which tensor parallelism cannot split.
        rope = fields.whole("qk_rope_head_dim", least=0)
        head = fields.whole("qk_nope_head_dim") + rope
        kept = 2 * (latent + rope) + _index_bytes(fields)
        return {"heads": heads, "kv_heads": 1, "head_dim": head, "kv_bytes_per_token": kept}
    head = fields.optional("head_dim") or fields.whole("hidden_size", "n_embd") // heads
    return {"heads": heads, "kv_heads": fields.optional("num_key_value_heads") or heads, "head_dim": head}


def _index_bytes(fields: Fields) -> int:
    """What sparse attention keeps of a token to find it again: 8 bits each, and a scale for 128 of them."""
    size = fields.optional("index_head_dim") or 0
    return size + size // 128 * 4


def _experts(fields: Fields, held: Stored, layers: int) -> dict[str, int]:
    """Means over all layers, also where some have no experts, so that sums over layers come out right."""
    count = fields.optional(*_EXPERTS, least=0) or 0
    every = held.layers
    total = every.parameters + held.first.parameters + held.head.parameters
    if every.expert_bytes == 0 or count == 0:
        if every.expert_bytes:
            raise fields.problem(_EXPERTS[0], "it is missing, and the weights hold experts")
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


def _kept(kinds: LayerKinds, layers: int) -> dict[str, int]:
    """What a sequence keeps in each kind of layer."""
    kept = {"windowed_layers": kinds.windowed, "state_bytes": kinds.state_bytes}
    if kinds.full != layers:
        kept["attention_layers"] = kinds.full
    if kinds.window is not None:
        kept["window"] = kinds.window
    return kept


def _seen(tensors: Mapping[str, Tensor]) -> Format:
    """The format that most bytes have: some repositories say it in no config.json."""
    sizes = Counter[str]()
    for tensor in tensors.values():
        sizes[tensor.dtype] += tensor.size_bytes
    most = max(sizes, key=lambda dtype: sizes[dtype], default="BF16")
    return _DTYPES.get(most, "bf16")


def _format(fields: Fields) -> Format | None:
    """How most of the weights are stored, if it is said."""
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
    weights = [group.get("weights") for group in _tables(quantised.table.get("config_groups"))]
    formats = [_of_weights(each) for each in weights if isinstance(each, dict)]
    order: tuple[Format, ...] = ("nvfp4", "mxfp4", "int4", "fp8", "int8")
    return next((each for each in order if each in formats), None)


def _tables(groups: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - whatever JSON held
    return [group for group in groups.values() if isinstance(group, dict)] if isinstance(groups, dict) else []


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
