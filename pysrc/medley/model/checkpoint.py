"""Read config.json and safetensors headers; add up bytes by layer, expert and embedding."""

import contextlib
import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal

from medley.command import quote_path
from medley.errors import Problem, describe_error
from medley.values import Value

CONFIG_FILE, WEIGHTS_FILE, INDEX_FILE = "config.json", "model.safetensors", "model.safetensors.index.json"
QUANTIZATION_FILE = "hf_quant_config.json"
"""The file in which ModelOpt before 0.31 names the quantization, where config.json does not.

vLLM 0.33 reads it too (transformers_utils/config.py, get_config).
"""
_WEIGHT_SUFFIXES = {".safetensors", ".bin", ".gguf", ".pt"}
# The format's own limit; a longer one is no header.
_MAX_HEADER_BYTES = 100_000_000
_FETCH_AGAIN = "fetch that file again"
_LAYER_PATTERN = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
# Parts beside the language model that an engine keeps with the embedding, on the first stage.
_OTHER_PARTS_PATTERN = re.compile(
    r"(?:^|\.)(?:\w*vision\w*|visual|vit|\w*audio\w*|multi_modal_projector|mlp1|encoder)\."
)
# ChatGLM and Qianfan-OCR call their decoder so too.
_DECODER_PATTERN = re.compile(r"^(?:transformer|language_model\.model)\.encoder\.layers\.")
_DRAFT_PATTERN = re.compile(r"(?:^|\.)mtp\w*\.")
# Speech that Qwen's Omni models make of their answers; both engines load the thinker only
# (vllm/model_executor/models/qwen2_5_omni_thinker.py, sglang/srt/models/qwen3_omni_moe.py).
_UNUSED_PATTERN = re.compile(r"^(?:talker|token2wav|code2wav)\.")
# DeepSeek V4 and InternLM2 have it under these names at the top, ChatGLM as output_layer, Inkling as unembed.
_HEAD_PATTERN = re.compile(
    r"(?:^|\.)(?:lm_head|output_layer|embed_out|unembed)\.|^(?:language_model\.)?(?:head|output)\."
)
# Belongs to the router, which has no scale of its own.
_ROUTER_PATTERN = re.compile(r"\.e_score_correction_bias$")
# Scales and zero points take bytes and are no parameters.
_SCALE_PATTERN = re.compile(
    r"(?:scales?|scale_inv|scale_2|_scale_\d|qzeros|g_idx|weight_shape|zero_point|absmax|quant_map)$"
)
_PACKED_PATTERN = re.compile(r"(?:weight|weight_packed|blocks|qweight|_proj)$")
Part = Literal["layers", "first", "head", "draft", "unused"]


class Tensor(Value):
    dtype: str
    """The data type as safetensors writes it: BF16, F8_E4M3, U8 …"""
    shape: tuple[int, ...]
    size_bytes: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file; raise a Problem if its header or its size is wrong."""
    with raise_read_problem(path), path.open("rb") as file:
        length = _read_header_length(file.read(8), str(path))
        text = file.read(length)
        size_bytes = path.stat().st_size
    if len(text) < length:
        raise _build_bad_safetensors_problem(
            str(path), f"its header of {length} bytes ends after {len(text)}"
        )
    header = parse_header(text, str(path))
    expected_bytes = 8 + length + sum(tensor.size_bytes for tensor in header.values())
    if size_bytes < expected_bytes:
        raise _build_bad_safetensors_problem(
            str(path), f"it has {size_bytes} bytes of the {expected_bytes} that its header promises"
        )
    return header


def _read_header_length(start: bytes, where: str) -> int:
    """Return the length of the header from the first 8 bytes of the file."""
    if start.startswith(b"version "):
        raise Problem(
            f"{where} is not the weights",
            cause="it is a Git LFS pointer: the repository was cloned without its large files",
            fix="git lfs pull  # in that folder",
        )
    if len(start) < 8:  # noqa: PLR2004 - the format's
        raise _build_bad_safetensors_problem(
            where, f"it has {len(start)} bytes, and the length alone takes 8"
        )
    length: int = struct.unpack("<Q", start)[0]
    if not 0 < length <= _MAX_HEADER_BYTES:
        raise _build_bad_safetensors_problem(where, f"its header would be {length} bytes long")
    return length


def parse_header(text: bytes | str, where: str) -> dict[str, Tensor]:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _build_bad_safetensors_problem(where, f"its header is not JSON: {error}") from error
    if not isinstance(table, dict):
        raise _build_bad_safetensors_problem(where, "its header is not a table")
    return {
        name: _parse_tensor(name, entry, where) for name, entry in table.items() if name != "__metadata__"
    }


def _parse_tensor(name: str, entry: Any, where: str) -> Tensor:  # noqa: ANN401 - whatever JSON held
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]} if (
            0 <= start <= end and all(isinstance(size, int) and size >= 0 for size in shape)
        ):
            return Tensor(dtype, tuple(shape), end - start)
        case _:
            raise _build_bad_safetensors_problem(
                where, f"what its header says of {name!r} has no dtype, shape and data_offsets"
            )


def list_weight_files(index: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return the names of the files in an index; raise a Problem if it has none or a path."""
    weight_map = index.get("weight_map")
    names = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if names and all(map(_is_file_name, names)):
        return tuple(sorted(set(names)))
    raise Problem(
        f"{where} names no files",
        cause="'weight_map' is not a table of tensors and their files",
        fix=_FETCH_AGAIN,
    )


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and name not in {"", ".", ".."} and not {"/", "\0"} & set(name)


def _build_bad_safetensors_problem(where: str, cause: str) -> Problem:
    return Problem(f"{where} is not whole safetensors", cause=cause, fix=_FETCH_AGAIN)


class Checkpoint(Value):
    where: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    index: Mapping[str, Any] | None = None
    """The content of model.safetensors.index.json, or empty, if bytes are estimated; None with headers."""


def read_config(folder: Path) -> Checkpoint:
    """Read config.json and the index, if it is there, of a folder without weights."""
    index = read_table(folder / INDEX_FILE) if (folder / INDEX_FILE).is_file() else {}
    return Checkpoint(str(folder), _read_configuration(folder), {}, index)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read config.json and all headers of a folder, or its index if it has no weights."""
    if not has_weights(folder):
        return read_config(folder)
    config = _read_configuration(folder)
    tensors: dict[str, Tensor] = {}
    for path in _list_files(folder):
        tensors |= read_tensors(path)
    return Checkpoint(str(folder), config, tensors)


def _read_configuration(folder: Path) -> Mapping[str, Any]:
    config = read_table(folder / CONFIG_FILE)
    if has_quantization(config) or not (folder / QUANTIZATION_FILE).is_file():
        return config
    return add_quantization(config, read_table(folder / QUANTIZATION_FILE))


def has_quantization(config: Mapping[str, Any]) -> bool:
    """Return whether config.json names a quantization, for the whole model or for a part."""
    keys = ("quantization_config", "compression_config")
    parts = (config, *(value for value in config.values() if isinstance(value, dict)))
    return any(part.get(key) for part in parts for key in keys)


def add_quantization(config: Mapping[str, Any], quantization: Mapping[str, Any]) -> dict[str, Any]:
    """Return config.json with the content of hf_quant_config.json as its quantization."""
    return {**config, "quantization_config": dict(quantization)}


def has_weights(folder: Path) -> bool:
    with raise_read_problem(folder):
        return any(path.suffix in _WEIGHT_SUFFIXES for path in folder.iterdir())


def _list_files(folder: Path) -> list[Path]:
    if (folder / INDEX_FILE).is_file():
        paths = [
            folder / name
            for name in list_weight_files(read_table(folder / INDEX_FILE), str(folder / INDEX_FILE))
        ]
    elif (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    else:
        # Mistral's repositories hold the same weights a second time under this name.
        paths = [path for path in sorted(folder.glob("*.safetensors")) if "consolidated" not in path.name]
    missing = [path.name for path in paths if not path.is_file()]
    if missing or not paths:
        cause = "it has no *.safetensors"
        if missing:
            cause = f"{len(missing)} of {len(paths)} files are missing: {', '.join(missing[:3])}"
        raise Problem(
            f"{folder} does not hold the whole model",
            cause=cause,
            fix="fetch the model again, or name a folder that holds all of it as safetensors",
        )
    return paths


def read_table(path: Path) -> dict[str, Any]:
    with raise_read_problem(path):
        return parse_table(path.read_bytes(), str(path))


def parse_table(text: bytes, where: str) -> dict[str, Any]:
    value = parse_json(text, where)
    if not isinstance(value, dict):
        raise Problem(f"{where} is not a table", cause="it holds something else", fix=_FETCH_AGAIN)
    return value


def parse_json(text: bytes, where: str) -> Any:  # noqa: ANN401 - JSON may hold anything
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Problem(f"{where} is not JSON", cause=str(error), fix=_FETCH_AGAIN) from error


@contextlib.contextmanager
def raise_read_problem(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a Problem."""
    try:
        yield
    except OSError as error:
        raise Problem(
            f"{path} cannot be read", cause=describe_error(error), fix=f"ls -l {quote_path(path)}"
        ) from error


@dataclass
class TensorTotals:
    """The bytes and weights of some tensors; routed experts also count on their own."""

    size_bytes: int = 0
    parameters: int = 0
    expert_bytes: int = 0
    expert_parameters: int = 0


@dataclass
class TensorSizes:
    """The sizes of a checkpoint's tensors by part; the names are those of `Part`."""

    layers: TensorTotals = field(default_factory=TensorTotals)
    first: TensorTotals = field(default_factory=TensorTotals)
    """The embedding, and all that belongs to no layer."""
    head: TensorTotals = field(default_factory=TensorTotals)
    draft: TensorTotals = field(default_factory=TensorTotals)
    """The layers that guess further tokens (MTP), loaded only if used."""
    unused: TensorTotals = field(default_factory=TensorTotals)
    """The parts of the checkpoint that no engine loads."""
    layer_numbers: set[int] = field(default_factory=set)
    """The numbers of the layers that have a tensor."""


def sum_tensors(
    tensors: Mapping[str, Tensor], layers: int, bits: int, experts: int | None = None
) -> TensorSizes:
    """Add up the tensors of a model with this number of layers and experts.

    `bits` is the size of a weight in packed tensors.
    """
    sizes = TensorSizes()
    for name, tensor in tensors.items():
        part, layer = find_part(name, layers)
        if part == "layers":
            sizes.layer_numbers.add(layer)
        amount: TensorTotals = getattr(sizes, part)
        count = count_parameters(name, tensor, bits)
        amount.size_bytes += tensor.size_bytes
        amount.parameters += count
        if _is_routed(name, tensor, experts):
            amount.expert_bytes += tensor.size_bytes
            amount.expert_parameters += count
    return sizes


def _is_routed(name: str, tensor: Tensor, experts: int | None) -> bool:
    """Return whether a tensor is of routed experts: by name, or by a shape with one matrix for each."""
    match tensor.shape:
        case (int(count), int(rows), _, *_) if count == experts and rows > 1:  # a convolution has one row
            return True
        case _:
            return "experts" in name.split(".") and not _ROUTER_PATTERN.search(name)


def find_part(name: str, layers: int) -> tuple[Part, int]:
    """Return the part of the model that a tensor belongs to, and its layer; 0 outside layers."""
    if _UNUSED_PATTERN.search(name):
        return "unused", 0
    if _DRAFT_PATTERN.search(name):
        return "draft", 0
    if _OTHER_PARTS_PATTERN.search(name) and not _DECODER_PATTERN.search(name):
        return "first", 0
    layer_match = _LAYER_PATTERN.search(name)
    if layer_match is not None:
        layer = int(layer_match[1])
        # DeepSeek's and GLM's draft layers are counted on after the others.
        return ("layers", layer) if layer < layers else ("draft", 0)
    return ("head", 0) if _HEAD_PATTERN.search(name) else ("first", 0)


def count_parameters(name: str, tensor: Tensor, bits: int) -> int:
    """Count a tensor's weights: several per number if packed, none if it is a scale."""
    if _SCALE_PATTERN.search(name):
        return 0
    width = {"U8": 8, "I8": 8, "I32": 32, "F4": 4}.get(tensor.dtype)
    if width is None or not _PACKED_PATTERN.search(name) or tensor.dtype == "F4":
        return tensor.elements
    return tensor.elements * max(width // bits, 1)
