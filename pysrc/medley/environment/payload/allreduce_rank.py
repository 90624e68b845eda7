"""Run one host's rank of a test by all-reduces, as an actor of Ray in an engine's Python."""

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import ray

BUDGET_S = 0.6  # seconds for the repetitions of one size
PAIR_BUDGET_S = 0.25  # seconds for one message between two hosts
PAIR_ROUNDS = 3
MIB = 1 << 20


class Rank:
    """One host's rank; `confirm_alive` answers even while a step hangs."""

    def __init__(self, life_s: float, env: dict[str, str]) -> None:
        # The group's variables win over those of this host's `ray start`, as in serve.
        os.environ.update(env)
        # The process ends itself after `life_s`, in case nothing else ends it.
        timer = threading.Timer(life_s, os._exit, (1,))
        timer.daemon = True
        timer.start()
        self.device = "cpu"
        self.group_store: Any = None

    @ray.method(concurrency_group="pulse")  # type: ignore[untyped-decorator]
    def confirm_alive(self) -> bool:
        """Answer even while a step hangs, because the group `pulse` has a thread of its own."""
        return True

    def confirm_idle(self) -> bool:
        """Answer after the running step, so a rank that hangs in one does not answer."""
        return True

    def describe_host(self, script: str, *, nccl: bool) -> dict[str, Any]:
        """Return this host's interface, facts and GPU; with NCCL raise an error unless the GPU answers."""
        import torch

        if nccl:
            self.device = "cuda:0"
            torch.zeros(1, device=self.device)
        facts = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=20)  # noqa: S603, S607
        gpu = torch.cuda.get_device_name(0) if nccl else None
        return {"interface": os.environ.get("GLOO_SOCKET_IFNAME"), "facts": facts.stdout, "gpu": gpu}

    def open_store(self, own_address: str, rank_count: int, limit_s: float) -> int:
        """Open the store in which ranks of a new group find each other; return its port."""
        import torch.distributed as dist

        self.leave_group()
        limit = timedelta(seconds=limit_s)
        self.group_store = dist.TCPStore(
            own_address, 0, rank_count, is_master=True, timeout=limit, wait_for_workers=False
        )
        return int(self.group_store.port)

    def join_group(self, rank: int, rank_count: int, store_address: tuple[str, int], limit_s: float) -> None:
        import torch.distributed as dist

        limit = timedelta(seconds=limit_s)
        if rank:
            self.leave_group()
            self.group_store = dist.TCPStore(*store_address, rank_count, is_master=False, timeout=limit)
        os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"  # otherwise NCCL ends the process after the timeout
        backend = "gloo" if self.device == "cpu" else "nccl"
        dist.init_process_group(
            backend, store=self.group_store, rank=rank, world_size=rank_count, timeout=limit
        )

    def leave_group(self) -> None:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
        self.group_store = None

    def check_sums(self) -> str | None:
        """Return the error of a wrong sum of integers that float32 holds exactly; None without one."""
        import torch
        import torch.distributed as dist

        rank_count = dist.get_world_size()
        for kind in (torch.float32, torch.int64):
            for count in (1, 1000, 65537):
                base = torch.arange(count, dtype=kind, device=self.device) % 97 + 1
                sums = base * (dist.get_rank() + 1)
                dist.all_reduce(sums)
                wrong = (sums != base * (rank_count * (rank_count + 1) // 2)).nonzero().flatten()
                if len(wrong):
                    return f"{len(wrong)} of {count} sums of {kind} are wrong, the first at {int(wrong[0])}"
        return None

    def measure_size(self, size_bytes: int) -> float:
        """Return the median seconds of one all-reduce, repeated within the budget."""
        import torch
        import torch.distributed as dist

        data = torch.zeros(max(1, size_bytes // 4), device=self.device)
        first_s = self._share_largest(self._time_work(lambda: dist.all_reduce(data)))
        count = min(50, int(BUDGET_S / first_s))
        if count == 0:
            return first_s
        return statistics.median(self._time_work(lambda: dist.all_reduce(data)) for _ in range(count))

    def measure_pair(self, max_bytes: int) -> dict[str, Any]:
        """Check sums with one other rank, then time messages that this rank sends."""
        import torch
        import torch.distributed as dist

        if error := self.check_sums():
            return {"said": error}
        rank = dist.get_rank()
        mark = torch.zeros(2, device=self.device)
        round_trips_s = [
            self._time_work(lambda: self._exchange(mark, mark, sends=rank == 0)) for _ in range(20)
        ]
        data = torch.zeros(MIB // 4, device=self.device)
        probe_s = self._share_largest(
            min(self._time_work(lambda: self._exchange(data, mark, sends=rank == 0)) for _ in "ab")
        )
        size_bytes = min(max_bytes, max(MIB, int(PAIR_BUDGET_S / probe_s) * MIB))
        data = torch.arange(size_bytes // 4, dtype=torch.int32, device=self.device)
        message = data if rank == 0 else torch.zeros_like(data)
        self._exchange(message, mark, sends=rank == 0)
        if not torch.equal(message, data):
            return {"said": f"a message of {size_bytes} bytes arrived changed"}
        seconds = [self._time_fastest(message, mark, sends=sends) for sends in (rank == 0, rank == 1)]
        return {
            "said": None,
            "bytes": size_bytes,
            "seconds": seconds[rank],
            "latency_s": statistics.median(round_trips_s) / 2,
        }

    def _time_fastest(self, data: Any, mark: Any, *, sends: bool) -> float:  # noqa: ANN401 - torch is imported late
        return min(
            self._time_work(lambda: self._exchange(data, mark, sends=sends)) for _ in range(PAIR_ROUNDS)
        )

    def _exchange(self, data: Any, mark: Any, *, sends: bool) -> None:  # noqa: ANN401 - torch is imported late
        """Send a message and wait for a reply, so that the sender's clock sees its arrival."""
        import torch.distributed as dist

        other = 1 - dist.get_rank()
        if sends:
            dist.send(data, other)
            dist.recv(mark, other)
        else:
            dist.recv(data, other)
            dist.send(mark, other)

    def _share_largest(self, seconds: float) -> float:
        """Return the largest time of all ranks, so that all repeat equally often."""
        import torch
        import torch.distributed as dist

        largest = torch.tensor([seconds], device=self.device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return float(largest[0])

    def _time_work(self, work: Callable[[], object]) -> float:
        import torch

        started_s = time.perf_counter()
        work()
        if self.device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - started_s
