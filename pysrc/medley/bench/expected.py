"""What is expected is the prediction for the plan that is served, in the terms that a benchmark measures."""

from dataclasses import dataclass

from medley import predict
from medley.bench.load import Load
from medley.layout.shapes import Layout
from medley.predict import Prediction
from medley.tables import Shape


@dataclass(frozen=True)
class Expected:
    output_tokens_per_s: float
    """The time of the prompts included, as benchmarks count it."""
    low: float
    high: float
    """Where it will lie nine times in ten."""
    tpot_ms: float
    ttft_ms: float | None
    """Only of one stream: the prediction knows no prompt that waits for others."""
    bound: str


def expected(shape: Shape, layout: Layout, load: Load, concurrency: int) -> Expected:
    return of_prediction(predict.predict(shape, layout, asked(load, concurrency)), load, concurrency)


def asked(load: Load, concurrency: int) -> predict.Load:
    """The same load, as the prediction has it: halfway through an answer, on average."""
    context = load.input_tokens + load.output_tokens // 2
    return predict.Load(concurrency, prompt_tokens=load.input_tokens, context_tokens=context)


def of_prediction(told: Prediction, load: Load, concurrency: int) -> Expected:
    """Every stream has one answer after the other, and each waits while the prompts of all are read."""
    prompts_s = concurrency * load.input_tokens / told.prefill_tokens_per_s
    rate = concurrency * load.output_tokens / (prompts_s + load.output_tokens / told.per_stream)
    return Expected(
        output_tokens_per_s=rate,
        low=rate * told.low / told.tokens_per_s,
        high=rate * told.high / told.tokens_per_s,
        tpot_ms=1000 / told.per_stream,
        ttft_ms=told.ttft_s * 1000 if concurrency == 1 else None,
        bound=told.bound,
    )
