"""Run by an engine environment's Python: where vLLM's Ray executor puts ranks on declared GPUs.

    RAY_ADDRESS=HOST:PORT python placed_ranks.py TENSOR STAGES

The placement group, the order of its bundles, the actors and their names are the executor's own. Its ranks
stop before they would open a GPU. Prints one JSON list: name, rank, local rank and address of each.
"""

import json
import sys
from typing import Any

import ray
import vllm.platforms
from vllm.platforms.interface import Platform, PlatformEnum


class DeclaredGpus(Platform):  # type: ignore[misc] # vLLM is not installed where this is checked
    """A platform of GPUs that Ray counts and nobody opens."""

    _enum = PlatformEnum.OOT
    device_name = device_type = "cuda"
    dispatch_key = "CUDA"
    ray_device_key = "GPU"


vllm.platforms.current_platform = DeclaredGpus()
from vllm.config import ParallelConfig, VllmConfig  # noqa: E402 - after the platform is declared
from vllm.v1.executor import ray_executor_v2  # noqa: E402 - the same


class PlacedRank(ray_executor_v2.RayWorkerProc):  # type: ignore[misc] # the same
    def get_node_and_physical_gpu_ids(self) -> tuple[str, list[int]]:
        ray_executor_v2.current_platform = DeclaredGpus()
        found: tuple[str, list[int]] = super().get_node_and_physical_gpu_ids()
        return found

    def initialize_worker(self, *_: Any, **__: Any) -> None:
        """Open no GPU."""

    def wait_for_init(self) -> dict[str, str]:
        return {"status": "placed"}


def placed(tensor: int, stages: int) -> list[dict[str, Any]]:
    ray_executor_v2.RayWorkerProc = PlacedRank
    sizes = {"tensor_parallel_size": tensor, "pipeline_parallel_size": stages}
    made = VllmConfig(parallel_config=ParallelConfig(**sizes, distributed_executor_backend="ray"))
    executor = object.__new__(ray_executor_v2.RayExecutorV2)
    try:
        executor.__init__(made)
    except RuntimeError as error:
        if "{'status': 'placed'}" not in str(error):
            raise
    addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    return [
        {
            "name": ray_executor_v2.build_actor_name("", each.rank, tensor, stages, 1),
            "rank": each.rank,
            "local_rank": each.local_rank,
            "address": addresses[each.node_id],
        }
        for each in executor.ray_worker_handles
    ]


if __name__ == "__main__":
    print(json.dumps(placed(int(sys.argv[1]), int(sys.argv[2]))), flush=True)
