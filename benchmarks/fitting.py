"""Which constants of efficiency.py fit published rows best: a search from first guesses, held near them.

What is minimised: for each row the logarithm of predicted over published, squared while small and linear
beyond a fifth (one strange row must not pull), rows about prompts at a half; and for each constant its
distance from the first guess, in units of how uncertain that is: what few rows show stays as guessed.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product

from benchmarks.published import DECODE, PREFILL, Case
from medley.planner.device_specs import Efficiency
from medley.planner.prediction import predict_speed

# The first guess of each constant, how uncertain it is (a factor of e to this), and where it comes from. They
# were made with the published rows at hand, so an error without a source is blind to the fit, not to these.
GUESSES: dict[str, tuple[float, float, str]] = {
    "weights": (0.85, 0.1, "copy benchmarks reach 80 to 90 % of stated bandwidth on LPDDR5X and GDDR7 alike"),
    "cache": (0.6, 0.3, "paged attention at small batches, by half to three quarters"),
    "orin": (0.7, 0.2, "memory clock shared with a slow CPU; 170 of 204.8 GB/s in copies, less in kernels"),
    "layer_us": (50.0, 0.3, "about ten kernels a layer, 3 to 5 us each from a CUDA graph"),
    "step_us": (3000.0, 0.5, "vLLM's scheduler, sampler and detokeniser on Arm cores: 1 to 5 ms"),
    "routing": (
        0.85,
        0.1,
        "experts are chosen unevenly: between one batch one choice (0) and fair choices (1)",
    ),
    "gemm": (0.4, 0.3, "of dense bf16 as stated, in whole layers: 0.3 to 0.6"),
    "formats": (
        0.7,
        0.3,
        "8 bits are not twice, 4 not four times as fast: activations are quantized",
    ),
    "unpacked": (0.3, 0.3, "Marlin's and llama.cpp's kernels multiply in 16 or 8 bits, after unpacking"),
    "desktop": (1.3, 0.5, "a GB10 shares 140 W and 273 GB/s with its CPU; a card has 300 to 600 W"),
    "local_us": (30.0, 0.5, "nccl-tests all_reduce of 8 KB over PCIe: 15 to 40 us, more between sockets"),
    "rdma_us": (35.0, 0.4, "nccl-tests all_reduce of 8 KB between two hosts over RoCE: 20 to 50 us"),
    "staged_gb_s": (
        0.7,
        0.4,
        "all_reduce of two Sparks: 1.0 in dgx-spark-playbooks pull request 103, 0.5 in MiaAI-Lab's issue 22",
    ),
    "tcp_us": (1000.0, 0.5, "the same over NCCL sockets, woken threads included: 0.3 to 1.5 ms"),
}

GUESS = Efficiency(**{name: guess for name, (guess, _, _) in GUESSES.items()})
_KNEE = 0.2
_PROMPT_WEIGHT = 0.5
_STEPS = (0.07, 0.02, 0.005)
_REACH = 0.5
"""As far as a logarithm moves before slopes are taken anew."""
_SLOPE = 0.02
_LEAST_PART, _GAIN = 0.1, 1e-3


def figure(case: Case, efficiency: Efficiency) -> float:
    """What the row would say if the prediction were right, in the row's own unit."""
    used = efficiency.replace(step_us=0.0) if case.native else efficiency
    said = predict_speed(case.shape, case.layout, case.load, used, chunk_tokens=case.chunk_tokens)
    load = case.load
    metric = case.row["metric"].lower()
    if case.what == PREFILL:
        return said.prefill_tokens_per_s
    if case.what != DECODE:
        return said.ttft_s * _scale(case)
    if "tpot" in metric or "itl" in metric:
        return _scale(case) / said.per_stream
    if case.output_tokens is None:
        return said.tokens_per_s
    prompts_s = load.concurrency * load.prompt_tokens / said.prefill_tokens_per_s
    return load.concurrency * case.output_tokens / (prompts_s + case.output_tokens / said.per_stream)


def _scale(case: Case) -> float:
    return 1.0 if case.row["unit"] == "s" else 1000.0


def fit(cases: Sequence[Case], start: Efficiency = GUESS, *, loose: float = 1.0) -> Efficiency:
    """The constants of the least loss, by one linear fit of logarithms after another."""
    used = [case for case in cases if case.scored and case.what in (DECODE, PREFILL)]
    best, least = start, _loss(_errors(used, start), used, start, loose)
    while True:
        aim, part = _linear_fit(used, best, loose), 1.0
        tried, loss = best, math.inf
        while loss >= least and part > _LEAST_PART:
            tried = _moved(best, {name: part * offset for name, offset in aim.items()})
            loss, part = _loss(_errors(used, tried), used, tried, loose), part / 2
        if loss > least - _GAIN:
            return tried if loss < least else best
        best, least = tried, loss


def _linear_fit(cases: Sequence[Case], at: Efficiency, loose: float) -> dict[str, float]:
    """Each constant's logarithm moved in turn, in ever smaller steps, while that helps."""
    errors = _errors(cases, at)
    slopes = {
        name: [
            (after - before) / _SLOPE
            for before, after in zip(errors, _errors(cases, _moved(at, {name: _SLOPE})), strict=True)
        ]
        for name in GUESSES
    }
    offsets, least = dict.fromkeys(GUESSES, 0.0), _loss(errors, cases, at, loose)
    for step in _STEPS:
        moved = True
        while moved:
            moved = False
            for name, by in product(GUESSES, (step, -step)):
                tried = [error + by * slope for error, slope in zip(errors, slopes[name], strict=True)]
                there = offsets | {name: offsets[name] + by}
                loss = _loss(tried, cases, _moved(at, there), loose)
                if abs(there[name]) <= _REACH and loss < least - 1e-9:
                    errors, offsets, least, moved = tried, there, loss, True
    return offsets


def _moved(at: Efficiency, offsets: Mapping[str, float]) -> Efficiency:
    return at.replace(**{name: getattr(at, name) * math.exp(by) for name, by in offsets.items()})


def _errors(cases: Sequence[Case], efficiency: Efficiency) -> list[float]:
    return [math.log(figure(case, efficiency) / case.value) for case in cases]


def _loss(errors: Sequence[float], cases: Sequence[Case], efficiency: Efficiency, loose: float) -> float:
    far = sum(
        (math.log(getattr(efficiency, name) / guess) / (sure * loose)) ** 2
        for name, (guess, sure, _) in GUESSES.items()
    )
    return _KNEE**2 * far + sum(
        _row_loss(error) * (1.0 if case.what == DECODE else _PROMPT_WEIGHT)
        for error, case in zip(errors, cases, strict=True)
    )


def _row_loss(error: float) -> float:
    size = abs(error)
    return size**2 if size < _KNEE else _KNEE * (2 * size - _KNEE)
