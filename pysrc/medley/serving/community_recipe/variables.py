"""Decide which variables of a recipe the engine gets."""

import re
from collections.abc import Mapping

from medley import engine
from medley.credentials import is_secret
from medley.engine.unread_variables import unread
from medley.environment import engine_source
from medley.network.fabric.variables import LEFT_UNSET, NOT_CARRIED
from medley.schema import ENGINE_VARIABLE
from medley.serving.community_recipe import Entry
from medley.serving.community_recipe.shell_command import needs_shell

_NETWORK = "medley sets it for the links between the hosts: medley link show"
_PER_HOST = "it is an interface, a port or an address of one host, which medley sets per host"
_ARCHITECTURE = "it is one GPU's architecture, which medley's toolkit sets per kind of host"
_OFFLINE = "medley downloads the model first, and turns the hub off for a folder"
_DECIDED: Mapping[str, str] = {
    **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"), _OFFLINE),
    **dict.fromkeys(
        ("HF_HUB_DISABLE_XET", "HF_HUB_ENABLE_HF_TRANSFER", "HF_XET_HIGH_PERFORMANCE"),
        "medley pull or the engine downloads the model",
    ),
    **dict.fromkeys(("MAX_JOBS", "FLASHINFER_NVCC_THREADS"), "the plan limits concurrent compilers"),
    **dict.fromkeys(("DO_NOT_TRACK", "VLLM_NO_USAGE_STATS", "HF_HUB_DISABLE_TELEMETRY"), "medley sets it"),
    "VLLM_DISTRIBUTED_EXECUTOR_CONFIG": "the launcher places the ranks; vLLM 0.33 does not read it",
    **dict.fromkeys(("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"), "medley counts GPUs as nvidia-smi does"),
}
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys((*NOT_CARRIED, "VLLM_PORT", "MASTER_ADDR", "MASTER_PORT", "NCCL_TOPO_FILE"), _PER_HOST),
    **dict.fromkeys(
        (
            *("NCCL_NET", "NCCL_IB_DISABLE", "NCCL_CROSS_NIC", "NCCL_IB_MERGE_NICS", "NCCL_NET_PLUGIN"),
            *("NCCL_IB_SUBNET_AWARE_ROUTING", "NCCL_IB_SUBNET_PREFIX_LEN", "NCCL_IB_ROCE_VERSION_NUM"),
            *("NCCL_IB_ADDR_FAMILY", "NCCL_NET_GDR_LEVEL", "NCCL_DMABUF_ENABLE"),
        ),
        _NETWORK,
    ),
    **{name: f"medley leaves it unset: {why}" for name, why in LEFT_UNSET.items()},
    **dict.fromkeys(
        ("TORCH_CUDA_ARCH_LIST", "FLASHINFER_CUDA_ARCH_LIST", "CUTE_DSL_ARCH", "TRITON_OVERRIDE_ARCH"),
        _ARCHITECTURE,
    ),
    **dict.fromkeys(
        (
            *("VLLM_PLUGINS", "VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_INSECURE_SERIALIZATION"),
            *("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_MEDIA_CONNECTOR", "VLLM_MEDIA_URL_ALLOW_REDIRECTS"),
            *("VLLM_USE_MODELSCOPE", "SGLANG_USE_MODELSCOPE", "SGLANG_EXTERNAL_MODEL_PACKAGE"),
            *("SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"),
        ),
        "it runs the author's code or opens the server: if you want that, set it yourself",
    ),
    "VLLM_TARGET_DEVICE": "it is for building vLLM, which is built already in medley's environments",
}
NOT_BY_RAY = "Ray does not send it to other hosts: set it there before ray-worker or join"
_OF_RAY = "it must be set for medley ray-head and ray-worker, which start Ray"
_NO_RECIPES = "a recipe must not hold secrets: export it yourself, or for requests use --api-key FILE"
_PATHS = re.compile(r"(PATH|PRELOAD|_DIR|_HOME|_ROOT|_CACHE|_FOLDER|VIRTUAL_ENV)$")


def variable(name: str, value: str, *, key: str = "") -> Entry:
    """Return the outcome of one variable; `key` is its place in the recipe."""
    key = key or f"env.{name}"
    if name in _DECIDED:
        return Entry(key, "decided", _DECIDED[name])
    if refusal := _refusal(name, value):
        return Entry(key, "refused", refusal)
    why = "the engine's own variable"
    if engine.stays((name,)):
        why += f"; {NOT_BY_RAY}"
    return Entry(key, "carried", why, (f"{name}={value}",), "variable")


def _refusal(name: str, value: str) -> str | None:
    if name in _REFUSED:
        return _REFUSED[name]
    if name.startswith("RAY_") or is_secret(name):
        return _NO_RECIPES if is_secret(name) else _OF_RAY
    if needs_shell(value):
        return f"{value} needs a shell: set {name} yourself before the command"
    if _PATHS.search(name) or value.startswith(("/", "~")):
        return f"{value} is a path in the recipe's image or host"
    if not re.match(ENGINE_VARIABLE, name):
        return "medley's engines do not read it; if yours does, set it before the command"
    return _gone(name)


def _gone(name: str) -> str | None:
    """Return what replaced a variable that the locked vLLM ignores, because serve would refuse it."""
    if not name.startswith("VLLM_"):
        return None
    version = engine_source.locked()["vllm-cuda"]["vllm"]
    return next(
        (f"vLLM {version} does not read it: {instead}" for _, _, instead in unread((name,), version)), None
    )
