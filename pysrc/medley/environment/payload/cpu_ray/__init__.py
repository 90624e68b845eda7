"""Run vLLM's CPU platform under Ray, with shared memory only between ranks that share it.

vLLM calls `register` while it looks for its platform, when none of its modules may be imported yet. Later it
imports the two classes by name, so each is created at its first use.
"""

import functools
from pathlib import Path

_BOOT_ID_FILE, _SEGMENTS_FOLDER = Path("/proc/sys/kernel/random/boot_id"), Path("/dev/shm")  # noqa: S108 - where shm_open looks


def register() -> str:
    """Return the class that vLLM takes for its platform."""
    return f"{__name__}.CpuUnderRay"


def __getattr__(name: str) -> type:
    if name not in {"CpuUnderRay", "Communicator"}:
        raise AttributeError(f"{__name__} has no {name}")
    created_class = _create_platform_class() if name == "CpuUnderRay" else _create_communicator_class()
    created_class.__qualname__ = name  # pickle finds a class by its module and this name
    return created_class


@functools.cache
def _create_platform_class() -> type:
    from vllm.platforms.cpu import CpuPlatform

    class CpuUnderRay(CpuPlatform):  # type: ignore[misc] # vLLM is not installed where this is checked
        # vLLM refuses Ray where this is empty, and asks Ray for a worker's slots by the same key, which Ray
        # has for accelerators only. So a host offers slots with `ray start --num-gpus N`, and needs no GPU.
        ray_device_key = "GPU"
        # A host may have a GPU too: its number is not one of these slots.
        ray_noset_device_env_vars = ("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",)

        @classmethod
        def get_device_communicator_cls(cls) -> str:
            return f"{__name__}.Communicator"

    return CpuUnderRay


@functools.cache
def _create_communicator_class() -> type:
    import torch
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    class Communicator(CpuCommunicator):  # type: ignore[misc] # vLLM is not installed where this is checked
        """Compare the ranks' shared memory by kernel and file system, not only by the names of segments.

        vLLM compares the names of their segments. Under Ray a name holds the port of the group's rendezvous,
        which is the same on every host, so ranks would open each other's and fail.
        """

        def _all_group_ranks_share_shm_group_name(self) -> bool:
            """Return whether the group may use shared memory; every rank returns the same."""
            memory_ids = [""] * self.world_size
            torch.distributed.all_gather_object(memory_ids, identify_memory(), group=self.device_group)
            return len(set(memory_ids)) == 1 and bool(super()._all_group_ranks_share_shm_group_name())

    return Communicator


def identify_memory() -> str:
    """Return the identity of this process's shared memory: the kernel's boot ID and the file system's number.

    A host name would not do: two new boards have the same one, and two containers of one host may or may not
    share memory.
    """
    return f"{_BOOT_ID_FILE.read_text(encoding='ascii').strip()}/{_SEGMENTS_FOLDER.stat().st_dev}"
