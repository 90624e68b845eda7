"""Write a config.json and a tokenizer for a model of models/, so that an engine configures itself for it.

The numbers are those of the model's table; model_configs.toml has what a table leaves out. No weights.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medley import config
from medley.model import demo
from medley.schema import Model, Shape

FAMILIES = config.read_module_table(__file__, "model_configs.toml")
_VOCABULARY = 512
# Which the parsers of thoughts look up in a tokenizer.
_TOKENS = ("<think>", "</think>", "<mm:think>", "</mm:think>", "<tool_call>", "</tool_call>")


def write(model: str, folder: Path) -> Path:
    """Write the model's folder below this one, and return it."""
    path = folder / model
    path.mkdir(exist_ok=True)
    tokens = _tokenizer()
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
    files = {"config": config_json(model), "tokenizer": tokens, "tokenizer_config": kind}
    for name, table in files.items():
        (path / f"{name}.json").write_text(json.dumps(table), encoding="utf-8")
    return path


def config_json(model: str) -> dict[str, Any]:
    table = config.load_models()[model]
    family = FAMILIES[table.architecture or ""]
    top: dict[str, Any] = {
        "model_type": table.architecture,
        "architectures": [family["class"]],
        "dtype": "bfloat16",
    }
    if stored := _quantization(table):
        top["quantization_config"] = stored
    if "vision" in family:
        top["vision_config"] = family["vision"]
    numbers = _numbers(model, table, family)
    text = family.get("text")
    return top | ({"text_config": {"model_type": text, **numbers}} if text else numbers)


def _numbers(model: str, table: Model, family: Mapping[str, Any]) -> dict[str, Any]:
    shape = table.shape
    assert shape is not None
    found: dict[str, Any] = {
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.context,
    }
    if "width" in family:
        found[family["width"]] = shape.feed_forward
    if not family.get("counted"):
        found["num_hidden_layers"] = shape.layers
    if not family.get("latent"):
        found |= {"num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim}
    if "experts" in family:
        found |= {family["experts"]: shape.experts, "num_experts_per_tok": shape.experts_per_token}
    return {**found, **_layers(shape, table), **family.get("entries", {}), **_own(model)}


def _layers(shape: Shape, table: Model) -> dict[str, Any]:
    if table.architecture != "gpt_oss":
        return {}
    return {"layer_types": ["sliding_attention", "full_attention"] * (shape.layers // 2)}


def _own(model: str) -> Mapping[str, Any]:
    """Return the entries of this model only, whatever the format of its weights."""
    named: Mapping[str, Mapping[str, Any]] = FAMILIES["model"]
    return next((entries for name, entries in named.items() if model.startswith(name)), {})


def _quantization(table: Model) -> Mapping[str, Any] | None:
    stored: Mapping[str, Mapping[str, Any]] = FAMILIES["stored"]
    assert table.shape is not None
    owner = str(table.repository).partition("/")[0]
    found = stored.get(owner) or stored.get(table.shape.weights)
    return found if table.shape.weights != "bf16" else None


def _tokenizer() -> dict[str, Any]:
    """Return a tokenizer of bytes with the tokens that parsers look up."""
    tokens = demo.build_tokenizer(_VOCABULARY)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    added = [{"id": _VOCABULARY + at, "content": token, **flags} for at, token in enumerate(_TOKENS)]
    known = tokens.get("added_tokens")
    return tokens | {"added_tokens": [*(known if isinstance(known, list) else []), *added]}
