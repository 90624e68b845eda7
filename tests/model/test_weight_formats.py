"""A model's bytes and parameters are right in every format that its layers are stored in."""

from functools import partial
from typing import Any

import pytest

from medley.model.checkpoint import Checkpoint
from medley.model.shape import compute_shape
from tests.model.checkpoints import checkpoint
from tests.model.weight_formats import (
    Scheme,
    awq,
    bf16,
    fp8,
    fp8_blocks,
    fp8_blocks_f32,
    gptq,
    int8,
    mxfp4,
    mxfp8,
    nvfp4,
    packed_int4,
    packed_nvfp4,
)

_SIZES: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


def _groups(**weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


_QUANTIZED: tuple[tuple[Scheme, dict[str, Any] | None], ...] = (
    (bf16, None),
    (fp8, {"quant_method": "modelopt", "quant_algo": "FP8"}),
    (fp8, _groups(num_bits=8, type="float")),
    (fp8_blocks, {"quant_method": "fp8"}),
    (fp8_blocks_f32, {"quant_method": "fp8"}),
    (mxfp8, {"quant_method": "fp8"}),
    (nvfp4, {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
    (packed_nvfp4, _groups(num_bits=4, type="float", group_size=16)),
    (mxfp4, {"quant_method": "mxfp4"}),
    (awq, {"quant_method": "awq", "bits": 4}),
    (gptq, {"quant_method": "gptq", "bits": 4}),
    (partial(gptq, bits=8), {"quant_method": "gptq", "bits": 8}),
    (packed_int4, _groups(num_bits=4, type="int")),
    (int8, _groups(num_bits=8, type="int")),
)


@pytest.mark.parametrize(
    ("scheme", "quantized"),
    [
        pytest.param(*each, id=f"{number}-{getattr(each[0], '__name__', 'gptq8')}")
        for number, each in enumerate(_QUANTIZED)
    ],
)
def test_a_format_changes_bytes_and_no_parameters(scheme: Scheme, quantized: dict[str, Any] | None) -> None:
    """One layer stays in 16 bits, as quantized models leave some; scales count as bytes only."""
    whole, packed = checkpoint(_SIZES).tensors, checkpoint(_SIZES, dense=scheme).tensors
    mixed = {name: tensor for name, tensor in whole.items() if ".layers.1." not in name}
    mixed |= {name: tensor for name, tensor in packed.items() if ".layers.1." in name}
    found = compute_shape(Checkpoint("x", _SIZES | {"quantization_config": quantized}, mixed))
    assert found.parameters == compute_shape(Checkpoint("x", _SIZES, whole)).parameters
    layers = sum(tensor.size_bytes for name, tensor in mixed.items() if ".layers." in name)
    assert found.layer_bytes == layers // 2
    ends = found.embedding_bytes + found.head_bytes
    assert layers + ends == sum(tensor.size_bytes for tensor in mixed.values())
