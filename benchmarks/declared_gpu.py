"""Print the kernels that vLLM chooses for a declared GPU; run by an engine environment's Python.

    python declared_gpu.py 12.1

It needs a libcuda.so.1 that can be loaded, and starts no kernel. It prints one JSON object: the choice or the
error by layer.
"""

import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

major, minor = map(int, sys.argv[1].split("."))
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.get_device_capability = lambda _=None: (major, minor)
torch.cuda.get_device_name = lambda _=None: "declared"
torch.cuda.current_device = lambda: 0

from vllm import platforms
from vllm.platforms import cuda


class Declared(cuda.NonNvmlCudaPlatform):  # type: ignore[misc] # vLLM is not in this environment
    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> Any:
        return platforms.interface.DeviceCapability(major, minor)

    @classmethod
    def num_compute_units(cls, device_id: int = 0) -> int:
        return 48


platforms._current_platform = Declared()

from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.kernels import linear
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import (
    FusedMoEConfig,
    FusedMoEParallelConfig,
    RoutingMethodType,
)
from vllm.model_executor.layers.fused_moe.oracle import fp8, mxfp4, nvfp4, unquantized
from vllm.model_executor.layers.quantization.utils import quant_utils as keys
from vllm.v1.attention.selector import AttentionSelectorConfig

_ONE_RANK = {f"{name}_size": 1 for name in ("tp", "pcp", "dp", "ep", "sp")} | {
    f"{name}_rank": 0 for name in ("tp", "pcp", "dp", "ep")
}
_PARALLEL = FusedMoEParallelConfig(**_ONE_RANK, use_ep=False, all2all_backend="", enable_eplb=False)


def experts(activation: MoEActivation = MoEActivation.SILU, **more: Any) -> FusedMoEConfig:
    """Return experts as those of Qwen3-30B-A3B."""
    return FusedMoEConfig(
        num_experts=128,
        experts_per_token=8,
        hidden_dim=2048,
        intermediate_size=768,
        num_local_experts=128,
        num_logical_experts=128,
        activation=activation,
        device="cuda",
        routing_method=RoutingMethodType.Renormalize,
        moe_parallel_config=_PARALLEL,
        in_dtype=torch.bfloat16,
        **more,
    )


def attention(**more: Any) -> str:
    config = AttentionSelectorConfig(
        **{"head_size": 128, "dtype": torch.bfloat16, "kv_cache_dtype": "auto", "block_size": None} | more
    )
    return str(Declared.get_attn_backend_cls(None, config, 32)).rpartition(".")[2]


def fp8_block() -> str:
    key, activation = keys.kFp8Static128BlockSym, keys.kFp8Dynamic128Sym
    kernel = linear.init_fp8_linear_kernel(activation, key, torch.bfloat16, torch.bfloat16, (4096, 4096))
    return type(kernel).__name__


def mxfp4_experts() -> Any:
    config = VllmConfig()
    config.model_config = SimpleNamespace(quantization_config=None)  # this choice reads it
    with set_current_vllm_config(config):
        return mxfp4.select_mxfp4_moe_backend(experts(has_bias=True))


LAYERS: dict[str, Callable[[], Any]] = {
    "attention, GQA": attention,
    "attention, GQA, KV in FP8": lambda: attention(kv_cache_dtype="fp8"),
    "attention, MLA": lambda: attention(head_size=576, use_mla=True),
    "attention, sparse MLA": lambda: attention(
        head_size=576, use_mla=True, use_sparse=True, kv_cache_dtype="fp8_ds_mla", block_size=64
    ),
    "linear, FP8 in blocks": fp8_block,
    "linear, NVFP4": lambda: type(linear.init_nvfp4_linear_kernel()).__name__,
    "experts, BF16": lambda: unquantized.select_unquantized_moe_backend(experts()),
    "experts, FP8 in blocks": lambda: fp8.select_fp8_moe_backend(
        experts(), keys.kFp8Static128BlockSym, keys.kFp8Dynamic128Sym
    ),
    "experts, NVFP4": lambda: nvfp4.select_nvfp4_moe_backend(
        experts(), keys.kNvfp4Static, keys.kNvfp4Dynamic
    ),
    "experts, MXFP4": mxfp4_experts,
}


def chosen(choose: Callable[[], Any]) -> str:
    try:
        choice = choose()
    except Exception as error:  # noqa: BLE001 - the result of this layer
        return f"none: {str(error)[:34] or type(error).__name__}"
    return str(choice[0].value if isinstance(choice, tuple) else choice)


if __name__ == "__main__":
    with set_current_vllm_config(VllmConfig()):
        print(json.dumps({layer: chosen(choose) for layer, choose in LAYERS.items()}))
