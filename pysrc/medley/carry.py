"""What an engine carries over from its own host to its ranks on others, and what stays where it is.

vLLM gives every rank the whole environment of the process that starts it, as far as the rank's host has no
value of its own (RayExecutorV2 of vLLM 0.32.0): folders that are not there, another host's compiler, secrets
of a shell. It leaves out the names in a file, so medley names there all that no rank needs. SGLang gives them
nothing: inside/sglang_ray.py sends what that file does not name.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from medley import store
from medley.container import CACHES
from medley.fabric.variables import NOT_CARRIED
from medley.reasoned import Reasoned
from medley.tables import Engine
from medley.variables import Variable

_FILE = "ray_non_carry_over_env_vars.json"
# What speaks to vLLM, its libraries and the hub: what its older executor carried, and torch's.
_FOR_ALL = (
    *("VLLM_", "SGLANG_", "HF_", "HUGGING_FACE_", "NCCL_", "UCX_", "LMCACHE_", "FLASHINFER_"),
    *("TORCHDYNAMO_", "TORCH_NCCL_", "PYTORCH_", "TOKENIZERS_PARALLELISM", "PYTHONHASHSEED"),
    *("DO_NOT_TRACK", "CUDA_DEVICE_ORDER", "MAX_JOBS"),
)
# Of those, what differs from host to host: interfaces, addresses, devices, folders.
_OF_ONE_HOST = {
    *NOT_CARRIED,
    *("NCCL_TOPO_FILE", "NCCL_CONF_FILE", "VLLM_NCCL_SO_PATH", "VLLM_CONFIG_ROOT", *CACHES),
    *("HF_HUB_CACHE", "HF_TOKEN_PATH"),
    *("VLLM_CPU_OMP_THREADS_BIND", "VLLM_PORT", "VLLM_RPC_BASE_PATH", "VLLM_API_KEY", "SGLANG_HOST_IP"),
}


def stays(names: Iterable[str], everywhere: Iterable[str] = ()) -> list[str]:
    """Those names of a driver's environment that no rank on another host may see.

    `everywhere` are those of one host whose value is good on all of them this time.
    """
    own = _OF_ONE_HOST - set(everywhere)
    return sorted(name for name in names if name in own or not name.startswith(_FOR_ALL))


def folder() -> Path:
    return store.state() / "vllm"


def variable(engine: Engine) -> Variable:
    why = "keeps from the other hosts what is this one's: paths, interfaces, secrets"
    if engine == "sglang":
        return Variable("MEDLEY_NOT_CARRIED", str(folder() / _FILE), f"it {why}")
    return Variable("VLLM_CONFIG_ROOT", str(folder()), f"its {_FILE} {why}")


def write(started: Reasoned) -> None:
    """Where `variable` says that vLLM looks: what stays of the environment that this is started with."""
    command = started.command
    names = (*command.environment(os.environ), *command.secrets, *command.inherits)
    everywhere = (each.name for each in started.variables if each.everywhere)
    store.write(folder() / _FILE, json.dumps(stays(names, everywhere), indent=0))
