"""What NCCL's versions know of a fabric: a setting that a version does not know does nothing, silently."""

from medley.facts import Facts

LOCKED = (2, 29, 7)
"""nvidia-nccl-cu13 in locks/vllm-cuda.txt."""

SUBNET_AWARE = (2, 30, 7)
"""First with NCCL_IB_SUBNET_AWARE_ROUTING.

It is in src/transport/net_ib/connect.cc at tag v2.30.7-1 of https://github.com/NVIDIA/nccl, not at v2.30.4-1.
"""


def speaks(facts: Facts) -> bool:
    """NCCL is between GPUs alone; a Jetson has one even where no nvidia-smi shows it."""
    return bool(facts.gpus) or facts.is_jetson


def shown(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
