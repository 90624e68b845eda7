"""Choose the variables that ranks on other hosts do not get.

vLLM sends every rank the environment of its parent where the rank's host has no value (RayExecutorV2 of vLLM
0.32.0). So a rank would get folders that its host lacks, another host's compiler, and secrets. vLLM leaves
out the names in a file, where medley lists all that ranks do not need. SGLang sends nothing:
payload/sglang_ray.py sends what is not in the file.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from medley import storage
from medley.command import AnnotatedCommand, Variable
from medley.environment.container import CACHE_FOLDERS
from medley.network.fabric.variables import NOT_CARRIED_VARIABLES
from medley.schema import EngineName

# Variables of vLLM, its libraries, torch and the hub.
_SHARED_VARIABLE_PREFIXES = (
    *("VLLM_", "SGLANG_", "HF_", "HUGGING_FACE_", "NCCL_", "UCX_", "LMCACHE_", "FLASHINFER_"),
    *("TORCHDYNAMO_", "TORCH_NCCL_", "PYTORCH_", "TOKENIZERS_PARALLELISM", "PYTHONHASHSEED"),
    *("DO_NOT_TRACK", "CUDA_DEVICE_ORDER", "MAX_JOBS"),
)
# Variables that differ from host to host: interfaces, addresses, devices, folders.
_HOST_ONLY_VARIABLES = {
    *NOT_CARRIED_VARIABLES,
    *("NCCL_TOPO_FILE", "NCCL_CONF_FILE", "VLLM_NCCL_SO_PATH", "VLLM_CONFIG_ROOT", *CACHE_FOLDERS),
    *("HF_HUB_CACHE", "HF_TOKEN_PATH"),
    *("VLLM_CPU_OMP_THREADS_BIND", "VLLM_PORT", "VLLM_RPC_BASE_PATH", "VLLM_API_KEY", "SGLANG_HOST_IP"),
}
_HUB_TOKENS = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}
"""The secrets that ranks over Ray get, because they read the model's configuration from the hub."""


def list_hidden_names(
    names: Iterable[str], shared_names: Iterable[str] = (), local_names: Iterable[str] = ()
) -> list[str]:
    """Return the names of a driver's environment to hide from ranks on other hosts.

    In this launch, `shared_names` are exceptions to _HOST_ONLY_VARIABLES: ranks get them. `local_names` are
    exceptions to _SHARED_VARIABLE_PREFIXES: ranks do not get them.
    """
    # Its patterns cost a plan 40 ms, as in cluster/unit_file.py.
    from medley.host.redact.named_values import is_secret_variable  # noqa: PLC0415 - see above

    shared_set = set(shared_names)
    host_names = _HOST_ONLY_VARIABLES.difference(shared_set).union(local_names)
    return sorted(
        name
        for name in names
        if name in host_names
        or not (name in shared_set or name.startswith(_SHARED_VARIABLE_PREFIXES))
        or (is_secret_variable(name) and name not in _HUB_TOKENS)
    )


def _find_hidden_names_file() -> Path:
    return storage.find_state_folder() / "vllm" / "ray_non_carry_over_env_vars.json"


def build_hidden_names_variable(engine: EngineName) -> Variable:
    """Return the variable by which the engine finds the file of hidden names."""
    file = _find_hidden_names_file()
    why = "hides this host's own values from the others: paths, interfaces, secrets"
    if engine == "sglang":
        return Variable("MEDLEY_NOT_CARRIED", str(file), f"it {why}")
    return Variable("VLLM_CONFIG_ROOT", str(file.parent), f"its {file.name} {why}")


def write_hidden_names(annotated_command: AnnotatedCommand) -> None:
    """Write the file with the names of this command's environment that stay on this host."""
    command = annotated_command.command
    names = (*command.build_environment(os.environ), *command.secrets, *command.inherits)
    shared_names = (variable.name for variable in annotated_command.variables if variable.everywhere)
    local_names = (variable.name for variable in annotated_command.variables if variable.local)
    storage.write_text(
        _find_hidden_names_file(), json.dumps(list_hidden_names(names, shared_names, local_names), indent=0)
    )
