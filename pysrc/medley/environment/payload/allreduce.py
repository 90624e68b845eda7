"""Test a Ray cluster's hosts by all-reduces; run in an engine's Python, prints JSON lines.

    python allreduce.py HOST:PORT OWN TASK

TASK is a JSON object: nodes (id, address, free), env of the ranks, sizes in bytes, limit_s of a step, life_s
of a rank, and a shell script that prints a host's facts. Each line is an event, a JSON object known by its
first key: step, hosts, sums, size, pair, skipped, broken, done.
"""

import contextlib
import json
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any

import allreduce_rank as rank
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

PULSE_LIMIT_S = 4
MIB = 1 << 20
START = "start the ranks"
PAIRS = "try each pair"
SMALL = 64 << 10  # of less than this the time is mostly latency, and says little of the next size

# It is not to be found on other hosts, so it goes there as it is.
ray.cloudpickle.register_pickle_by_value(rank)


class Broken(Exception):  # noqa: N818 - what the group is
    """A step that not every host has done, with the error of each of these."""

    def __init__(self, step: str, errors: dict[str, str]) -> None:
        super().__init__(step)
        self.step, self.errors = step, errors


class Trial:
    def __init__(self, task: dict[str, Any]) -> None:
        self.nodes = {node["address"]: node for node in task["nodes"]}
        self.limit_s, self.life_s = float(task["limit_s"]), float(task["life_s"])
        self.sizes, self.script, self.env = task["sizes"], task["script"], task["env"]
        self.why, self.nccl = transport(self.nodes.values())
        self.actors: dict[str, Any] = {}
        # After a failure a pair is joined from both sides: a firewall stops those who come, not those who go.
        self.wary = False

    def start(self) -> None:
        say(step=START)
        for address in self.nodes:
            self.actors[address] = self._actor(address)
        calls = {at: actor.hello.remote(self.script, nccl=self.nccl) for at, actor in self.actors.items()}
        hosts = self._all(START, calls, self.limit_s)
        say(hosts=hosts, backend="nccl" if self.nccl else "gloo", why=self.why)

    def whole(self) -> None:
        say(step="form the group")
        self._join("form the group", tuple(self.actors), self.limit_s)
        say(step="compare sums")
        calls = {at: actor.sums.remote() for at, actor in self.actors.items()}
        wrong = {at: said for at, said in self._all("compare sums", calls, self.limit_s).items() if said}
        say(sums=wrong)
        if not wrong:
            self._measure()

    def pairs(self) -> None:
        """Measure each pair; slow ones twice, because a busy moment is not a slow link."""
        say(step=PAIRS)
        end = time.monotonic() + 2 * self.limit_s
        found: dict[tuple[str, str], float] = {}
        for pair in combinations(self.actors, 2):
            if time.monotonic() > end:
                say(skipped=list(pair))
                continue
            found[pair] = self._pair(pair)
        for pair, rate in found.items():
            if 0 < rate < max(found.values()) / 2 and time.monotonic() < end:
                self._pair(pair)

    def silent(self) -> list[str]:
        """List the hosts that do not answer a pulse while a step hangs."""
        calls = {actor.pulse.remote(): at for at, actor in self.actors.items()}
        done, _ = ray.wait(list(calls), num_returns=len(calls), timeout=PULSE_LIMIT_S)
        living = set()
        for call in done:
            with contextlib.suppress(Exception):
                ray.get(call, timeout=PULSE_LIMIT_S)
                living.add(calls[call])
        return [at for at in self.actors if at not in living]

    def again(self) -> None:
        """Measure each pair after a failed step although all hosts answer."""
        self.wary = True
        self.settle(self.actors)
        self.pairs()

    def settle(self, addresses: Iterable[str]) -> None:
        """Restart those still stuck in a step that failed, else the next one would look broken too."""
        calls = {at: self.actors[at].idle.remote() for at in addresses}
        stuck = answers(calls, 2)[1]
        for at in stuck:
            ray.kill(self.actors[at])
            self.actors[at] = self._actor(at)
        hello = {at: self.actors[at].hello.remote(self.script, nccl=self.nccl) for at in stuck}
        with contextlib.suppress(Broken):
            self._all(START, hello, self.limit_s)

    def end(self) -> None:
        for actor in self.actors.values():
            ray.kill(actor)

    def _actor(self, address: str) -> Any:  # noqa: ANN401 - Ray's handles have no types
        groups = {"concurrency_groups": {"pulse": 1}}
        made = actor_on(self.nodes[address], rank.Rank, num_gpus=int(self.nccl), **groups)
        return made.remote(self.life_s, self.env)

    def _join(self, step: str, addresses: tuple[str, ...], limit_s: float) -> None:
        first, size, patience = addresses[0], len(addresses), limit_s * 0.8
        store = self.actors[first].store.remote(first, size, patience)
        at = (first, self._all(step, {first: store}, limit_s)[first])
        calls = {
            address: self.actors[address].join.remote(number, size, at, patience)
            for number, address in enumerate(addresses)
        }
        self._all(step, calls, limit_s)

    def _measure(self) -> None:
        last, before = 0.0, SMALL
        for size in self.sizes:
            say(step=f"all-reduce {size} bytes")
            if 4 * last * size / max(before, SMALL) > self.limit_s:
                say(size=size, seconds=None)
                continue
            calls = {at: actor.measure.remote(size) for at, actor in self.actors.items()}
            last, before = max(self._all(f"all-reduce {size} bytes", calls, self.limit_s).values()), size
            say(size=size, seconds=last)

    def _pair(self, pair: tuple[str, str]) -> float:
        """Report the result; return the slower way's bytes per second, 0 where it does not work."""
        limit_s = max(5, self.limit_s / 4)
        try:
            for order in (pair[::-1], pair) if self.wary else (pair,):
                self._join(PAIRS, order, limit_s)
            calls = {at: self.actors[at].pair.remote((64 if self.nccl else 4) * MIB) for at in pair}
            one, two = self._all(PAIRS, calls, limit_s).values()
        except Broken as broken:
            if self.silent():
                raise
            say(pair=pair, said="; ".join(broken.errors.values()))
            self.settle(pair)
            return 0
        if wrong := one["said"] or two["said"]:
            say(pair=pair, said=wrong)
            return 0
        ways = [one["seconds"], two["seconds"]]
        say(pair=pair, said=None, bytes=one["bytes"], seconds=ways, latency_s=one["latency_s"])
        return float(one["bytes"] / max(ways))

    def _all(self, step: str, calls: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the answers; raise Broken unless all hosts answer."""
        found, errors = answers(calls, limit_s)
        if errors:
            raise Broken(step, errors)
        return found


def actor_on(node: dict[str, Any], kind: type, **options: object) -> Any:  # noqa: ANN401 - the same
    """Make the class an actor that Ray starts on that node only."""
    there = NodeAffinitySchedulingStrategy(node["id"], soft=False)
    return ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy=there, **options)(kind)


def answers(calls: dict[Any, Any], limit_s: float) -> tuple[dict[Any, Any], dict[Any, str]]:
    """Return the answers in time, and the errors of the others."""
    done, _ = ray.wait(list(calls.values()), num_returns=len(calls), timeout=limit_s)
    found, errors = {}, {}
    for address, call in calls.items():
        if call not in done:
            errors[address] = f"no answer within {limit_s:.0f} s"
            continue
        try:
            found[address] = ray.get(call, timeout=PULSE_LIMIT_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this host said
            errors[address] = next(reversed(str(error).split("\n")), "")[:300] or type(error).__name__
    return found, errors


def transport(nodes: Iterable[dict[str, Any]]) -> tuple[str, bool]:
    """Choose NCCL or Gloo; return the reason, and whether it is NCCL."""
    if not built_for_cuda():
        return "the engine environment is one for CPUs", False
    if taken := [node["address"] for node in nodes if node["free"] < 1]:
        return f"no free GPU on {', '.join(taken)}; NCCL was not tried", False
    return "every rank has a GPU", True


def built_for_cuda() -> bool:
    """Read torch's version file, because importing torch takes seconds."""
    spec = find_spec("torch")
    version = runpy.run_path(str(Path(spec.origin).with_name("version.py"))) if spec and spec.origin else {}
    return bool(version.get("cuda"))


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


@contextlib.contextmanager
def connected(address: str, own: str) -> Iterator[None]:
    ray.init(address=address, _node_ip_address=own, log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


def main(address: str, own: str, task: str) -> None:
    say(step="connect to the cluster")
    with connected(address, own):
        trial = Trial(json.loads(task))
        try:
            if not over(trial, trial.start, trial.whole, trial.pairs):
                over(trial, trial.again)
        finally:
            say(done=True)
            trial.end()


def over(trial: Trial, *steps: Callable[[], None]) -> bool:
    """Do these steps; return whether there is nothing more to find out."""
    try:
        for step in steps:
            step()
    except Broken as broken:
        silent = trial.silent()
        say(broken=broken.step, errors=broken.errors, silent=silent)
        return bool(silent) or broken.step == START
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
