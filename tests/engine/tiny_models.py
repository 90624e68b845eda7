"""Write a tiny model of each architecture that an engine registers, as `transformers` builds and saves it.

Run by an engine environment's Python: `python tiny_models.py OUT [ARCHITECTURE ...]`. It writes
OUT/ARCHITECTURE/config.json and model.safetensors, and OUT/index.json: for each architecture the engine's
class, and either the parts of the model as its modules have them or the reason why it cannot be built.
"""

import ast
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

# Sizes small enough for all architectures in a minute, and different from each other, so that no sum is
# right by chance.
SIZES: Mapping[int, str] = {
    256: "vocab_size vocab_size_per_layer_input ngram_vocab_size_base",
    128: "attention_hidden_size mamba_d_ssm",
    96: "intermediate_size ffn_dim ffn_hidden_size n_inner encoder_ffn_dim decoder_ffn_dim "
    "dense_intermediate_size",
    64: "hidden_size n_embd d_model dim embed_dim hidden_dim embedding_size out_hidden_size output_dim",
    40: "shared_expert_intermediate_size shared_intermediate_size projector_hidden_size",
    32: "moe_intermediate_size expert_ffn_hidden_size moe_shared_expert_intermediate_size swa_head_dim",
    24: "q_lora_rank mamba_dt_rank",
    16: "head_dim kv_lora_rank qk_nope_head_dim v_head_dim index_head_dim attention_head_dim mamba_d_head "
    "mamba_head_dim mamba_headdim linear_head_dim linear_key_head_dim linear_value_head_dim mamba_d_state "
    "ssm_state_size state_size o_lora_rank ple_embed_dim hc_lowrank hidden_size_per_layer_input adapter_rank",
    8: "qk_rope_head_dim mamba_n_heads mamba_num_heads n_mamba_heads index_n_heads laurel_rank",
    6: "num_experts num_local_experts n_routed_experts moe_num_experts",
    4: "num_attention_heads n_head n_heads num_heads attention_heads encoder_attention_heads "
    "linear_num_heads num_attention_heads_per_layer zero_expert_num "
    "decoder_attention_heads linear_num_value_heads swa_num_attention_heads",
    2: "num_key_value_heads num_kv_heads kv_n_heads num_experts_per_tok num_experts_per_token moe_topk moe_k "
    "n_groups mamba_n_groups linear_num_key_heads swa_num_key_value_heads moe_top_k top_k_experts",
    1: "first_k_dense_replace",
}
# A sound configuration where the class's own defaults are none, or show only one kind of layer.
_ROPE = {"rope_theta": 10000.0, "rope_type": "default"}
_CONV = ["conv", "conv", "full_attention", "conv", "full_attention"]
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "cohere_compass": {
        "text_config.rope_parameters": dict.fromkeys(
            ("full_attention", "sliding_attention"), _ROPE | {"mrope_section": [2, 2, 4]}
        )
    },
    "lfm2": {"layer_types": _CONV, "num_hidden_layers": 5},
    "lfm2_moe": {"layer_types": _CONV},
    "mamba2": {"num_heads": 8},
    "nemotron": {"num_key_value_heads": 2},
    "deepseek_v2": {"num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 64,
    }
    | {"indexer_compress_ratio": 4, "ple_layer_ids": [1], "eos_token_id": 2},
    "glm5_next_text": {"num_key_value_heads": 4, "qk_rope_head_dim": 0},
    "granite4_vision": {"text_config": {"model_type": "granite", "num_hidden_layers": 5, "hidden_size": 64}}
    | {"deepstack_layer_map": [[0, 1], [1, 2]], "downsample_rate": "1/2", "spatial_target_layers": [1, 2]},
    "qwen3_omni_moe": {"talker_config.text_config.shared_expert_intermediate_size": 40}
    | {"talker_config.spatial_merge_size": 2},
    "ernie4_5_vl_moe_text": {"rope_parameters": _ROPE | {"mrope_section": [2, 2, 4]}},
    "cosmos3_edge": {"text_config.rope_parameters": _ROPE | {"mrope_section": [4, 2, 2]}},
    "dbrx": {"attn_config.rope_theta": 10000.0},
    "zaya": {"num_experts_per_tok": 1},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "jamba": {"attn_layer_period": 3, "attn_layer_offset": 1},
    "zamba2": {"num_query_groups": 4, "kv_channels": 32},
}
SMALL = {name: size for size, names in SIZES.items() for name in names.split()}
COUNTS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "depth",
    "encoder_layers",
    "decoder_layers",
)
FEWEST, MOST = 5, 12
# No tiny model is larger: one that is has a size that SMALL does not know.
PARAMETERS = 130_000_000
WORDS = SMALL["vocab_size"]
# transformers writes some names with other capitals than the published config.json and the engine.
CLASSES: Mapping[str, Any] = {
    name.lower(): getattr(transformers, name)
    for name in dir(transformers)
    if name.endswith(("ForCausalLM", "ForConditionalGeneration", "LMHeadModel"))
}
BASE = transformers.PreTrainedConfig().to_dict() | {"_name_or_path": "", "output_attentions": False}
REGISTRIES = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS")


def main(out: Path, wanted: list[str]) -> None:
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    known = registered()
    index = {name: known.get(name, {}) | outcome(name, out) for name in wanted or sorted(known)}
    out.mkdir(parents=True, exist_ok=True)
    (out / "index.json").write_text(json.dumps(index, indent=1))
    print(json.dumps({name: entry.get("error", "built") for name, entry in index.items()}, indent=1))


def registered() -> dict[str, dict[str, str]]:
    """The generating architectures of this environment's engine, each with the line that registers it."""
    found: dict[str, dict[str, str]] = {}
    if spec := importlib.util.find_spec("vllm"):
        path = Path(*spec.submodule_search_locations or ()) / "model_executor" / "models" / "registry.py"
        for node in ast.parse(path.read_text()).body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as table) if name in REGISTRIES:
                    for key, (module, class_) in ast.literal_eval(table).items():
                        found[key] = {
                            "engine": "vllm",
                            "class": class_,
                            "source": source(path, module, class_),
                        }
                case _:
                    pass
    if spec := importlib.util.find_spec("sglang"):
        for path in sorted((Path(*spec.submodule_search_locations or ()) / "srt" / "models").glob("*.py")):
            for class_ in entries(path):
                found[class_] = {"engine": "sglang", "class": class_, "source": defined(path, class_)}
    return found


def source(registry: Path, module: str, class_: str) -> str:
    """Where a class is defined: in a module beside the registry, or in a package named in full."""
    if not module.startswith("vllm."):
        return defined(registry.with_name(f"{module}.py"), class_)
    folder = registry.parents[3].joinpath(*module.split("."))
    found = [defined(path, class_) for path in sorted(folder.rglob("*.py"))]
    # A class of one name for each kind of device: those of NVIDIA's before the others.
    return min((each for each in found if each), key=lambda each: "nvidia" not in each, default="")


def defined(path: Path, class_: str) -> str:
    """FILE:LINE of a class, from the engine's own folder on; nothing if the file does not define it."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith((f"class {class_}(", f"class {class_}:")):
            return f"{path.as_posix().rpartition('/site-packages/')[2]}:{number}"
    return ""


def entries(path: Path) -> list[str]:
    """The classes that a module of SGLang's registers: names or a list of them under `EntryClass`."""
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="EntryClass")], value=value):
                names = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
                return [each.id for each in names if isinstance(each, ast.Name)]
            case _:
                pass
    return []


def outcome(name: str, out: Path) -> dict[str, Any]:
    try:
        return written(name, out / name)
    except Exception as error:  # noqa: BLE001 - whatever a family's code raises is its reason
        text = " ".join(str(error).split())
        return {"error": f"{type(error).__name__}: {text[:200]}"}


def written(name: str, folder: Path) -> dict[str, Any]:
    class_ = CLASSES.get(name.lower())
    if class_ is None:
        raise LookupError(f"transformers {transformers.__version__} has no such class")
    config = tiny(class_.config_class)
    if config.is_encoder_decoder:
        raise TypeError("an encoder and a decoder, no language model alone")
    with torch.device("meta"):
        sizes = {key: each.numel() for key, each in class_(config).named_parameters()}
    if sum(sizes.values()) > PARAMETERS:
        most = max(sizes, key=lambda key: sizes[key])
        raise OverflowError(f"{sum(sizes.values())} parameters, {sizes[most]} of them {most}")
    model = class_._from_config(config, dtype=torch.bfloat16)  # noqa: SLF001 - as from_pretrained builds it
    model.save_pretrained(folder)
    return {"parts": parts(model), "config": type(config).__name__}


def tiny(class_: type[Any]) -> Any:
    return class_(**shrunk(class_().to_dict()))


def shrunk(table: dict[str, Any]) -> dict[str, Any]:
    """The same configuration with small sizes and as many layers as show each kind of them."""
    whole = next((table[name] for name in COUNTS if isinstance(table.get(name), int)), 0)
    lists = [value for value in table.values() if isinstance(value, list) and value and len(value) == whole]
    few = max([FEWEST, *(covering(value) for value in lists)])
    found = {
        name: smaller(name, value, whole, few)
        for name, value in table.items()
        if name not in BASE or value != BASE[name]
    }
    for path, value in FAMILIES.get(table.get("model_type", ""), {}).items():
        *inner, last = path.split(".")
        at = found
        for each in inner:
            at = at[each]
        at[last] = value
    return found


def covering(values: list[Any]) -> int:
    """How many of the first layers hold each kind, so far as the first few do."""
    kinds = [json.dumps(value) for value in values]
    return min(max(kinds.index(kind) for kind in set(kinds)) + 1, MOST)


def smaller(name: str, value: Any, whole: int, few: int) -> Any:
    if isinstance(value, dict):
        if name.endswith("_config") and "model_type" in value:
            return shrunk(value)
        if value and name == "per_layer_config":
            return {int(key): doubled(each) for key, each in value.items() if int(key) < few}
    if isinstance(value, list):
        kept = value[:few] if whole and len(value) == whole else value
        return [smaller(name, each, 0, 0) for each in kept] if name in SMALL or kept is not value else value
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if name.endswith("token_id"):
        return value % WORDS
    return few if name in COUNTS else SMALL.get(name, value)


def doubled(table: dict[str, Any]) -> dict[str, Any]:
    return {name: 2 * SMALL[name] if name in SMALL else value for name, value in table.items()}


def parts(model: Any) -> dict[str, Any]:
    """Bytes as the model's own modules hold them: no name of a tensor is read."""
    text = getattr(model, "thinker", model)
    head, embedding = text.get_output_embeddings(), text.get_input_embeddings()
    tied = head is not None and embedding is not None and head.weight is embedding.weight
    layers = decoder_layers(text)
    return {
        "total": size_bytes(model),
        "unused": size_bytes(model) - size_bytes(text),
        "layers": [size_bytes(*layer) for layer in layers],
        "experts": [size_bytes(*experts(layer)) for layer in layers],
        "head": 0 if tied or head is None else size_bytes(head),
    }


def decoder_layers(model: Any) -> list[list[Any]]:
    """Each decoder layer's modules: the layers of one number where a model has several stacks."""
    text = model.get_decoder() if hasattr(model, "get_decoder") else model
    lists = [
        module
        for name, module in text.named_modules()
        if isinstance(module, torch.nn.ModuleList) and name.rsplit(".", 1)[-1] in {"layers", "h", "blocks"}
    ]
    most = max((len(each) for each in lists), default=0)
    return [list(same) for same in zip(*(each for each in lists if len(each) == most), strict=True)]


def experts(layer: list[Any]) -> list[Any]:
    """The modules of a layer that hold all routed experts, stacked or in a list."""
    count = SMALL["num_experts"]
    return [
        module
        for each in layer
        for module in each.modules()
        if (isinstance(module, torch.nn.ModuleList) and len(module) == count)
        or (type(module).__name__.endswith("Experts") and "Shared" not in type(module).__name__)
        or any(value.ndim == 3 and value.shape[0] == count for value in module.parameters(recurse=False))
    ]


def size_bytes(*modules: Any) -> int:
    """Parameters and saved buffers, each once."""
    saved = {id(value): value for each in modules for value in each.state_dict(keep_vars=True).values()}
    return sum(value.numel() * value.element_size() for value in saved.values())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
