"""The versions of NCCL that a fabric depends on, and whether a host has a GPU for it."""

from medley.host.facts import Facts

LOCKED_NCCL = (2, 30, 7)
"""The version of nvidia-nccl-cu13 in locks/vllm-cuda.txt, assumed where no engine is chosen yet."""
SUBNET_AWARE_NCCL = (2, 30, 7)
"""The first NCCL with NCCL_IB_SUBNET_AWARE_ROUTING.

It is in src/transport/net_ib/connect.cc at tag v2.30.7-1 of https://github.com/NVIDIA/nccl, not at v2.30.4-1.
"""


def format_nccl_version(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


SUBNET_AWARE_TEXT = format_nccl_version(SUBNET_AWARE_NCCL)


def has_nccl_gpu(facts: Facts) -> bool:
    """Return whether a host has a GPU for NCCL; a Jetson has one even without nvidia-smi."""
    return bool(facts.gpus) or facts.is_jetson
