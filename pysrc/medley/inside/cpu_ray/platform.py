"""A CPU as vLLM's Ray executor can place it: one of Ray's "GPU"s is a slot for one worker, no more."""

from typing import ClassVar

from vllm.platforms.cpu import CpuPlatform


class CpuUnderRay(CpuPlatform):  # type: ignore[misc] # vLLM is not installed where this is checked
    # vLLM refuses Ray where this is empty, and asks Ray for a worker's slots by the same key, which Ray knows
    # for accelerators alone. So a host offers slots with `ray start --num-gpus N`, and needs no GPU.
    ray_device_key: str = "GPU"
    # A host that has a GPU too: its number is no slot of ours.
    ray_noset_device_env_vars: ClassVar[list[str]] = ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return f"{__package__}.communicator.Communicator"
