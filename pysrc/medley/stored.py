"""What is stored of a model, added up by its tensors' names: layers, experts, embedding, head."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from medley.safetensors import Tensor

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
# Parts beside the language model that an engine keeps with the embedding, on the first stage.
_BESIDE = re.compile(r"(?:^|\.)(?:\w*vision\w*|visual|vit|\w*audio\w*|multi_modal_projector|mlp1|encoder)\.")
_DRAFT = re.compile(r"(?:^|\.)mtp\w*\.")
_HEAD = re.compile(r"(?:^|\.)lm_head\.")
# Scales and zero points take bytes and are no parameters.
_SCALE = re.compile(
    r"(?:scales?|scale_inv|scale_2|_scale_\d|qzeros|g_idx|weight_shape|zero_point|absmax|quant_map)$"
)
_PACKED = re.compile(r"(?:weight|weight_packed|blocks|qweight|_proj)$")

Part = Literal["layer", "first", "head", "draft"]


@dataclass
class Amount:
    """Bytes and parameters, those of routed experts also by themselves."""

    size_bytes: int = 0
    parameters: int = 0
    expert_bytes: int = 0
    expert_parameters: int = 0

    def add(self, tensor: Tensor, parameters: int, *, routed: bool) -> None:
        self.size_bytes += tensor.size_bytes
        self.parameters += parameters
        if routed:
            self.expert_bytes += tensor.size_bytes
            self.expert_parameters += parameters


@dataclass
class Stored:
    layers: Amount = field(default_factory=Amount)
    first: Amount = field(default_factory=Amount)
    """The embedding, and all that belongs to no layer."""
    head: Amount = field(default_factory=Amount)
    draft: Amount = field(default_factory=Amount)
    """Layers that guess further tokens (MTP), loaded only where they are used."""
    seen: set[int] = field(default_factory=set)
    """The layers' numbers."""


def stored(tensors: Mapping[str, Tensor], layers: int, bits: int) -> Stored:
    """The tensors of a model of so many layers, added up; `bits` is what one packed weight takes."""
    found = Stored()
    for name, tensor in tensors.items():
        part, layer = _part(name, layers)
        if part == "layer":
            found.seen.add(layer)
        amount = {"layer": found.layers, "first": found.first, "head": found.head, "draft": found.draft}[part]
        amount.add(tensor, parameters(name, tensor, bits), routed="experts" in name.split("."))
    return found


def _part(name: str, layers: int) -> tuple[Part, int]:
    if _DRAFT.search(name):
        return "draft", 0
    if _BESIDE.search(name):
        return "first", 0
    numbered = _LAYER.search(name)
    if numbered is not None:
        layer = int(numbered[1])
        # DeepSeek's and GLM's draft layers are counted on after the others.
        return ("layer", layer) if layer < layers else ("draft", 0)
    return ("head", 0) if _HEAD.search(name) else ("first", 0)


def parameters(name: str, tensor: Tensor, bits: int) -> int:
    """How many weights a tensor holds: several a number where they are packed, none if it is a scale."""
    if _SCALE.search(name):
        return 0
    width = {"U8": 8, "I8": 8, "I32": 32, "F4": 4}.get(tensor.dtype)
    if width is None or not _PACKED.search(name) or tensor.dtype == "F4":
        return tensor.elements
    return tensor.elements * max(width // bits, 1)
