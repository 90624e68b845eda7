"""Make a tiny model with random weights, to test everything around a real one."""

import hashlib
import json
import random
import shutil
import struct
import tempfile
from collections.abc import Iterator
from itertools import islice, product
from math import prod
from pathlib import Path
from statistics import NormalDist
from typing import Any

from medley import storage
from medley.schema import DemoSpec

# Byte-level BPE writes byte 0x20 as this letter (the table of GPT-2's tokenizer).
_SPACE = "Ġ"
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiou"
_END_OF_TEXT, _START, _END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_TABLES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("demo.json").read_text(encoding="utf-8")
)
"""The model's files; null stands for values of its table and of its tokenizer."""
# A usual initialisation (0.02) gives near-equal logits; wider weights make greedy answers decisive, so that
# two runs, or one and two hosts, can be compared token by token.
_STANDARD_DEVIATION = 0.1
# Raised when the same table is written into other files.
_FORMAT_NUMBER = 2


def compute_digest(spec: DemoSpec) -> str:
    """Hash all that shapes the model, to 8 hex digits."""
    return hashlib.sha256(f"{_FORMAT_NUMBER} {spec.to_json()}".encode()).hexdigest()[:8]


def make_model(spec: DemoSpec, folder: Path) -> Path:
    """Write the model into `folder` unless it is there, whole or not at all; return the folder."""
    if storage.exists(folder / "config.json"):
        return folder
    storage.make_folder(folder.parent)
    with storage.explain_errors(folder, "written"):
        draft_folder = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        write_model(spec, draft_folder)
        draft_folder.chmod(0o755)
        draft_folder.rename(folder)
    except OSError as error:
        if not (folder / "config.json").is_file():  # else another process was first, with the same model
            raise storage.build_file_problem(folder, error, "written") from error
    finally:
        shutil.rmtree(draft_folder, ignore_errors=True)
    return folder


def write_model(spec: DemoSpec, folder: Path) -> None:
    # It never comes to an end by itself: an answer has max_new_tokens unless more is asked for.
    tables = _TABLES | {
        "config.json": build_config(spec),
        "tokenizer.json": build_tokenizer(spec.vocabulary),
        "tokenizer_config.json": _TABLES["tokenizer_config.json"] | {"model_max_length": spec.context},
    }
    for name, table in tables.items():
        (folder / name).write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")
    with (folder / "model.safetensors").open("wb") as file:
        header = _build_header(spec)
        file.write(struct.pack("<Q", len(header)) + header)
        random_source = random.Random(spec.seed)  # noqa: S311 - weights, not secrets
        for name, shape in list_tensor_shapes(spec).items():
            file.write(_generate_weights(name, shape, random_source))


def build_config(spec: DemoSpec) -> dict[str, object]:
    """Return config.json of a Qwen3ForCausalLM."""
    return _TABLES["config.json"] | {
        "head_dim": spec.head_dim,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.intermediate,
        "max_position_embeddings": spec.context,
        "max_window_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_hidden_layers": spec.layers,
        "num_key_value_heads": spec.kv_heads,
        "vocab_size": spec.vocabulary,
    }


def list_tensor_shapes(spec: DemoSpec) -> dict[str, tuple[int, ...]]:
    """Return tensor shapes by Qwen3's names, in the file's order."""
    hidden, query_width, key_width = spec.hidden, spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    tensors: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (spec.vocabulary, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (spec.vocabulary, hidden),
    }
    for layer in range(spec.layers):
        prefix = f"model.layers.{layer}"
        tensors |= {
            f"{prefix}.input_layernorm.weight": (hidden,),
            f"{prefix}.post_attention_layernorm.weight": (hidden,),
            f"{prefix}.self_attn.q_proj.weight": (query_width, hidden),
            f"{prefix}.self_attn.k_proj.weight": (key_width, hidden),
            f"{prefix}.self_attn.v_proj.weight": (key_width, hidden),
            f"{prefix}.self_attn.o_proj.weight": (hidden, query_width),
            f"{prefix}.self_attn.q_norm.weight": (spec.head_dim,),
            f"{prefix}.self_attn.k_norm.weight": (spec.head_dim,),
            f"{prefix}.mlp.gate_proj.weight": (spec.intermediate, hidden),
            f"{prefix}.mlp.up_proj.weight": (spec.intermediate, hidden),
            f"{prefix}.mlp.down_proj.weight": (hidden, spec.intermediate),
        }
    return tensors


def build_tokenizer(size: int) -> dict[str, object]:
    """Return a byte-level BPE tokenizer of exactly `size` entries: bytes, syllables ("ba"), pairs of them."""
    byte_letters = _list_byte_letters()
    merge_count = size - 3 - len(byte_letters)
    merges = list(islice(_list_merges(), merge_count))
    vocabulary = [_END_OF_TEXT, _START, _END, *byte_letters, *(left + right for left, right in merges)]
    special = [
        {"id": id_, "content": word, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for id_, word in enumerate(vocabulary[:3])
    ]
    table = _TABLES["tokenizer.json"]
    demo_entries = {
        "vocab": {word: id_ for id_, word in enumerate(vocabulary)},
        "merges": [list(pair) for pair in merges],
    }
    return table | {"added_tokens": special, "model": table["model"] | demo_entries}


def _list_merges() -> Iterator[tuple[str, str]]:
    """Yield pairs to merge by rank: 105 syllables, each after a space, then words of two."""
    syllables = [c + v for c, v in product(_CONSONANTS, _VOWELS)]
    yield from product(_CONSONANTS, _VOWELS)
    yield from ((_SPACE, syllable) for syllable in syllables)
    yield from ((_SPACE + first, second) for first, second in product(syllables, syllables))


def _list_byte_letters() -> list[str]:
    """Return the 256 letters that stand for bytes: printable ones for themselves, the rest from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved_letters = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(moved_letters)) for byte in range(256)]


def _build_header(spec: DemoSpec) -> bytes:
    """Return the header of safetensors: names, shapes and offsets as JSON, padded to 8 bytes."""
    tensors: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in list_tensor_shapes(spec).items():
        end = offset + 2 * prod(shape)
        tensors[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(tensors).encode()
    return text + b" " * (-len(text) % 8)


def _generate_weights(name: str, shape: tuple[int, ...], random_source: random.Random) -> bytes:
    """Return a tensor's bfloat16 bytes: ones for a norm, else normal noise (a loop would be slow)."""
    count = prod(shape)
    if name.endswith("norm.weight"):
        return struct.pack("<f", 1.0)[2:] * count
    noise = random_source.randbytes(count)
    weights = bytearray(2 * count)
    weights[0::2], weights[1::2] = noise.translate(_LOW), noise.translate(_HIGH)
    return bytes(weights)


# The low and the high byte of each quantile as bfloat16, which is the upper half of a float32.
_QUANTILES = (NormalDist(0, _STANDARD_DEVIATION).inv_cdf((step + 0.5) / 256) for step in range(256))
_LOW, _HIGH = map(bytes, zip(*(struct.pack("<f", each)[2:] for each in _QUANTILES), strict=True))
