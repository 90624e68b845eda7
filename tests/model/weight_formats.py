"""Ways of storing a weight: the tensors that each makes of it, as headers name them."""

from collections.abc import Callable
from math import ceil, prod

from medley.model.checkpoint import Tensor

Headers = dict[str, Tensor]
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "U8": 1, "I8": 1, "I32": 4, "I64": 8, "F8_E4M3": 1}


def plain(name: str, *shape: int, dtype: str = "BF16") -> Headers:
    return {name: Tensor(dtype, shape, prod(shape) * _BYTES[dtype])}


def fp8_blocks(name: str, *shape: int) -> Headers:
    """8 bits, and a scale for each block of 128 x 128, in 16 bits (Qwen)."""
    *more, out, into = shape
    scales = (*more, ceil(out / 128), ceil(into / 128))
    return plain(f"{name}.weight", *shape, dtype="F8_E4M3") | plain(f"{name}.weight_scale_inv", *scales)


def fp8_blocks_f32(name: str, *shape: int) -> Headers:
    """The same with scales in 32 bits (DeepSeek)."""
    *more, out, into = shape
    scales = (*more, ceil(out / 128), ceil(into / 128))
    weight = plain(f"{name}.weight", *shape, dtype="F8_E4M3")
    return weight | plain(f"{name}.weight_scale_inv", *scales, dtype="F32")


def fp8(name: str, *shape: int) -> Headers:
    """8 bits and one scale for all."""
    weight = plain(f"{name}.weight", *shape, dtype="F8_E4M3")
    return weight | plain(f"{name}.weight_scale", dtype="F32") | plain(f"{name}.input_scale", dtype="F32")


def mxfp8(name: str, *shape: int) -> Headers:
    """8 bits, and for each 32 weights an exponent in 8 bits."""
    *more, into = shape
    weight = plain(f"{name}.weight", *shape, dtype="F8_E4M3")
    return weight | plain(f"{name}.weight_scale", *more, into // 32, dtype="U8")


def nvfp4(name: str, *shape: int) -> Headers:
    """4 bits, and for each 16 weights a scale in 8 bits: 0.5625 bytes a weight."""
    *more, into = shape
    weight = plain(f"{name}.weight", *more, into // 2, dtype="U8")
    return weight | plain(f"{name}.weight_scale", *more, into // 16, dtype="F8_E4M3")


def mxfp4(name: str, *shape: int) -> Headers:
    """4 bits, and for each 32 weights an exponent in 8 bits: 0.53125 bytes a weight."""
    *more, into = shape
    blocks = plain(f"{name}_blocks", *more, into // 32, 16, dtype="U8")
    return blocks | plain(f"{name}_scales", *more, into // 32, dtype="U8")


def awq(name: str, *shape: int) -> Headers:
    """4 bits, and for each 128 weights a scale in 16 and a zero in 4: 0.5195 bytes a weight."""
    *more, out, into = shape
    weight = plain(f"{name}.qweight", *more, into, out // 8, dtype="I32")
    zeros = plain(f"{name}.qzeros", *more, into // 128, out // 8, dtype="I32")
    return weight | zeros | plain(f"{name}.scales", *more, into // 128, out, dtype="F16")


def gptq(name: str, *shape: int, bits: int = 4) -> Headers:
    """As AWQ packed along the inputs, with the group of each input (GPTQModel's quantize_config)."""
    *more, out, into = shape
    packed = 32 // bits
    weight = plain(f"{name}.qweight", *more, into // packed, out, dtype="I32")
    zeros = plain(f"{name}.qzeros", *more, ceil(into / 128), out // packed, dtype="I32")
    scales = plain(f"{name}.scales", *more, ceil(into / 128), out, dtype="F16")
    return weight | zeros | scales | plain(f"{name}.g_idx", into, dtype="I32")


def packed_int4(name: str, *shape: int) -> Headers:
    """4 bits as compressed-tensors packs them (pack-quantized), with the shape they had."""
    *more, out, into = shape
    weight = plain(f"{name}.weight_packed", *more, out, into // 8, dtype="I32")
    scales = plain(f"{name}.weight_scale", *more, out, ceil(into / 128))
    return weight | scales | plain(f"{name}.weight_shape", 2, dtype="I64")


def packed_nvfp4(name: str, *shape: int) -> Headers:
    """NVFP4 under compressed-tensors' names (nvfp4-pack-quantized), with a scale for all of a matrix."""
    *more, into = shape
    weight = plain(f"{name}.weight_packed", *more, into // 2, dtype="U8")
    scales = plain(f"{name}.weight_scale", *more, into // 16, dtype="F8_E4M3")
    wide = plain(f"{name}.weight_global_scale", 1, dtype="F32")
    return weight | scales | wide | plain(f"{name}.input_global_scale", 1, dtype="F32")


def int8(name: str, *shape: int) -> Headers:
    """8 bits and a scale for each row (compressed-tensors, int-quantized)."""
    *more, out, _ = shape
    weight = plain(f"{name}.weight", *shape, dtype="I8")
    return weight | plain(f"{name}.weight_scale", *more, out, 1)


def bf16(name: str, *shape: int) -> Headers:
    return plain(f"{name}.weight", *shape)


Scheme = Callable[..., Headers]
