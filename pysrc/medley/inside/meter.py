"""A meter is a device at work by itself: how fast it reads weights, and multiplies by them.

python meter.py          every device of this host, one after the other: a JSON object each
"""

import json
import os
import threading
import time
from typing import Any

# A set of matrices larger than any cache, so that weights come from memory: 256 and 512 MiB.
SIDE = {"cpu": 4096, "cuda": 8192}
COUNT = {"cpu": 8, "cuda": 4}
# Tokens at once, and for how long: a control group's quota is given out every 0.1 s, so that twenty periods
# average out to a twentieth.
FEW, MANY = 8, 256
RUNS = ((1, 2.0), (FEW, 1.0), (MANY, 1.0))
WARM_S = 0.2


class Meter:
    """One device with its weights, as an engine has them: 16 bits, and as many threads as a rank has."""

    def __init__(self, place: str | None = None, life_s: float | None = None) -> None:
        import torch

        if life_s:
            # Should nobody be left to end this process, it does so itself.
            timer = threading.Timer(life_s, os._exit, (1,))
            timer.daemon = True
            timer.start()
        self.place = torch.device(place or ("cuda:0" if torch.cuda.is_available() else "cpu"))
        self.dtype = dtype(self.place)
        side = SIDE[self.place.type]
        # Random, because zeros take less power, and so a GPU would run faster than it will.
        self.weights = [
            torch.randn(side, side, device=self.place).to(self.dtype) for _ in range(COUNT[self.place.type])
        ]

    def about(self) -> dict[str, Any]:
        import torch

        about = torch.cuda.get_device_properties(self.place) if self.place.type == "cuda" else None
        return {
            "side": SIDE[self.place.type],
            "uuid": str(getattr(about, "uuid", "")) or None,
            "dtype": str(self.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }

    def seconds(self, tokens: int, run_s: float) -> float:
        """Of one product of so many tokens with one matrix, the mean: a quota shows in whole periods."""
        import torch

        given = torch.randn(tokens, self.weights[0].shape[1], device=self.place).to(self.dtype)
        with torch.inference_mode():
            self._rounds(given, WARM_S)
            return self._rounds(given, run_s)

    def _rounds(self, given: Any, run_s: float) -> float:  # noqa: ANN401 - torch is imported late
        """One round at least, through all weights."""
        import torch

        begun, rounds = time.perf_counter(), 0
        while True:
            for weight in self.weights:
                torch.nn.functional.linear(given, weight)
            if self.place.type == "cuda":
                torch.cuda.synchronize(self.place)
            rounds += 1
            spent = time.perf_counter() - begun
            if spent >= run_s:
                return spent / rounds / len(self.weights)


def dtype(place: Any) -> Any:  # noqa: ANN401 - torch is imported late
    """As vLLM stores the weights of today's models: bfloat16, but float16 on a GPU that has no such units."""
    import torch

    if place.type == "cuda" and torch.cuda.get_device_capability(place) < (8, 0):
        return torch.float16
    return torch.bfloat16


def rates(about: dict[str, Any], seconds: dict[int, float]) -> dict[str, float]:
    """GB/s of weights with one token, TFLOPS with a few and with many, from seconds by tokens at once."""
    weights = about["side"] ** 2
    return {
        "gb_s": 2 * weights / seconds[1] / 1e9,
        "few_tflops": 2 * FEW * weights / seconds[FEW] / 1e12,
        "tflops": 2 * MANY * weights / seconds[MANY] / 1e12,
    }


def main() -> None:
    import torch

    places = [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]
    for place in places:
        meter = Meter(place)
        seconds = {tokens: meter.seconds(tokens, run_s) for tokens, run_s in RUNS}
        print(json.dumps({"device": "here", **meter.about(), **rates(meter.about(), seconds)}))


if __name__ == "__main__":
    main()
