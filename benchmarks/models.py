"""A published row's model as a Shape: by name where its build is known, else from its parameter counts."""

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from medley.schema import Shape

Weights = Literal["bf16", "fp8", "mxfp4", "nvfp4", "awq", "int8", "int4"]

_TABLE = Path(__file__).parent / "architectures.csv"
_CONTEXT = 131072
_BILLION = 1e9


@dataclass(frozen=True)
class Build:
    """How a model is built, without how its weights are stored."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    experts: int = 0
    per_token: int = 0
    expert_hidden: int = 0
    moe_layers: int = 0
    attention_layers: int | None = None
    windowed: int = 0
    window: int | None = None
    state_kib: int = 0
    """Recurrent state of a stream, in all layers."""
    tied: bool = False


@dataclass(frozen=True)
class Bits:
    """Of a weight, scales included."""

    experts: float
    dense: float
    """Attention, and the feed-forward layers of a model without experts."""
    head: float
    weights: Weights


# GGUF files put everything in blocks of nearly one format; checkpoints of the hub leave embeddings and head
# in bfloat16. Block sizes: llama.cpp's ggml-common.h, OCP MX, NVFP4 (16 and an fp8 scale).
_BITS: tuple[tuple[str, Bits], ...] = (
    (r"iq2|q2", Bits(2.7, 2.7, 5.5, "int4")),
    (r"iq3|q3", Bits(3.9, 3.9, 6.6, "int4")),
    (r"q4_0|iq4", Bits(4.5, 4.5, 6.6, "int4")),
    (r"q4", Bits(4.85, 4.85, 6.6, "int4")),
    (r"q5", Bits(5.7, 5.7, 6.6, "int4")),
    (r"q6", Bits(6.6, 6.6, 6.6, "int8")),
    (r"q8", Bits(8.5, 8.5, 8.5, "int8")),
    # Of Gemma 4 NVIDIA stores only experts, or feed-forward layers, so: 31 GiB (LilaRest's model card).
    (r"nvfp4-experts", Bits(4.5, 16, 16, "nvfp4")),
    (r"nvfp4-mlp", Bits(4.5, 7.9, 16, "nvfp4")),
    (r"nvfp4|fp4-nv|w4a4", Bits(4.5, 4.5, 16, "nvfp4")),
    (r"mxfp4", Bits(4.25, 16, 16, "mxfp4")),
    (r"fp4", Bits(4.5, 4.5, 16, "nvfp4")),
    (r"awq.*mix", Bits(4.25, 16, 16, "awq")),
    (r"awq|gptq|int4|w4a16|autoround|4-?bit", Bits(4.25, 4.25, 16, "awq")),
    (r"fp8|f8|w8a8|int8|8-?bit", Bits(8, 8, 16, "fp8")),
    (r"bf16|fp16|f16|16-?bit", Bits(16, 16, 16, "bf16")),
)


def bits(quant: str, engine: str) -> Bits | None:
    """None where the row does not say how the weights are stored."""
    found = next((each for pattern, each in _BITS if re.search(pattern, quant.lower())), None)
    if found is None:
        return None
    if re.search(r"llama\.?cpp|ollama|ggml", engine.lower()):
        if found.weights in ("awq", "nvfp4"):
            return Bits(found.experts + 0.25, found.experts + 0.25, 6.6, "int4")
        if found.weights == "mxfp4":
            return Bits(4.25, 8.5, 8.5, "mxfp4")
    # Builds named so hold attention and head in it too (spark-vllm-docker: --mxfp4-layers moe,qkv,o,lm_head).
    if re.search(r"(vllm|sglang).*mxfp4", engine.lower()):
        return Bits(4.25, 4.25, 4.25, "mxfp4")
    return found


def shape(model: str, total_b: float, active_b: float, stored: Bits) -> Shape:
    """Built as the table or the heuristics say, of so many parameters, stored in so many bits."""
    build = known(model) or guessed(total_b, active_b)
    total = total_b * _BILLION
    embedding = build.vocabulary * build.hidden
    routed, met = _routed(build, total, active_b * _BILLION)
    dense = max(total - routed - embedding * (1 if build.tied else 2), 0.002 * total)
    # Makers' NVFP4 checkpoints of models with experts leave the rest in 8 bits or 16 (Nemotron 3).
    dense_bits = max(stored.dense, 8.0) if routed and stored.weights == "nvfp4" else stored.dense
    layer_bytes = (dense * dense_bits + routed * stored.experts) / 8 / build.layers
    active_bytes = (dense * dense_bits + met * stored.experts) / 8 / build.layers
    head = int(embedding * stored.head / 8)
    return Shape(
        layers=build.layers,
        hidden=build.hidden,
        heads=build.heads,
        kv_heads=build.kv_heads,
        head_dim=build.head_dim,
        vocabulary=build.vocabulary,
        context=_CONTEXT,
        parameters=int(total),
        active_parameters=int(dense + met + embedding),
        layer_bytes=int(layer_bytes),
        active_layer_bytes=int(active_bytes),
        embedding_bytes=head if build.tied else embedding * 2,
        head_bytes=0 if build.tied else head,
        experts=build.experts,
        experts_per_token=build.per_token,
        attention_layers=build.attention_layers,
        window=build.window,
        windowed_layers=build.windowed,
        state_bytes=build.state_kib << 10,
        weights=stored.weights,
    )


def _routed(build: Build, total: float, active: float) -> tuple[float, float]:
    """Parameters of all routed experts, and of those that one token meets."""
    if not build.experts:
        return 0.0, 0.0
    part = build.per_token / build.experts
    if build.expert_hidden:
        routed = 3.0 * build.hidden * build.expert_hidden * build.experts * build.moe_layers
    else:
        routed = (total - active) / (1 - part)
    routed = min(routed, 0.99 * total)
    return routed, routed * part


def guessed(total_b: float, active_b: float) -> Build:
    """Of a model nobody knows: as models of its size are built in these years."""
    if total_b <= 1.15 * active_b:
        layers = min(96, max(16, round(20 * total_b ** (1 / 3))))
        hidden = _rounded((total_b * _BILLION / (11.5 * layers)) ** 0.5, 128)
        return Build(layers, hidden, max(1, hidden // 128), 8, 128, 128256, tied=total_b < 5)  # noqa: PLR2004 - billions; small models tie
    layers = min(94, max(24, round(20 * total_b**0.2)))
    experts = next((many for many in (128, 256) if 8 / many < 0.7 * active_b / total_b), 512)
    hidden = _rounded(1200 * active_b**0.5, 256)
    return Build(layers, hidden, max(1, hidden // 64), 4, 128, 151936, experts=experts, per_token=8)


def _rounded(size: float, step: int) -> int:
    return max(step, round(size / step) * step)


@cache
def _table() -> tuple[tuple[re.Pattern[str], Build], ...]:
    lines = [line for line in _TABLE.read_text().splitlines() if not line.startswith("#")]
    return tuple((re.compile(row.pop("pattern")), _build(row)) for row in csv.DictReader(lines))


def _build(row: dict[str, str]) -> Build:
    tied = row.pop("tied") == "yes"
    return Build(**{name: int(value) for name, value in row.items() if value}, tied=tied)


def known(model: str) -> Build | None:
    """The build of a model by its name, as it is written in many ways."""
    name = re.sub(r"[\s_/]+", "-", model.lower())
    return next((build for pattern, build in _table() if pattern.search(name)), None)
