"""Measure how fast devices read weights and multiply by them; run in an engine's Python, prints JSON lines.

    python device_speed.py DEVICE [short]       each device of this host: a JSON object each
    python device_speed.py HOST:PORT OWN TASK   devices of a Ray cluster's hosts, all at once

TASK is a JSON object: nodes (id, address, free, slots), limit_s of a step, life_s of a meter. Each line of a
cluster is a JSON object known by its first key: step, device, busy, failed, done.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

# A set of matrices larger than any cache, so that weights come from memory: 256 and 512 MiB.
SIDE = {"cpu": 4096, "cuda": 8192}
COUNT = {"cpu": 8, "cuda": 4}
# Tokens at once, and for how long: a control group's quota is given out every 0.1 s, so that twenty periods
# average out to a twentieth.
FEW, MANY = 8, 256
RUNS = ((1, 2.0), (FEW, 1.0), (MANY, 1.0))
# Where a server starts or is idle: the best of three, none of which begins after 2 s.
SHORT_RUNS, SHORT_TIMES, SHORT_LIMIT_S = ((1, 0.3), (FEW, 0.1), (MANY, 0.2)), 3, 2.0
WARM_S, SHORT_WARM_S = 0.2, 0.05
LEAST_FREE_BYTES = 256 << 20
STEPS = {1: "read weights", FEW: f"multiply {FEW} tokens", MANY: "multiply many tokens"}


class Meter:
    """One device with its weights, as an engine has them: 16 bits, and as many threads as a rank has."""

    def __init__(self, place: str | None = None, life_s: float | None = None, *, short: bool = False) -> None:
        import torch

        if life_s:
            # Should nobody be left to end this process, it does so itself.
            timer = threading.Timer(life_s, os._exit, (1,))
            timer.daemon = True
            timer.start()
        self.place = torch.device(place or ("cuda:0" if torch.cuda.is_available() else "cpu"))
        # As vLLM stores the weights of today's models: bfloat16, but float16 on a GPU that has no such units.
        old = self.place.type == "cuda" and torch.cuda.get_device_capability(self.place) < (8, 0)
        self.dtype = torch.float16 if old else torch.bfloat16
        self.warm_s = SHORT_WARM_S if short else WARM_S
        side, count = SIDE[self.place.type], COUNT[self.place.type]
        if short:
            side, count = fitting(side, count, free_bytes(self.place))
        # Random, because zeros take less power, and so a GPU would run faster than it will.
        first = torch.randn(side, side, device=self.place, dtype=self.dtype)
        self.weights = [first, *(first.clone() for _ in range(count - 1))]

    def about(self) -> dict[str, Any]:
        import torch

        about = torch.cuda.get_device_properties(self.place) if self.place.type == "cuda" else None
        return {
            "side": self.weights[0].shape[0],
            "weights_bytes": len(self.weights) * 2 * self.weights[0].shape[0] ** 2,
            "uuid": str(getattr(about, "uuid", "")) or None,
            "dtype": str(self.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }

    def seconds(self, tokens: int, run_s: float) -> float:
        """Return the mean of one product with one matrix: a quota shows in whole periods."""
        import torch

        given = torch.randn(tokens, self.weights[0].shape[1], device=self.place).to(self.dtype)
        with torch.inference_mode():
            self._rounds(given, self.warm_s)
            return self._rounds(given, run_s)

    def _rounds(self, given: Any, run_s: float) -> float:  # noqa: ANN401 - torch is imported late
        """Multiply by one weight after the other; a GPU takes all of them before it is looked at again."""
        import torch

        begun, spent, products, cuda = time.perf_counter(), 0.0, 0, self.place.type == "cuda"
        while spent < run_s or not products:
            for weight in self.weights if cuda else [self.weights[products % len(self.weights)]]:
                torch.nn.functional.linear(given, weight)
                products += 1
            if cuda:
                torch.cuda.synchronize(self.place)
            spent = time.perf_counter() - begun
        return spent / products


def rates(about: dict[str, Any], seconds: dict[int, float]) -> dict[str, float]:
    """GB/s of weights with one token, TFLOPS with a few and with many, from seconds by tokens at once."""
    weights = about["side"] ** 2
    return {
        "gb_s": 2 * weights / seconds[1] / 1e9,
        "few_tflops": 2 * FEW * weights / seconds[FEW] / 1e12,
        "tflops": 2 * MANY * weights / seconds[MANY] / 1e12,
    }


def free_bytes(place: Any) -> int:  # noqa: ANN401 - torch is imported late
    """What can be had there now."""
    import torch

    if place.type == "cuda":
        return int(torch.cuda.mem_get_info(place)[0])
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def fitting(side: int, count: int, free: int) -> tuple[int, int]:
    """Side and number of matrices in at most a quarter of the free bytes."""
    if free < LEAST_FREE_BYTES:
        raise MemoryError(f"{free >> 20} MiB are free, and the probe needs {LEAST_FREE_BYTES >> 20} MiB")
    while 2 * side * side > free // 4:
        side //= 2
    return side, min(count, free // 4 // (2 * side * side))


def measure_host(*, short: bool = False) -> None:
    import torch

    for place in [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]:
        try:
            meter = Meter(place, short=short)
        except MemoryError as error:
            print(json.dumps({"skipped": str(error)}))
            continue
        seconds, begun = list[dict[int, float]](), time.perf_counter()
        while not seconds or (
            short and len(seconds) < SHORT_TIMES and time.perf_counter() - begun < SHORT_LIMIT_S
        ):
            runs = SHORT_RUNS if short else RUNS
            seconds.append({tokens: meter.seconds(tokens, run_s) for tokens, run_s in runs})
        best = {tokens: min(each[tokens] for each in seconds) for tokens in seconds[0]}
        print(json.dumps({"device": "here", **meter.about(), **rates(meter.about(), best)}))
        del meter


def measure_cluster(address: str, own: str, task: str) -> None:
    import ray
    from allreduce import connected, say

    say(step="connect to the cluster")
    with connected(address, own):
        meters: dict[tuple[str, int], Any] = {}
        try:
            measure(json.loads(task), meters)
        finally:
            say(done=True)
            for meter in meters.values():
                ray.kill(meter)


def measure(task: dict[str, Any], meters: dict[tuple[str, int], Any]) -> None:
    """Fill `meters`, by a host's address and a number: one on each free GPU, one on a host without."""
    import ray
    from allreduce import actor_on, answers, built_for_cuda, say

    def results(calls: dict[tuple[str, int], Any]) -> dict[tuple[str, int], Any]:
        """Return the answers in time; report a failed device and leave it out."""
        found: dict[tuple[str, int], Any]
        found, errors = answers(calls, float(task["limit_s"]))
        for at, error in errors.items():
            say(failed=at[0], said=error)
            ray.kill(meters.pop(at))
        return found

    say(step="start the meters")
    cuda = built_for_cuda()
    for node in task["nodes"]:
        # A host without a GPU has one processor for all slots. Where a model is served now, nobody measures.
        free = node["free"] if cuda else int(node["free"] == node["slots"] > 0)
        if not free:
            say(busy=node["address"])
        for number in range(free):
            # A slot, as a rank takes one: meanwhile nobody else works there, and Ray shows it its own GPU.
            made = actor_on(node, Meter, num_gpus=1)
            meters[node["address"], number] = made.remote(None, float(task["life_s"]))
    about = results({at: meter.about.remote() for at, meter in meters.items()})
    seconds: dict[tuple[str, int], dict[int, float]] = {}
    for tokens, run_s in RUNS:
        say(step=STEPS[tokens])
        calls = {at: meter.seconds.remote(tokens, run_s) for at, meter in meters.items()}
        for at, mean_s in results(calls).items():
            seconds.setdefault(at, {})[tokens] = mean_s
    for at in meters:
        say(device=at[0], **about[at], ray=ray.__version__, **rates(about[at], seconds[at]))


if __name__ == "__main__":
    if sys.argv[3:]:
        measure_cluster(*sys.argv[1:])
    else:
        measure_host(short="short" in sys.argv[2:])
