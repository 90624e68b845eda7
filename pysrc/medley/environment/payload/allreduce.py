"""Test a Ray cluster's hosts by all-reduces; run in an engine's Python, prints JSON lines.

    python allreduce.py HOST:PORT OWN TASK

TASK is a JSON object: nodes (id, address, free), env of the ranks, sizes in bytes, limit_s of a step, life_s
of a rank, and a shell script that prints a host's facts. Each line is an event, a JSON object known by its
first key: step, hosts, sums, size, pair, skipped, broken, done.
"""

import contextlib
import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

sys.path.insert(0, str(Path(__file__).parent))  # not there with PYTHONSAFEPATH
import allreduce_rank as rank

PULSE_LIMIT_S = 4
MIB = 1 << 20
START_STEP = "start the ranks"
PAIRS_STEP = "try each pair"
SMALL_BYTES = 64 << 10  # below this size the time is mostly latency, and does not predict the next size

# Other hosts have no such module, so Ray sends its code.
ray.cloudpickle.register_pickle_by_value(rank)


class StepFailed(Exception):  # noqa: N818 - the step failed, not the program
    """A step that some hosts did not finish, with the error of each."""

    def __init__(self, step: str, errors: dict[str, str]) -> None:
        super().__init__(step)
        self.step, self.errors = step, errors


class AllReduceRun:
    """A test of one cluster: its ranks, and the steps that measure them."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.nodes = {node["address"]: node for node in task["nodes"]}
        self.limit_s, self.life_s = float(task["limit_s"]), float(task["life_s"])
        self.sizes, self.script, self.env = task["sizes"], task["script"], task["env"]
        self.backend_reason, self.has_nccl = choose_backend(self.nodes.values())
        self.actors: dict[str, Any] = {}
        # After a failure each pair joins from both sides: firewalls stop incoming connections only.
        self.is_joining_both_ways = False

    def start_ranks(self) -> None:
        print_event(step=START_STEP)
        for address in self.nodes:
            self.actors[address] = self._start_actor(address)
        calls = {
            address: actor.describe_host.remote(self.script, nccl=self.has_nccl)
            for address, actor in self.actors.items()
        }
        hosts = self._collect(START_STEP, calls, self.limit_s)
        print_event(hosts=hosts, backend="nccl" if self.has_nccl else "gloo", why=self.backend_reason)

    def measure_group(self) -> None:
        print_event(step="form the group")
        self._join_group("form the group", tuple(self.actors), self.limit_s)
        print_event(step="compare sums")
        calls = {address: actor.check_sums.remote() for address, actor in self.actors.items()}
        wrong = {
            address: error
            for address, error in self._collect("compare sums", calls, self.limit_s).items()
            if error
        }
        print_event(sums=wrong)
        if not wrong:
            self._measure_sizes()

    def measure_pairs(self) -> None:
        """Measure each pair; a slow one twice, because a busy moment is not a slow link."""
        print_event(step=PAIRS_STEP)
        end = time.monotonic() + 2 * self.limit_s
        rates: dict[tuple[str, str], float] = {}
        for pair in combinations(self.actors, 2):
            if time.monotonic() > end:
                print_event(skipped=list(pair))
                continue
            rates[pair] = self._measure_pair(pair)
        for pair, rate in rates.items():
            if 0 < rate < max(rates.values()) / 2 and time.monotonic() < end:
                self._measure_pair(pair)

    def find_silent_hosts(self) -> list[str]:
        """Return the hosts that do not answer a pulse while a step hangs."""
        calls = {actor.confirm_alive.remote(): address for address, actor in self.actors.items()}
        done, _ = ray.wait(list(calls), num_returns=len(calls), timeout=PULSE_LIMIT_S)
        answering = set()
        for call in done:
            with contextlib.suppress(Exception):
                ray.get(call, timeout=PULSE_LIMIT_S)
                answering.add(calls[call])
        return [address for address in self.actors if address not in answering]

    def remeasure_pairs(self) -> None:
        """Measure each pair again after a step failed although all hosts answer."""
        self.is_joining_both_ways = True
        self.restart_stuck_ranks(self.actors)
        self.measure_pairs()

    def restart_stuck_ranks(self, addresses: Iterable[str]) -> None:
        """Restart the ranks that hang in a failed step, because the next step would fail there too."""
        calls = {address: self.actors[address].confirm_idle.remote() for address in addresses}
        stuck = collect_answers(calls, 2)[1]
        for address in stuck:
            ray.kill(self.actors[address])
            self.actors[address] = self._start_actor(address)
        start_calls = {
            address: self.actors[address].describe_host.remote(self.script, nccl=self.has_nccl)
            for address in stuck
        }
        with contextlib.suppress(StepFailed):
            self._collect(START_STEP, start_calls, self.limit_s)

    def kill_ranks(self) -> None:
        for actor in self.actors.values():
            ray.kill(actor)

    def _start_actor(self, address: str) -> Any:  # noqa: ANN401 - Ray's handles have no types
        groups = {"concurrency_groups": {"pulse": 1}}
        actor = pin_actor(self.nodes[address], rank.Rank, num_gpus=int(self.has_nccl), **groups)
        return actor.remote(self.life_s, self.env)

    def _join_group(self, step: str, addresses: tuple[str, ...], limit_s: float) -> None:
        first_host, size, join_limit_s = addresses[0], len(addresses), limit_s * 0.8
        store = self.actors[first_host].open_store.remote(first_host, size, join_limit_s)
        store_address = (first_host, self._collect(step, {first_host: store}, limit_s)[first_host])
        calls = {
            host: self.actors[host].join_group.remote(rank_number, size, store_address, join_limit_s)
            for rank_number, host in enumerate(addresses)
        }
        self._collect(step, calls, limit_s)

    def _measure_sizes(self) -> None:
        last_s, last_bytes = 0.0, SMALL_BYTES
        for size_bytes in self.sizes:
            print_event(step=f"all-reduce {size_bytes} bytes")
            if 4 * last_s * size_bytes / max(last_bytes, SMALL_BYTES) > self.limit_s:
                print_event(size=size_bytes, seconds=None)
                continue
            calls = {address: actor.measure_size.remote(size_bytes) for address, actor in self.actors.items()}
            last_s = max(self._collect(f"all-reduce {size_bytes} bytes", calls, self.limit_s).values())
            last_bytes = size_bytes
            print_event(size=size_bytes, seconds=last_s)

    def _measure_pair(self, pair: tuple[str, str]) -> float:
        """Print the result; return the slower direction's bytes per second, or 0 after a failure."""
        limit_s = max(5, self.limit_s / 4)
        try:
            for hosts in (pair[::-1], pair) if self.is_joining_both_ways else (pair,):
                self._join_group(PAIRS_STEP, hosts, limit_s)
            calls = {
                address: self.actors[address].measure_pair.remote((64 if self.has_nccl else 4) * MIB)
                for address in pair
            }
            first, second = self._collect(PAIRS_STEP, calls, limit_s).values()
        except StepFailed as broken:
            if self.find_silent_hosts():
                raise
            print_event(pair=pair, said="; ".join(broken.errors.values()))
            self.restart_stuck_ranks(pair)
            return 0
        if wrong := first["said"] or second["said"]:
            print_event(pair=pair, said=wrong)
            return 0
        seconds = [first["seconds"], second["seconds"]]
        print_event(pair=pair, said=None, bytes=first["bytes"], seconds=seconds, latency_s=first["latency_s"])
        return float(first["bytes"] / max(seconds))

    def _collect(self, step: str, calls: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the answers by host; raise StepFailed unless all hosts answer within the limit."""
        results, errors = collect_answers(calls, limit_s)
        if errors:
            raise StepFailed(step, errors)
        return results


def pin_actor(node: dict[str, Any], kind: type, **options: object) -> Any:  # noqa: ANN401 - Ray's handles have no types
    """Return the class as an actor that Ray starts on that node only."""
    strategy = NodeAffinitySchedulingStrategy(node["id"], soft=False)
    return ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy=strategy, **options)(kind)


def collect_answers(calls: dict[Any, Any], limit_s: float) -> tuple[dict[Any, Any], dict[Any, str]]:
    """Return the answers within the limit, and the errors of the other calls, each by the call's key."""
    done, _ = ray.wait(list(calls.values()), num_returns=len(calls), timeout=limit_s)
    results, errors = {}, {}
    for address, call in calls.items():
        if call not in done:
            errors[address] = f"no answer within {limit_s:.0f} s"
            continue
        try:
            results[address] = ray.get(call, timeout=PULSE_LIMIT_S)
        except Exception as error:  # noqa: BLE001 - any error is this host's answer
            errors[address] = next(reversed(str(error).split("\n")), "")[:300] or type(error).__name__
    return results, errors


def choose_backend(nodes: Iterable[dict[str, Any]]) -> tuple[str, bool]:
    """Choose NCCL or Gloo for these nodes; return the reason, and whether it is NCCL."""
    if not is_built_for_cuda():
        return "the engine environment is one for CPUs", False
    if busy := [node["address"] for node in nodes if node["free"] < 1]:
        return f"no free GPU on {', '.join(busy)}; NCCL was not tried", False
    return "every rank has a GPU", True


def is_built_for_cuda() -> bool:
    """Return whether torch is built for CUDA, from its version file: importing torch takes seconds."""
    spec = find_spec("torch")
    version = runpy.run_path(str(Path(spec.origin).with_name("version.py"))) if spec and spec.origin else {}
    return bool(version.get("cuda"))


def print_event(**event: object) -> None:
    print(json.dumps(event), flush=True)


@contextlib.contextmanager
def connect_ray(address: str, own_address: str) -> Iterator[None]:
    os.chdir("/")  # Ray puts the working folder first in the sys.path of each worker
    ray.init(address=address, _node_ip_address=own_address, log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


def main(address: str, own_address: str, task: str) -> None:
    print_event(step="connect to the cluster")
    with connect_ray(address, own_address):
        run = AllReduceRun(json.loads(task))
        try:
            if not run_steps(run, run.start_ranks, run.measure_group, run.measure_pairs):
                run_steps(run, run.remeasure_pairs)
        finally:
            print_event(done=True)
            run.kill_ranks()


def run_steps(run: AllReduceRun, *steps: Callable[[], None]) -> bool:
    """Run the steps; return whether no further measurement can add to the result."""
    try:
        for step in steps:
            step()
    except StepFailed as broken:
        silent_hosts = run.find_silent_hosts()
        print_event(broken=broken.step, errors=broken.errors, silent=silent_hosts)
        return bool(silent_hosts) or broken.step == START_STEP
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
