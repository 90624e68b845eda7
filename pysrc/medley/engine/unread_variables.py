"""Refuse environment variables that the engine's release no longer reads, and name their replacements.

vLLM silently ignores unknown names, so settings from old guides have no effect. The names were removed from
vllm/envs.py between two minor releases from 0.10 to 0.33; no other file of 0.33 reads them. Those of ROCm,
XPU and TPU are left out. SGLang warns about old names and still reads most (srt/environ.py of 0.5.23).
"""

from collections.abc import Iterable, Iterator, Mapping

from medley.environment.engine_source import numbers
from medley.errors import Problem
from medley.model.resolve import Weights
from medley.schema import TITLES, EngineName

_EXPERTS = "--moe-backend flashinfer_cutlass  # or flashinfer_trtllm, marlin, triton"
_PROFILER = """--profiler-config '{"profiler": "torch", "torch_profiler_dir": "/tmp/profile"}'"""
_ATTENTION = "--attention-backend FLASHINFER  # or FLASH_ATTN, TRITON_ATTN"
_SPLITS = "--attention-config.flash_attn_max_num_splits_for_cuda_graph 32"
_NOTHING = "nothing replaces it"
_MINOR = 2
"""Parts of a release to compare: 0.24 of 0.24.1."""
GONE: Mapping[str, Mapping[str, str]] = {
    "0.11": {
        "VLLM_USE_V1": f"{_NOTHING}: there is only one engine",
        "VLLM_USE_RAY_SPMD_WORKER": _NOTHING,
        "VLLM_USE_RAY_COMPILED_DAG": _NOTHING,
        "VLLM_USE_TRITON_FLASH_ATTN": _ATTENTION,
        "VLLM_USE_TRTLLM_FP4_GEMM": "--linear-backend flashinfer_trtllm",
        "VLLM_SKIP_DEEP_GEMM_WARMUP": "VLLM_DEEP_GEMM_WARMUP=skip",
    },
    "0.12": {"VLLM_CPU_MOE_PREPACK": _NOTHING, "VLLM_FLAT_LOGPROBS": _NOTHING},
    "0.13": {"VLLM_MM_INPUT_CACHE_GIB": "--mm-processor-cache-gb 4"},
    "0.15": {
        "VLLM_ATTENTION_BACKEND": _ATTENTION,
        "VLLM_FLASH_ATTN_VERSION": "--attention-config.flash_attn_version 2",
        "VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH": _SPLITS,
        "VLLM_USE_TRTLLM_ATTENTION": "--attention-config.use_trtllm_attention true",
        "VLLM_FLASHINFER_DISABLE_Q_QUANTIZATION": "--attention-config.disable_flashinfer_q_quantization true",
        "VLLM_DISABLE_FLASHINFER_PREFILL": _ATTENTION,
        "VLLM_USE_CUDNN_PREFILL": _ATTENTION,
        "VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL": _ATTENTION,
        "VLLM_V1_USE_PREFILL_DECODE_ATTENTION": _ATTENTION,
    },
    "0.16": {
        "VLLM_ALL2ALL_BACKEND": "--all2all-backend allgather_reducescatter",
        "VLLM_TORCH_PROFILER_DIR": _PROFILER,
        "VLLM_TORCH_PROFILER_RECORD_SHAPES": _PROFILER,
        "VLLM_TORCH_PROFILER_WITH_PROFILE_MEMORY": _PROFILER,
        "VLLM_TORCH_PROFILER_WITH_STACK": _PROFILER,
        "VLLM_TORCH_PROFILER_WITH_FLOPS": _PROFILER,
        "VLLM_TORCH_CUDA_PROFILE": _PROFILER,
    },
    "0.18": {
        "VLLM_FUSED_MOE_CHUNK_SIZE": _NOTHING,
        "VLLM_ENABLE_FUSED_MOE_ACTIVATION_CHUNKING": _NOTHING,
        "VLLM_SLEEP_WHEN_IDLE": _NOTHING,
    },
    "0.20": {"VLLM_ENABLE_MOE_DP_CHUNK": _NOTHING, "VLLM_MOE_DP_CHUNK_SIZE": _NOTHING},
    "0.23": {"VLLM_RPC_TIMEOUT": f"{_NOTHING}; for a slow start: VLLM_ENGINE_READY_TIMEOUT_S"},
    "0.24": {
        "VLLM_USE_FLASHINFER_MOE_FP4": _EXPERTS,
        "VLLM_USE_FLASHINFER_MOE_FP8": _EXPERTS,
        "VLLM_USE_FLASHINFER_MOE_FP16": _EXPERTS,
        "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16": _EXPERTS,
        "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": _EXPERTS,
        "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS": _EXPERTS,
        "VLLM_FLASHINFER_MOE_BACKEND": _EXPERTS,
        "VLLM_MXFP4_USE_MARLIN": "--moe-backend marlin",
        "VLLM_NVFP4_GEMM_BACKEND": "--linear-backend flashinfer_cutlass  # or cutlass, marlin",
        "VLLM_USE_NVFP4_CT_EMULATIONS": "--linear-backend emulation",
        "VLLM_USE_FBGEMM": "--linear-backend fbgemm",
    },
    "0.26": {"VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB": _NOTHING},
    "0.29": {"VLLM_TEST_FORCE_FP8_MARLIN": "--linear-backend marlin", "VLLM_TRITON_ATTN_USE_TD": _NOTHING},
    "0.30": {
        "VLLM_MM_HASHER_ALGORITHM": "--mm-hasher-algorithm sha256",
        "VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "--prefix-cache-retention-interval 0",
    },
    "0.32": {"VLLM_ENGINE_ITERATION_TIMEOUT_S": _NOTHING},
    "0.33": {
        "VLLM_USE_RAY_V2_EXECUTOR_BACKEND": f"{_NOTHING}: it is the only one over Ray",
        "VLLM_USE_RAY_WRAPPED_PP_COMM": _NOTHING,
        "VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE": _NOTHING,
        "VLLM_USE_RAY_COMPILED_DAG_OVERLAP_COMM": _NOTHING,
    },
}
"""The replacement of each variable, a flag or text, by the release of vLLM that removed it."""


def require_read(
    environ: Iterable[str], engine: EngineName, version: str | None, *, file: str | None = None
) -> None:
    """Raise a Problem that names each ignored variable of the shell, or of the table `file`."""
    found = list(unread(environ, version)) if engine == "vllm" and version else []
    if not found:
        return
    names = [name for name, _, _ in found]
    releases = ", ".join(f"{release} removed {name}" for name, release, _ in found)
    away = f"remove {', '.join(names)} from {file}" if file else f"unset {' '.join(names)}"
    raise Problem(
        f"{TITLES[engine]} {version} does not read {', '.join(names)}",
        cause=f"it ignores the setting silently; {releases}",
        fix="\n".join((away, *(f"{name}: {_typed(instead)}" for name, _, instead in found))),
    )


def require_launch_read(
    environ: Iterable[str], weights: Weights, engine: EngineName, version: str | None
) -> None:
    require_read(environ, engine, version)
    if weights.model:
        table = weights.model.env.get(engine, {})
        require_read(table, engine, version, file=f"models/{weights.name}.toml")


def _typed(instead: str) -> str:
    return f"medley serve MODEL -- {instead}" if instead.startswith("--") else instead


def unread(environ: Iterable[str], version: str) -> Iterator[tuple[str, str, str]]:
    """Yield each name that this vLLM does not read, the release that removed it, and its replacement."""
    given = set(environ)
    for release, names in GONE.items():
        if numbers(version)[:_MINOR] >= numbers(release):
            yield from ((name, release, instead) for name, instead in names.items() if name in given)
