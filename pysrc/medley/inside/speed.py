"""Measures each host of a Ray cluster by itself; run by an engine environment's Python, prints JSON lines.

    python speed.py HOST:PORT OWN TASK

TASK is a JSON object: nodes (id, address, free, slots), limit_s of a step, life_s of a meter. Each line is
an event, a JSON object known by its first key: step, device, busy, failed, done. All hosts are measured at
once, as the stages of a pipeline all work at once: what they share, shows.
"""

import json
import sys
from typing import Any

import meter
import ray
from collective import answers, built_for_cuda, connected, say
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

# It is not to be found on other hosts, so it goes there as it is.
ray.cloudpickle.register_pickle_by_value(meter)

STEPS = {1: "read weights", meter.FEW: f"multiply {meter.FEW} tokens", meter.MANY: "multiply many tokens"}

Place = tuple[str, int]
"""A host's address, and which of its meters."""


class Meters:
    """Those of a cluster: one on each free GPU, one on a host without; what comes of them is said."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.nodes = {node["address"]: node for node in task["nodes"]}
        self.limit_s, self.life_s = float(task["limit_s"]), float(task["life_s"])
        self.actors: dict[Place, Any] = {}
        self.seconds: dict[Place, dict[int, float]] = {}

    def start(self) -> dict[Place, dict[str, Any]]:
        """What each says of itself; where a model is served now, nobody can measure."""
        say(step="start the meters")
        cuda = built_for_cuda()
        for address, node in self.nodes.items():
            # A host without a GPU has one processor for all of its slots.
            free = node["free"] if cuda else int(node["free"] == node["slots"] > 0)
            if not free:
                say(busy=address)
            for number in range(free):
                self.actors[address, number] = self._actor(node)
        return self._all({at: actor.about.remote() for at, actor in self.actors.items()})

    def measure(self) -> None:
        about = self.start()
        for tokens, run_s in meter.RUNS:
            say(step=STEPS[tokens])
            calls = {at: actor.seconds.remote(tokens, run_s) for at, actor in self.actors.items()}
            for at, seconds in self._all(calls).items():
                self.seconds.setdefault(at, {})[tokens] = seconds
        for at in self.actors:
            say(device=at[0], **about[at], ray=ray.__version__, **meter.rates(about[at], self.seconds[at]))

    def end(self) -> None:
        for actor in self.actors.values():
            ray.kill(actor)

    def _actor(self, node: dict[str, Any]) -> Any:  # noqa: ANN401 - Ray's handles have no types
        there = NodeAffinitySchedulingStrategy(node["id"], soft=False)
        # A slot, as a rank takes one: meanwhile nobody else works there, and Ray shows it its own GPU.
        options = {"num_cpus": 0, "num_gpus": 1, "max_restarts": 0}
        made = ray.remote(scheduling_strategy=there, **options)(meter.Meter)
        return made.remote(None, self.life_s)

    def _all(self, calls: dict[Place, Any]) -> dict[Place, Any]:
        """What came back in time; a device that failed is said, and takes no further part."""
        found: dict[Place, Any]
        found, errors = answers(calls, self.limit_s)
        for at, said in errors.items():
            say(failed=at[0], said=said)
            ray.kill(self.actors.pop(at))
        return found


def main(address: str, own: str, task: str) -> None:
    say(step="connect to the cluster")
    with connected(address, own):
        meters = Meters(json.loads(task))
        try:
            meters.measure()
        finally:
            say(done=True)
            meters.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
