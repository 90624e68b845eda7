"""Compare a server's greedy answers with those of transformers, token by token.

answers.json has the first 16 tokens of 14 conversations with smollm2, by transformers 5.19.0 in float32
(tools/reference_answers.py). Each step has the token, its log-probability, the best logit, and by how much it
beat the second. A number format holds only some logits: where two are closer than two steps of its grid,
rounding decides which is the best, and all that follows is another text.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from medley.values import Value

MODEL = "smollm2"
MAX_TOKENS = 16
Dtype = Literal["float32", "bfloat16"]
_FRACTION_BITS: Mapping[Dtype, int] = {"float32": 23, "bfloat16": 7}
_GRID_STEPS = 2
# Errors of sums over 30 layers in another order; the largest observed in float32 was 0.0001.
_FLOAT32_LOGPROB_ERROR = 0.002
_END_MARK = "<|im_end|>"


class Step(NamedTuple):
    """One decoding step of the reference: its token, with natural logarithms."""

    text: str
    logprob: float
    best_logit: float
    """The largest logit, before the softmax."""
    margin: float
    """The best logit minus the second one."""


class Reference(Value):
    """A conversation with the reference's answer."""

    messages: tuple[Mapping[str, str], ...]
    steps: tuple[Step, ...]

    @property
    def question(self) -> str:
        return self.messages[-1]["content"]

    @property
    def text(self) -> str:
        return "".join(step.text for step in self.steps)


class Comparison(Value):
    """One answer, compared with its reference."""

    reference: Reference
    text: str
    equal_tokens: int
    """The number of equal tokens before the first difference."""
    logprob_error: float
    """The largest error of a reference token's log-probability, up to the first difference."""
    fault: str | None
    """A difference that the number format does not explain; None without one."""

    @property
    def is_equal(self) -> bool:
        return self.equal_tokens == len(self.reference.steps)

    def __str__(self) -> str:
        """Return the first difference in words; empty without one."""
        if self.is_equal:
            return ""
        step = self.reference.steps[self.equal_tokens]
        place = f"{self.reference.question!r}: token {self.equal_tokens}"
        return f"{place}, where the best two are {step.margin} apart"


def read_references(count: int | None = None) -> tuple[Reference, ...]:
    """Return the first `count` conversations; None: all of them."""
    table = json.loads(Path(__file__).with_name("answers.json").read_text(encoding="utf-8"))
    return tuple(
        Reference(tuple(entry["messages"]), tuple(Step(*step) for step in entry["steps"]))
        for entry in table[:count]
    )


def build_request(reference: Reference, model: str = MODEL) -> dict[str, Any]:
    """Return the body for /v1/chat/completions."""
    options = {"temperature": 0, "max_tokens": MAX_TOKENS, "logprobs": True, "top_logprobs": 5}
    return {"model": model, "messages": list(reference.messages), **options}


def compare_answer(
    reference: Reference, choice: Mapping[str, Any], dtype: Dtype, *, logprob_limit: float | None = None
) -> Comparison:
    """Compare a choice of the answer; `logprob_limit`: the allowed error, instead of the format's own."""
    content = (choice.get("logprobs") or {}).get("content") or ()
    tokens = [token for token in content if token["token"] != _END_MARK]
    texts = [_decode_token(token) for token in tokens]
    pairs = zip((step.text for step in reference.steps), texts, strict=False)
    equal_tokens = next(
        (position for position, (expected, text) in enumerate(pairs) if expected != text), None
    )
    if equal_tokens is None:
        equal_tokens = min(len(texts), len(reference.steps))
    errors = [
        (abs(logprob - step.logprob), step)
        for step, token in zip(reference.steps[: equal_tokens + 1], tokens, strict=False)
        if (logprob := _find_logprob(token, step.text)) is not None
    ]
    limits = [(error, compute_logprob_limit(step, dtype, logprob_limit)) for error, step in errors]
    fault = next((f"a log-probability is {error:.3f} off" for error, limit in limits if error > limit), None)
    if equal_tokens < max(len(reference.steps), len(texts)):
        fault = fault or _explain_difference(reference.steps, equal_tokens, dtype, logprob_limit)
    largest_error = max((error for error, _ in errors), default=math.inf)
    return Comparison(reference, "".join(texts), equal_tokens, largest_error, fault)


def compute_logprob_limit(step: Step, dtype: Dtype, logprob_limit: float | None = None) -> float:
    """Return the largest error of a log-probability that the number format explains."""
    floor = _FLOAT32_LOGPROB_ERROR if dtype == "float32" else 0.0
    return logprob_limit or max(floor, _GRID_STEPS * compute_grid_step(step.best_logit, dtype))


def compute_grid_step(logit: float, dtype: Dtype) -> float:
    """Return the distance of two numbers of this format near a logit: 0.125 in bfloat16 from 16 to 32."""
    return math.ldexp(1.0, math.frexp(abs(logit))[1] - 1 - _FRACTION_BITS[dtype])


def list_faults(comparisons: Iterable[Comparison]) -> list[str]:
    """Return a line for each answer with a difference that its number format does not explain."""
    return [
        f"{comparison.reference.question!r}: {comparison.fault}: {comparison.text!r}"
        for comparison in comparisons
        if comparison.fault
    ]


def _explain_difference(
    steps: Sequence[Step], position: int, dtype: Dtype, logprob_limit: float | None
) -> str | None:
    if position >= len(steps):
        return "the answer goes on where the reference ends"
    min_margin = logprob_limit or _GRID_STEPS * compute_grid_step(steps[position].best_logit, dtype)
    if steps[position].margin < min_margin:
        return None
    return f"token {position} differs, where the best two logits are {steps[position].margin} apart"


def _decode_token(token: Mapping[str, Any]) -> str:
    byte_values = token.get("bytes")
    return bytes(byte_values).decode(errors="replace") if byte_values else str(token["token"])


def _find_logprob(token: Mapping[str, Any], text: str) -> float | None:
    """Return the served log-probability of the reference's token; None if it is not among the best."""
    for candidate in (token, *token.get("top_logprobs", ())):
        if _decode_token(candidate) == text:
            return float(candidate["logprob"])
    return None
