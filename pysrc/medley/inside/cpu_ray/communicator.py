"""Ranks of vLLM's CPU platform that talk through shared memory only where they share it.

vLLM asks whether all ranks of a group have the same name for their segment. Under Ray that name holds the
port of the group's rendezvous, which is the same on every host, so they would open each other's and fail.
"""

from pathlib import Path

import torch
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

_BOOT, _SEGMENTS = Path("/proc/sys/kernel/random/boot_id"), Path("/dev/shm")  # noqa: S108 - where shm_open looks


def memory(boot: Path = _BOOT, segments: Path = _SEGMENTS) -> str:
    """Which shared memory this process sees: of which kernel, and which of its file systems.

    No host name: two new boards have the same one, and two containers of one host may share memory or not.
    """
    return f"{boot.read_text(encoding='ascii').strip()}/{segments.stat().st_dev}"


class Communicator(CpuCommunicator):  # type: ignore[misc] # vLLM is not installed where this is checked
    def _all_group_ranks_share_shm_group_name(self) -> bool:
        """Whether the group may use shared memory; every rank comes to the same answer."""
        seen = [""] * self.world_size
        torch.distributed.all_gather_object(seen, memory(), group=self.device_group)
        return len(set(seen)) == 1 and bool(super()._all_group_ranks_share_shm_group_name())
