"""Take one host's part in a test by all-reduces: an actor of Ray's, in an engine's Python."""

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import ray

BUDGET_S = 0.6  # of the repetitions of one size
PAIR_BUDGET_S = 0.25  # of one message between two
PAIR_ROUNDS = 3
MIB = 1 << 20


class Rank:
    """One host's part; `pulse` answers beside a step that hangs."""

    def __init__(self, life_s: float, env: dict[str, str]) -> None:
        # The group's variables win over those of this host's `ray start`, as in serve.
        os.environ.update(env)
        # Should nobody be left to end this process, it does so itself.
        timer = threading.Timer(life_s, os._exit, (1,))
        timer.daemon = True
        timer.start()
        self.device = "cpu"
        self.kept: Any = None

    @ray.method(concurrency_group="pulse")  # type: ignore[untyped-decorator]
    def pulse(self) -> bool:
        return True

    def idle(self) -> bool:
        return True

    def hello(self, script: str, *, nccl: bool) -> dict[str, Any]:
        """Describe this host; with NCCL its GPU must answer."""
        import torch

        if nccl:
            self.device = "cuda:0"
            torch.zeros(1, device=self.device)
        said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=20)  # noqa: S603, S607
        gpu = torch.cuda.get_device_name(0) if nccl else None
        return {"interface": os.environ.get("GLOO_SOCKET_IFNAME"), "facts": said.stdout, "gpu": gpu}

    def store(self, own: str, size: int, limit_s: float) -> int:
        """Open the store in which ranks of a new group find each other."""
        import torch.distributed as dist

        self.leave()
        limit = timedelta(seconds=limit_s)
        self.kept = dist.TCPStore(own, 0, size, is_master=True, timeout=limit, wait_for_workers=False)
        return int(self.kept.port)

    def join(self, rank: int, size: int, at: tuple[str, int], limit_s: float) -> None:
        import torch.distributed as dist

        limit = timedelta(seconds=limit_s)
        if rank:
            self.leave()
            self.kept = dist.TCPStore(*at, size, is_master=False, timeout=limit)
        os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"  # else a wait that is too long ends the process
        backend = "gloo" if self.device == "cpu" else "nccl"
        dist.init_process_group(backend, store=self.kept, rank=rank, world_size=size, timeout=limit)

    def leave(self) -> None:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
        self.kept = None

    def sums(self) -> str | None:
        """Check sums of integers that float32 holds exactly; return the error."""
        import torch
        import torch.distributed as dist

        ranks = dist.get_world_size()
        for kind in (torch.float32, torch.int64):
            for count in (1, 1000, 65537):
                base = torch.arange(count, dtype=kind, device=self.device) % 97 + 1
                ours = base * (dist.get_rank() + 1)
                dist.all_reduce(ours)
                wrong = (ours != base * (ranks * (ranks + 1) // 2)).nonzero().flatten()
                if len(wrong):
                    return f"{len(wrong)} of {count} sums of {kind} are wrong, the first at {int(wrong[0])}"
        return None

    def measure(self, size: int) -> float:
        """Return the median seconds of one all-reduce, repeated within the budget."""
        import torch
        import torch.distributed as dist

        data = torch.zeros(max(1, size // 4), device=self.device)
        first = self._agreed(self._timed(lambda: dist.all_reduce(data)))
        count = min(50, int(BUDGET_S / first))
        if count == 0:
            return first
        return statistics.median(self._timed(lambda: dist.all_reduce(data)) for _ in range(count))

    def pair(self, largest: int) -> dict[str, Any]:
        """Check sums with one other rank, then time messages that this rank sends."""
        import torch
        import torch.distributed as dist

        if wrong := self.sums():
            return {"said": wrong}
        rank = dist.get_rank()
        mark = torch.zeros(2, device=self.device)
        turns = [self._timed(lambda: self._turn(mark, mark, sends=rank == 0)) for _ in range(20)]
        data = torch.zeros(MIB // 4, device=self.device)
        probe = self._agreed(min(self._timed(lambda: self._turn(data, mark, sends=rank == 0)) for _ in "ab"))
        size = min(largest, max(MIB, int(PAIR_BUDGET_S / probe) * MIB))
        data = torch.arange(size // 4, dtype=torch.int32, device=self.device)
        got = data if rank == 0 else torch.zeros_like(data)
        self._turn(got, mark, sends=rank == 0)
        if not torch.equal(got, data):
            return {"said": f"a message of {size} bytes arrived changed"}
        ways = [self._best(got, mark, sends=sends) for sends in (rank == 0, rank == 1)]
        return {"said": None, "bytes": size, "seconds": ways[rank], "latency_s": statistics.median(turns) / 2}

    def _best(self, data: Any, mark: Any, *, sends: bool) -> float:  # noqa: ANN401 - torch is imported late
        return min(self._timed(lambda: self._turn(data, mark, sends=sends)) for _ in range(PAIR_ROUNDS))

    def _turn(self, data: Any, mark: Any, *, sends: bool) -> None:  # noqa: ANN401 - torch is imported late
        """Send a message and wait for a reply, so that the sender's clock sees its arrival."""
        import torch.distributed as dist

        other = 1 - dist.get_rank()
        if sends:
            dist.send(data, other)
            dist.recv(mark, other)
        else:
            dist.recv(data, other)
            dist.send(mark, other)

    def _agreed(self, seconds: float) -> float:
        """Return the largest of all ranks, so that all repeat equally often."""
        import torch
        import torch.distributed as dist

        both = torch.tensor([seconds], device=self.device)
        dist.all_reduce(both, op=dist.ReduceOp.MAX)
        return float(both[0])

    def _timed(self, work: Callable[[], object]) -> float:
        import torch

        begun = time.perf_counter()
        work()
        if self.device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - begun
