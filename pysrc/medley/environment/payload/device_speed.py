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

# The side of a matrix, and the number of matrices: larger than any cache (256 and 512 MiB), so that
# weights come from memory.
MATRIX_SIDES = {"cpu": 4096, "cuda": 8192}
MATRIX_COUNTS = {"cpu": 8, "cuda": 4}
# Tokens per product, and seconds: a control group's quota is granted every 0.1 s, so that twenty periods
# err by at most a twentieth.
FEW_TOKENS, MANY_TOKENS = 8, 256
RUNS_TOKENS_S = ((1, 2.0), (FEW_TOKENS, 1.0), (MANY_TOKENS, 1.0))
# Runs beside a server that starts or is idle: the best of three, of which none begins after 2 s.
SHORT_RUNS_TOKENS_S, SHORT_REPEATS, SHORT_LIMIT_S = ((1, 0.3), (FEW_TOKENS, 0.1), (MANY_TOKENS, 0.2)), 3, 2.0
WARM_S, SHORT_WARM_S = 0.2, 0.05
MIN_FREE_BYTES = 256 << 20
STEP_TITLES = {
    1: "read weights",
    FEW_TOKENS: f"multiply {FEW_TOKENS} tokens",
    MANY_TOKENS: "multiply many tokens",
}


class Meter:
    """Measures one device with 16-bit weights, as an engine has, and as many threads as a rank has."""

    def __init__(
        self, device_name: str | None = None, life_s: float | None = None, *, is_short: bool = False
    ) -> None:
        import torch

        if life_s:
            # The process ends itself after `life_s`, in case nothing else ends it.
            timer = threading.Timer(life_s, os._exit, (1,))
            timer.daemon = True
            timer.start()
        self.device = torch.device(device_name or ("cuda:0" if torch.cuda.is_available() else "cpu"))
        # vLLM's default for today's models is bfloat16, and float16 on a GPU without units for it.
        is_old_gpu = self.device.type == "cuda" and torch.cuda.get_device_capability(self.device) < (8, 0)
        self.dtype = torch.float16 if is_old_gpu else torch.bfloat16
        self.warm_s = SHORT_WARM_S if is_short else WARM_S
        side, count = MATRIX_SIDES[self.device.type], MATRIX_COUNTS[self.device.type]
        if is_short:
            side, count = choose_matrix_size(side, count, read_free_bytes(self.device))
        # Random, because zeros take less power, and so a GPU would run faster than it will.
        matrix = torch.randn(side, side, device=self.device, dtype=self.dtype)
        self.weights = [matrix, *(matrix.clone() for _ in range(count - 1))]

    def describe_device(self) -> dict[str, Any]:
        import torch

        properties = torch.cuda.get_device_properties(self.device) if self.device.type == "cuda" else None
        return {
            "side": self.weights[0].shape[0],
            "weights_bytes": len(self.weights) * 2 * self.weights[0].shape[0] ** 2,
            "uuid": str(getattr(properties, "uuid", "")) or None,
            "dtype": str(self.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }

    def measure_seconds(self, tokens: int, run_s: float) -> float:
        """Return the mean seconds of one product with one matrix, over whole periods of a CPU quota."""
        import torch

        inputs = torch.randn(tokens, self.weights[0].shape[1], device=self.device).to(self.dtype)
        with torch.inference_mode():
            self._multiply_rounds(inputs, self.warm_s)
            return self._multiply_rounds(inputs, run_s)

    def _multiply_rounds(self, inputs: Any, run_s: float) -> float:  # noqa: ANN401 - torch is imported late
        """Multiply by one matrix after the other; return seconds per product. A GPU queues all."""
        import torch

        started_s, spent_s, product_count, is_cuda = time.perf_counter(), 0.0, 0, self.device.type == "cuda"
        while spent_s < run_s or not product_count:
            for weight in self.weights if is_cuda else [self.weights[product_count % len(self.weights)]]:
                torch.nn.functional.linear(inputs, weight)
                product_count += 1
            if is_cuda:
                torch.cuda.synchronize(self.device)
            spent_s = time.perf_counter() - started_s
        return spent_s / product_count


def compute_rates(device: dict[str, Any], seconds_by_tokens: dict[int, float]) -> dict[str, float]:
    """Return the GB/s of reading weights for one token, and the TFLOPS with few and with many tokens."""
    matrix_elements = device["side"] ** 2
    return {
        "gb_s": 2 * matrix_elements / seconds_by_tokens[1] / 1e9,
        "few_tflops": 2 * FEW_TOKENS * matrix_elements / seconds_by_tokens[FEW_TOKENS] / 1e12,
        "tflops": 2 * MANY_TOKENS * matrix_elements / seconds_by_tokens[MANY_TOKENS] / 1e12,
    }


def read_free_bytes(device: Any) -> int:  # noqa: ANN401 - torch is imported late
    """Return the free bytes of a device's memory."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def choose_matrix_size(side: int, count: int, free_bytes: int) -> tuple[int, int]:
    """Return side and number of matrices in at most a quarter of the free bytes.

    Raise MemoryError with less than 256 MiB free.
    """
    if free_bytes < MIN_FREE_BYTES:
        raise MemoryError(f"{free_bytes >> 20} MiB are free, and the probe needs {MIN_FREE_BYTES >> 20} MiB")
    while 2 * side * side > free_bytes // 4:
        side //= 2
    return side, min(count, free_bytes // 4 // (2 * side * side))


def measure_host(*, is_short: bool = False) -> None:
    import torch

    for device_name in [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]:
        try:
            meter = Meter(device_name, is_short=is_short)
        except MemoryError as error:
            print(json.dumps({"skipped": str(error)}))
            continue
        runs_seconds, started_s = list[dict[int, float]](), time.perf_counter()
        while not runs_seconds or (
            is_short and len(runs_seconds) < SHORT_REPEATS and time.perf_counter() - started_s < SHORT_LIMIT_S
        ):
            runs = SHORT_RUNS_TOKENS_S if is_short else RUNS_TOKENS_S
            runs_seconds.append({tokens: meter.measure_seconds(tokens, run_s) for tokens, run_s in runs})
        best_seconds = {
            tokens: min(run_seconds[tokens] for run_seconds in runs_seconds) for tokens in runs_seconds[0]
        }
        print(
            json.dumps(
                {
                    "device": "here",
                    **meter.describe_device(),
                    **compute_rates(meter.describe_device(), best_seconds),
                }
            )
        )
        del meter


def measure_cluster(address: str, own_address: str, task: str) -> None:
    import ray

    sys.path.insert(0, str(Path(__file__).parent))  # not there with PYTHONSAFEPATH
    from allreduce import connect_ray, print_event

    print_event(step="connect to the cluster")
    with connect_ray(address, own_address):
        meters: dict[tuple[str, int], Any] = {}
        try:
            measure_devices(json.loads(task), meters)
        finally:
            print_event(done=True)
            for meter in meters.values():
                ray.kill(meter)


def measure_devices(task: dict[str, Any], meters: dict[tuple[str, int], Any]) -> None:
    """Add to `meters` one on each free GPU and on each idle host without GPUs, by address and number."""
    import ray
    from allreduce import collect_answers, is_built_for_cuda, pin_actor, print_event

    def collect_results(calls: dict[tuple[str, int], Any]) -> dict[tuple[str, int], Any]:
        """Return the answers within the limit; print a failed device and remove its meter."""
        results: dict[tuple[str, int], Any]
        results, errors = collect_answers(calls, float(task["limit_s"]))
        for place, error in errors.items():
            print_event(failed=place[0], said=error)
            ray.kill(meters.pop(place))
        return results

    print_event(step="start the meters")
    is_cuda = is_built_for_cuda()
    for node in task["nodes"]:
        # All slots of a host without a GPU share its processor, so it is measured only while all are free.
        free_slots = node["free"] if is_cuda else int(node["free"] == node["slots"] > 0)
        if not free_slots:
            print_event(busy=node["address"])
        for number in range(free_slots):
            # A meter takes a slot, as a rank does: no rank runs there meanwhile, and Ray assigns it a GPU.
            actor = pin_actor(node, Meter, num_gpus=1)
            meters[node["address"], number] = actor.remote(None, float(task["life_s"]))
    devices = collect_results({place: meter.describe_device.remote() for place, meter in meters.items()})
    seconds_by_place: dict[tuple[str, int], dict[int, float]] = {}
    for tokens, run_s in RUNS_TOKENS_S:
        print_event(step=STEP_TITLES[tokens])
        calls = {place: meter.measure_seconds.remote(tokens, run_s) for place, meter in meters.items()}
        for place, mean_s in collect_results(calls).items():
            seconds_by_place.setdefault(place, {})[tokens] = mean_s
    for place in meters:
        print_event(
            device=place[0],
            **devices[place],
            ray=ray.__version__,
            **compute_rates(devices[place], seconds_by_place[place]),
        )


if __name__ == "__main__":
    if sys.argv[3:]:
        measure_cluster(*sys.argv[1:])
    else:
        measure_host(is_short="short" in sys.argv[2:])
