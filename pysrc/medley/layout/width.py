"""The width of a weight: how many bytes one takes as it is stored, with its scales."""

from collections.abc import Mapping

from medley.tables import Shape

# Bits of a weight and its share of the scales, by the formats' definitions: MXFP4 has one byte for 32 weights
# (OCP Microscaling 1.0), NVFP4 one for 16, AWQ and GPTQ at group size 128 a 16-bit scale and a 4-bit zero
# point.
BYTES: Mapping[str, float] = {
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": (4 + 8 / 16) / 8,
    "mxfp4": (4 + 8 / 32) / 8,
    "awq": (4 + 20 / 128) / 8,
    "int4": (4 + 20 / 128) / 8,
}
# Weights that share a scale along the dimension that tensor parallel cuts. MXFP4 is padded by the engine
# instead. fp8 is taken to be in blocks of 128, as Qwen and DeepSeek publish it; scales for whole tensors know
# no such limit.
BLOCK: Mapping[str, int] = {"fp8": 128, "awq": 128, "int4": 128, "nvfp4": 16}
# The published sizes of feed-forward layers are multiples of it.
_GRAIN = 32
_CLOSE = 0.01


def feed_forward(shape: Shape) -> int:
    """The inner size of an expert, or of the feed-forward part where there are none, told from its bytes."""
    per_row = 3 * shape.hidden * BYTES[shape.weights]
    if shape.experts:
        return round(shape.expert_bytes / per_row)
    attention = 2 * shape.hidden * shape.head_dim * (shape.heads + shape.kv_heads)
    return max(0, round((shape.layer_bytes - attention * BYTES[shape.weights]) / per_row))


def known_feed_forward(shape: Shape) -> int | None:
    """The same where it comes so near to a round number that this must be it; None where it does not."""
    told = feed_forward(shape)
    rounded = round(told / _GRAIN) * _GRAIN
    return rounded if rounded and abs(told - rounded) <= _CLOSE * rounded else None
