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
from medley.schema import Made

# Byte-level BPE writes byte 0x20 as this letter (the table of GPT-2's tokenizer).
_SPACE = "Ġ"
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiou"
_END_OF_TEXT, _START, _END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_TABLES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("demo.json").read_text(encoding="utf-8")
)
"""The model's files; null is what its own table says, or what the tokenizer is made of."""
# A usual initialisation (0.02) gives near-equal logits; wider weights make greedy answers decisive, so that
# two runs, or one and two hosts, can be compared token by token.
_DEVIATION = 0.1
# Raised when the same table is written into other files.
_FORMAT = 2


def digest(made: Made) -> str:
    """Hash all that shapes the model, to 8 hex digits."""
    return hashlib.sha256(f"{_FORMAT} {made.model_dump_json()}".encode()).hexdigest()[:8]


def make(made: Made, folder: Path) -> Path:
    """Write the model into `folder` unless it is there, whole or not at all; returns the folder."""
    if storage.exists(folder / "config.json"):
        return folder
    storage.make(folder.parent)
    with storage.explained(folder, "written"):
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        write(made, draft)
        draft.chmod(0o755)
        draft.rename(folder)
    except OSError as error:
        if not (folder / "config.json").is_file():  # else another process was first, with the same model
            raise storage.problem_of(folder, error, "written") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def write(made: Made, folder: Path) -> None:
    # It never comes to an end by itself: an answer has max_new_tokens unless more is asked for.
    tables = _TABLES | {
        "config.json": config(made),
        "tokenizer.json": tokenizer(made.vocabulary),
        "tokenizer_config.json": _TABLES["tokenizer_config.json"] | {"model_max_length": made.context},
    }
    for name, table in tables.items():
        (folder / name).write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")
    with (folder / "model.safetensors").open("wb") as file:
        header = _header(made)
        file.write(struct.pack("<Q", len(header)) + header)
        source = random.Random(made.seed)  # noqa: S311 - weights, not secrets
        for name, shape in shapes(made).items():
            file.write(_weights(name, shape, source))


def config(made: Made) -> dict[str, object]:
    """config.json of a Qwen3ForCausalLM."""
    return _TABLES["config.json"] | {
        "head_dim": made.head_dim,
        "hidden_size": made.hidden,
        "intermediate_size": made.intermediate,
        "max_position_embeddings": made.context,
        "max_window_layers": made.layers,
        "num_attention_heads": made.heads,
        "num_hidden_layers": made.layers,
        "num_key_value_heads": made.kv_heads,
        "vocab_size": made.vocabulary,
    }


def shapes(made: Made) -> dict[str, tuple[int, ...]]:
    """List tensor shapes by Qwen3's names, in the file's order."""
    hidden, wide, slim = made.hidden, made.heads * made.head_dim, made.kv_heads * made.head_dim
    tensors: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (made.vocabulary, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (made.vocabulary, hidden),
    }
    for layer in range(made.layers):
        at = f"model.layers.{layer}"
        tensors |= {
            f"{at}.input_layernorm.weight": (hidden,),
            f"{at}.post_attention_layernorm.weight": (hidden,),
            f"{at}.self_attn.q_proj.weight": (wide, hidden),
            f"{at}.self_attn.k_proj.weight": (slim, hidden),
            f"{at}.self_attn.v_proj.weight": (slim, hidden),
            f"{at}.self_attn.o_proj.weight": (hidden, wide),
            f"{at}.self_attn.q_norm.weight": (made.head_dim,),
            f"{at}.self_attn.k_norm.weight": (made.head_dim,),
            f"{at}.mlp.gate_proj.weight": (made.intermediate, hidden),
            f"{at}.mlp.up_proj.weight": (made.intermediate, hidden),
            f"{at}.mlp.down_proj.weight": (hidden, made.intermediate),
        }
    return tensors


def tokenizer(size: int) -> dict[str, object]:
    """Make a byte-level BPE tokenizer of exactly `size` entries: bytes, syllables ("ba"), pairs of them."""
    bytes_ = _byte_letters()
    room = size - 3 - len(bytes_)
    merges = list(islice(_merges(), room))
    vocabulary = [_END_OF_TEXT, _START, _END, *bytes_, *(left + right for left, right in merges)]
    special = [
        {"id": id_, "content": word, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for id_, word in enumerate(vocabulary[:3])
    ]
    found = _TABLES["tokenizer.json"]
    own = {
        "vocab": {word: id_ for id_, word in enumerate(vocabulary)},
        "merges": [list(pair) for pair in merges],
    }
    return found | {"added_tokens": special, "model": found["model"] | own}


def _merges() -> Iterator[tuple[str, str]]:
    """Yield pairs to merge by rank: 105 syllables, each after a space, then words of two."""
    syllables = [c + v for c, v in product(_CONSONANTS, _VOWELS)]
    yield from product(_CONSONANTS, _VOWELS)
    yield from ((_SPACE, syllable) for syllable in syllables)
    yield from ((_SPACE + first, second) for first, second in product(syllables, syllables))


def _byte_letters() -> list[str]:
    """The 256 letters that stand for bytes: printable ones for themselves, the rest from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]


def _header(made: Made) -> bytes:
    """Safetensors' header: names, shapes and offsets as JSON, padded to 8 bytes."""
    tensors: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes(made).items():
        end = offset + 2 * prod(shape)
        tensors[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(tensors).encode()
    return text + b" " * (-len(text) % 8)


def _weights(name: str, shape: tuple[int, ...], source: random.Random) -> bytes:
    """Make a tensor's bfloat16 bytes: ones for a norm, else normal noise (a loop would be slow)."""
    count = prod(shape)
    if name.endswith("norm.weight"):
        return struct.pack("<f", 1.0)[2:] * count
    noise = source.randbytes(count)
    weights = bytearray(2 * count)
    weights[0::2], weights[1::2] = noise.translate(_LOW), noise.translate(_HIGH)
    return bytes(weights)


# The low and the high byte of each quantile as bfloat16, which is the upper half of a float32.
_QUANTILES = (NormalDist(0, _DEVIATION).inv_cdf((step + 0.5) / 256) for step in range(256))
_LOW, _HIGH = map(bytes, zip(*(struct.pack("<f", each)[2:] for each in _QUANTILES), strict=True))
