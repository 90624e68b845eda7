"""Check which variables cluster.toml may set, for all hosts or for one."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from medley.credentials import is_secret
from medley.errors import Problem

VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]
VariableValue = Annotated[str, Meta(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*\Z", max_length=32_768)]
# Each with the reason why cluster.toml may not set it.
_REFUSAL_REASONS = {
    **dict.fromkeys(
        ("LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME"), "it changes the libraries of every program"
    ),
    **dict.fromkeys(
        ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "VLLM_HOST_IP", "SGLANG_HOST_IP"),
        "medley sets it for the cluster; link = chooses the network",
    ),
    "HF_MODULES_CACHE": "medley sets it, so that no code of a model runs that you do not trust",
    "VLLM_NCCL_SO_PATH": "torch would keep its own NCCL; nccl = sets both",
    "LD_PRELOAD": "it changes every program that the engine starts; nccl = preloads an NCCL",
}
_MEDLEY_REASON = "it is a setting of medley itself"
_PRINTED_REASON = "dry runs print it; name a file instead, such as HF_TOKEN_PATH"
# NCCL and the engines compare or assume these on all ranks; a host that differs hangs the group.
_GROUP_VARIABLE_PATTERN = re.compile(
    r"NCCL_(NET|IB_DISABLE|ALGO|PROTO|CROSS_NIC|IB_MERGE_NICS|NTHREADS|BUFFSIZE|MIN_NCHANNELS|MAX_NCHANNELS"
    r"|IB_SUBNET_AWARE_ROUTING|IB_SUBNET_PREFIX_LEN|NVLS_ENABLE|P2P_NET_CHUNKSIZE|CUMEM_ENABLE|NSOCKS_PERTHREAD"
    r"|SOCKET_NTHREADS)|(VLLM|SGLANG)_PP_LAYER_PARTITION|PYTHONHASHSEED"
)


def find_refusal(name: str, *, is_one_host: bool) -> str | None:
    """Return why cluster.toml cannot set a variable, for all hosts or `is_one_host`; None where it can."""
    if name.startswith("MEDLEY_"):
        return _MEDLEY_REASON
    if is_secret(name):
        return _PRINTED_REASON
    if is_one_host and _GROUP_VARIABLE_PATTERN.fullmatch(name):
        return "it must be the same on all hosts: move it to [environment]"
    return _REFUSAL_REASONS.get(name)


def require_allowed_variables(
    path: Path, shared_variables: Mapping[str, str], variables_by_host: Mapping[str, Mapping[str, str]]
) -> None:
    """Raise a Problem for the first variable that the file at `path` may not set."""
    tables = {"environment": shared_variables}
    tables |= {f"hosts.{name}.environment": table for name, table in variables_by_host.items()}
    for title, table in tables.items():
        for name in table:
            if reason := find_refusal(name, is_one_host=title != "environment"):
                raise Problem(
                    f"{path}: {name} cannot be set in [{title}]",
                    cause=reason,
                    fix=f"remove {name} from [{title}]",
                )
