"""Write a tiny model of each architecture that an engine registers, as `transformers` builds and saves it.

Run by an engine environment's Python: `python tiny_models.py OUT [ARCHITECTURE ...]`. It writes
OUT/ARCHITECTURE/config.json and model.safetensors, and OUT/index.json: for each architecture the engine's
class, and either the parts of the model as its modules have them or the reason why it cannot be built.
"""

import ast
import contextlib
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

# Sizes small enough for all architectures in a minute, and different from each other, so that no sum is
# right by chance.
SIZES: Mapping[int, tuple[str, ...]] = {
    64: (
        "hidden_size",
        "n_embd",
        "d_model",
        "dim",
        "embed_dim",
        "hidden_dim",
        "embedding_size",
        "out_hidden_size",
    ),
    4: (
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
        "attention_heads",
        "encoder_attention_heads",
    ),
    2: ("num_key_value_heads", "num_kv_heads", "kv_n_heads", "num_experts_per_tok", "moe_topk", "moe_k"),
    16: (
        "head_dim",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "v_head_dim",
        "index_head_dim",
        "attention_head_dim",
    ),
    8: ("qk_rope_head_dim",),
    24: ("q_lora_rank",),
    96: (
        "intermediate_size",
        "ffn_dim",
        "ffn_hidden_size",
        "n_inner",
        "encoder_ffn_dim",
        "dense_intermediate_size",
    ),
    32: ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_shared_expert_intermediate_size"),
    40: ("shared_expert_intermediate_size", "shared_intermediate_size"),
    6: ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    256: ("vocab_size",),
}
SMALL = {name: size for size, names in SIZES.items() for name in names}
COUNTS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "depth",
    "encoder_layers",
    "decoder_layers",
)
FEWEST, MOST = 4, 12
# No tiny model is larger: one that is has a size that SMALL does not know.
PARAMETERS = 20_000_000
WORDS = SMALL["vocab_size"]
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
    """The generating architectures of the engine of this environment, each with its class and module."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0]) / "model_executor" / "models" / "registry.py"
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict()) if name in REGISTRIES:
                for architecture, (module, class_) in ast.literal_eval(node.value).items():
                    found[architecture] = {"kind": name, "module": module, "class": class_}
            case _:
                pass
    return found


def outcome(name: str, out: Path) -> dict[str, Any]:
    try:
        return written(name, out / name)
    except Exception as error:  # noqa: BLE001 - whatever a family's code raises is its reason
        text = " ".join(str(error).split())
        return {"error": f"{type(error).__name__}: {text[:200]}"}


def written(name: str, folder: Path) -> dict[str, Any]:
    class_ = getattr(transformers, name, None)
    if class_ is None:
        raise LookupError(f"transformers {transformers.__version__} has no such class")
    config = tiny(class_.config_class)
    with torch.device("meta"):
        large = sum(each.numel() for each in class_(config).parameters())
    if large > PARAMETERS:
        raise OverflowError(f"{large} parameters")
    model = class_._from_config(config, dtype=torch.bfloat16)  # noqa: SLF001 - as from_pretrained builds it
    model.save_pretrained(folder)
    return {"parts": parts(model), "config": class_.config_class.__name__}


def tiny(class_: type[Any]) -> Any:
    config = class_(**shrunk(class_().to_dict()))
    config.architectures = None
    return config


def shrunk(table: dict[str, Any]) -> dict[str, Any]:
    """The same configuration with small sizes and as many layers as show each kind of them."""
    whole = next((table[name] for name in COUNTS if isinstance(table.get(name), int)), 0)
    lists = [value for value in table.values() if isinstance(value, list) and len(value) == whole]
    few = max([FEWEST, *(covering(value) for value in lists)])
    found = {name: smaller(name, value, whole, few) for name, value in table.items()}
    return {name: value for name, value in found.items() if name not in {"transformers_version", "dtype"}}


def covering(values: list[Any]) -> int:
    """How many of the first layers hold each kind, so far as the first few do."""
    kinds = [json.dumps(value) for value in values]
    return min(max(kinds.index(kind) for kind in set(kinds)) + 1, MOST)


def smaller(name: str, value: Any, whole: int, few: int) -> Any:
    if isinstance(value, dict) and name.endswith("_config"):
        return shrunk(value)
    if isinstance(value, list) and whole and len(value) == whole:
        return value[:few]
    if value is None or isinstance(value, bool):
        return value
    if name in COUNTS:
        return few
    if name.endswith("token_id") and isinstance(value, int):
        return value % WORDS
    return SMALL.get(name, value) if isinstance(value, int) else value


def parts(model: Any) -> dict[str, Any]:
    """Bytes as the model's own modules hold them: no name of a tensor is read."""
    head = model.get_output_embeddings()
    embedding = model.get_input_embeddings()
    tied = head is not None and embedding is not None and head.weight is embedding.weight
    layers = decoder_layers(model)
    return {
        "total": size_bytes(model),
        "layers": [size_bytes(layer) for layer in layers],
        "kinds": [type(layer).__name__ for layer in layers],
        "embedding": size_bytes(embedding) if embedding is not None else 0,
        "head": 0 if tied or head is None else size_bytes(head),
        "tied": tied,
    }


def decoder_layers(model: Any) -> list[Any]:
    """The longest list of modules of the text model, of which a config's layer count speaks."""
    text = model.get_decoder() if hasattr(model, "get_decoder") else model
    with contextlib.suppress(StopIteration):
        return list(next(lists_of(text)))
    return []


def lists_of(model: Any) -> Iterator[Any]:
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and name.rsplit(".", 1)[-1] in {"layers", "h", "blocks"}:
            yield module


def size_bytes(module: Any) -> int:
    """Parameters and saved buffers, each once."""
    saved = {id(value): value for value in module.state_dict(keep_vars=True).values()}
    return sum(value.numel() * value.element_size() for value in saved.values())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
