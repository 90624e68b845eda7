"""Read config.json and safetensors headers; add up bytes by layer, expert and embedding."""

import contextlib
import json
import re
import shlex
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal

from medley.errors import Problem, in_words

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
QUANTIZATION = "hf_quant_config.json"
"""How ModelOpt before 0.31 says what it quantized, where config.json says nothing: vLLM 0.33 reads it too
(transformers_utils/config.py, get_config)."""
_WEIGHTS = {".safetensors", ".bin", ".gguf", ".pt"}
# The format's own limit; a longer one is no header.
_LONGEST_BYTES = 100_000_000
_AGAIN = "fetch that file again"
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
# Parts beside the language model that an engine keeps with the embedding, on the first stage.
_BESIDE = re.compile(r"(?:^|\.)(?:\w*vision\w*|visual|vit|\w*audio\w*|multi_modal_projector|mlp1|encoder)\.")
# ChatGLM and Qianfan-OCR call their decoder so too.
_DECODER = re.compile(r"^(?:transformer|language_model\.model)\.encoder\.layers\.")
_DRAFT = re.compile(r"(?:^|\.)mtp\w*\.")
# Speech that Qwen's Omni models make of their answers; both engines load the thinker only
# (vllm/model_executor/models/qwen2_5_omni_thinker.py, sglang/srt/models/qwen3_omni_moe.py).
_UNUSED = re.compile(r"^(?:talker|token2wav|code2wav)\.")
# DeepSeek V4 and InternLM2 have it under these names at the top, ChatGLM as output_layer, Inkling as unembed.
_HEAD = re.compile(
    r"(?:^|\.)(?:lm_head|output_layer|embed_out|unembed)\.|^(?:language_model\.)?(?:head|output)\."
)
# Belongs to the router, which has no scale of its own.
_ROUTER = re.compile(r"\.e_score_correction_bias$")
# Scales and zero points take bytes and are no parameters.
_SCALE = re.compile(
    r"(?:scales?|scale_inv|scale_2|_scale_\d|qzeros|g_idx|weight_shape|zero_point|absmax|quant_map)$"
)
_PACKED = re.compile(r"(?:weight|weight_packed|blocks|qweight|_proj)$")
Part = Literal["layers", "first", "head", "draft", "unused"]


@dataclass(frozen=True)
class Tensor:
    dtype: str
    """As safetensors writes it: BF16, F8_E4M3, U8 …"""
    shape: tuple[int, ...]
    size_bytes: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


def read_tensors(path: Path) -> dict[str, Tensor]:
    with readable(path), path.open("rb") as file:
        length = _length(file.read(8), str(path))
        text = file.read(length)
        size_bytes = path.stat().st_size
    if len(text) < length:
        raise _wrong(str(path), f"its header of {length} bytes ends after {len(text)}")
    found = tensors(text, str(path))
    wanted = 8 + length + sum(tensor.size_bytes for tensor in found.values())
    if size_bytes < wanted:
        raise _wrong(str(path), f"it has {size_bytes} bytes of the {wanted} that its header promises")
    return found


def _length(start: bytes, where: str) -> int:
    if start.startswith(b"version "):
        raise Problem(
            f"{where} is not the weights",
            cause="it is a Git LFS pointer: the repository was cloned without its large files",
            fix="git lfs pull  # in that folder",
        )
    if len(start) < 8:  # noqa: PLR2004 - the format's
        raise _wrong(where, f"it has {len(start)} bytes, and the length alone takes 8")
    length: int = struct.unpack("<Q", start)[0]
    if not 0 < length <= _LONGEST_BYTES:
        raise _wrong(where, f"its header would be {length} bytes long")
    return length


def tensors(text: bytes | str, where: str) -> dict[str, Tensor]:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(where, f"its header is not JSON: {error}") from error
    if not isinstance(table, dict):
        raise _wrong(where, "its header is not a table")
    return {name: _tensor(name, entry, where) for name, entry in table.items() if name != "__metadata__"}


def _tensor(name: str, entry: Any, where: str) -> Tensor:  # noqa: ANN401 - whatever JSON held
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]} if (
            0 <= start <= end and all(isinstance(size, int) and size >= 0 for size in shape)
        ):
            return Tensor(dtype, tuple(shape), end - start)
        case _:
            raise _wrong(where, f"what its header says of {name!r} has no dtype, shape and data_offsets")


def weight_files(index: Mapping[str, Any], where: str) -> tuple[str, ...]:
    spread = index.get("weight_map")
    names = list(spread.values()) if isinstance(spread, dict) else []
    plain = (
        isinstance(each, str) and each not in {"", ".", ".."} and not {"/", "\0"} & set(each)
        for each in names
    )
    if names and all(plain):
        return tuple(sorted(set(names)))
    raise Problem(
        f"{where} names no files",
        cause="'weight_map' is not a table of tensors and their files",
        fix=_AGAIN,
    )


def _wrong(where: str, cause: str) -> Problem:
    return Problem(f"{where} is not whole safetensors", cause=cause, fix=_AGAIN)


@dataclass(frozen=True)
class Checkpoint:
    where: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    index: Mapping[str, Any] | None = None
    """model.safetensors.index.json, or empty, instead of headers: then bytes are estimated."""


def read_config(folder: Path) -> Checkpoint:
    """Read config.json and the index, if it is there, of a folder without weights."""
    index = table(folder / INDEX) if (folder / INDEX).is_file() else {}
    return Checkpoint(str(folder), _configuration(folder), {}, index)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read config.json and all headers of a folder, or its index if it has no weights."""
    if not has_weights(folder):
        return read_config(folder)
    config = _configuration(folder)
    tensors: dict[str, Tensor] = {}
    for path in _files(folder):
        tensors |= read_tensors(path)
    return Checkpoint(str(folder), config, tensors)


def _configuration(folder: Path) -> Mapping[str, Any]:
    config = table(folder / CONFIG)
    if names_quantization(config) or not (folder / QUANTIZATION).is_file():
        return config
    return with_quantization(config, table(folder / QUANTIZATION))


def names_quantization(config: Mapping[str, Any]) -> bool:
    """Whether config.json says how its weights are stored, for the whole or for a part of the model."""
    parts = (config, *(each for each in config.values() if isinstance(each, dict)))
    return any(each.get(name) for each in parts for name in ("quantization_config", "compression_config"))


def with_quantization(config: Mapping[str, Any], quantization: Mapping[str, Any]) -> dict[str, Any]:
    """Return config.json with what hf_quant_config.json says."""
    return {**config, "quantization_config": dict(quantization)}


def has_weights(folder: Path) -> bool:
    with readable(folder):
        return any(path.suffix in _WEIGHTS for path in folder.iterdir())


def _files(folder: Path) -> list[Path]:
    if (folder / INDEX).is_file():
        paths = [folder / name for name in weight_files(table(folder / INDEX), str(folder / INDEX))]
    elif (folder / SINGLE).is_file():
        return [folder / SINGLE]
    else:
        # Mistral's repositories hold the same weights a second time under this name.
        paths = [path for path in sorted(folder.glob("*.safetensors")) if "consolidated" not in path.name]
    missing = [path.name for path in paths if not path.is_file()]
    if missing or not paths:
        raise Problem(
            f"{folder} does not hold the whole model",
            cause=f"{len(missing)} of {len(paths)} files are missing: {', '.join(missing[:3])}"
            if missing
            else "it has no *.safetensors",
            fix="fetch the model again, or name a folder that holds all of it as safetensors",
        )
    return paths


def table(path: Path) -> dict[str, Any]:
    with readable(path):
        return parsed(path.read_bytes(), str(path))


def parsed(text: bytes, where: str) -> dict[str, Any]:
    found = json_value(text, where)
    if not isinstance(found, dict):
        raise Problem(f"{where} is not a table", cause="it holds something else", fix=_AGAIN)
    return found


def json_value(text: bytes, where: str) -> Any:  # noqa: ANN401 - JSON may hold anything
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Problem(f"{where} is not JSON", cause=str(error), fix=_AGAIN) from error


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a Problem."""
    try:
        yield
    except OSError as error:
        raise Problem(
            f"{path} cannot be read", cause=in_words(error), fix=f"ls -l {shlex.quote(str(path))}"
        ) from error


@dataclass
class Amount:
    size_bytes: int = 0
    parameters: int = 0
    expert_bytes: int = 0
    expert_parameters: int = 0


@dataclass
class Stored:
    layers: Amount = field(default_factory=Amount)
    first: Amount = field(default_factory=Amount)
    """The embedding, and all that belongs to no layer."""
    head: Amount = field(default_factory=Amount)
    draft: Amount = field(default_factory=Amount)
    """Layers that guess further tokens (MTP), loaded only if used."""
    unused: Amount = field(default_factory=Amount)
    """Parts of the checkpoint that no engine loads."""
    seen: set[int] = field(default_factory=set)


def stored(tensors: Mapping[str, Tensor], layers: int, bits: int, experts: int | None = None) -> Stored:
    """Add up the tensors of a model of so many layers; `bits` is what one packed weight takes."""
    found = Stored()
    for name, tensor in tensors.items():
        part, layer = part_of(name, layers)
        if part == "layers":
            found.seen.add(layer)
        amount: Amount = getattr(found, part)
        count = parameters(name, tensor, bits)
        amount.size_bytes += tensor.size_bytes
        amount.parameters += count
        if _routed(name, tensor, experts):
            amount.expert_bytes += tensor.size_bytes
            amount.expert_parameters += count
    return found


def _routed(name: str, tensor: Tensor, experts: int | None) -> bool:
    """Check for routed experts: by name, or by a shape of one matrix for each."""
    match tensor.shape:
        case (int(count), int(rows), _, *_) if count == experts and rows > 1:  # a convolution has one row
            return True
        case _:
            return "experts" in name.split(".") and not _ROUTER.search(name)


def part_of(name: str, layers: int) -> tuple[Part, int]:
    if _UNUSED.search(name):
        return "unused", 0
    if _DRAFT.search(name):
        return "draft", 0
    if _BESIDE.search(name) and not _DECODER.search(name):
        return "first", 0
    numbered = _LAYER.search(name)
    if numbered is not None:
        layer = int(numbered[1])
        # DeepSeek's and GLM's draft layers are counted on after the others.
        return ("layers", layer) if layer < layers else ("draft", 0)
    return ("head", 0) if _HEAD.search(name) else ("first", 0)


def parameters(name: str, tensor: Tensor, bits: int) -> int:
    """Count a tensor's weights: several per number if packed, none if it is a scale."""
    if _SCALE.search(name):
        return 0
    width = {"U8": 8, "I8": 8, "I32": 32, "F4": 4}.get(tensor.dtype)
    if width is None or not _PACKED.search(name) or tensor.dtype == "F4":
        return tensor.elements
    return tensor.elements * max(width // bits, 1)
