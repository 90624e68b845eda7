"""Run vLLM's CPU platform under Ray, with shared memory only between ranks that share it.

vLLM calls `register` while it looks for its platform, when nothing of its own may be imported yet, and asks
for the two classes by name later: each is made at its first use.
"""

import functools
from pathlib import Path

_BOOT, _SEGMENTS = Path("/proc/sys/kernel/random/boot_id"), Path("/dev/shm")  # noqa: S108 - where shm_open looks


def register() -> str:
    """Return the class that vLLM takes for its platform."""
    return f"{__name__}.CpuUnderRay"


def __getattr__(name: str) -> type:
    if name not in {"CpuUnderRay", "Communicator"}:
        raise AttributeError(f"{__name__} has no {name}")
    found = _platform() if name == "CpuUnderRay" else _communicator()
    found.__qualname__ = name  # as if made at the top of this module, so that it can be pickled by its name
    return found


@functools.cache
def _platform() -> type:
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
def _communicator() -> type:
    import torch
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    class Communicator(CpuCommunicator):  # type: ignore[misc] # vLLM is not installed where this is checked
        """Compare which memory ranks see.

        vLLM compares the names of their segments. Under Ray a name holds the port of the group's rendezvous,
        which is the same on every host, so ranks would open each other's and fail.
        """

        def _all_group_ranks_share_shm_group_name(self) -> bool:
            """Whether the group may use shared memory; every rank comes to the same answer."""
            seen = [""] * self.world_size
            torch.distributed.all_gather_object(seen, memory(), group=self.device_group)
            return len(set(seen)) == 1 and bool(super()._all_group_ranks_share_shm_group_name())

    return Communicator


def memory() -> str:
    """Which shared memory this process sees: of which kernel, and which of its file systems.

    A host name would not do: two new boards have the same one, and two containers of one host may or may not
    share memory.
    """
    return f"{_BOOT.read_text(encoding='ascii').strip()}/{_SEGMENTS.stat().st_dev}"
