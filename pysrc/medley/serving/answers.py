"""Compare a server's greedy answers with those of transformers, token by token.

answers.json has the first 16 tokens of 14 conversations with smollm2, by transformers 5.19.0 in float32
(tools/reference_answers.py). Each step has the token, its log-probability, the best logit, and by how much it
beat the second. A number format holds only some logits: where two are closer than two steps of its grid,
rounding decides which is the best, and all that follows is another text.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

MODEL = "smollm2"
TOKENS = 16
Dtype = Literal["float32", "bfloat16"]
_FRACTION_BITS: Mapping[Dtype, int] = {"float32": 23, "bfloat16": 7}
_GRID_STEPS = 2
# Sums over 30 layers in another order: 0.0001 was the most that was seen in float32.
_FLOAT32_LOGPROB = 0.002
_END = "<|im_end|>"


class Step(NamedTuple):
    """One token of the reference; logarithms are natural."""

    text: str
    logprob: float
    best: float
    """The best logit."""
    distance: float
    """By how much it beat the second."""


@dataclass(frozen=True)
class Reference:
    """A conversation, and how the reference answers it."""

    messages: tuple[Mapping[str, str], ...]
    steps: tuple[Step, ...]

    @property
    def question(self) -> str:
        return self.messages[-1]["content"]

    @property
    def text(self) -> str:
        return "".join(step.text for step in self.steps)


@dataclass(frozen=True)
class Comparison:
    """One answer, compared with its reference."""

    reference: Reference
    text: str
    equal: int
    """The number of equal tokens before the first difference."""
    logprob_error: float
    """The largest error of a reference token's log-probability, up to the first difference."""
    fault: str | None
    """What the number format does not explain."""

    @property
    def is_equal(self) -> bool:
        return self.equal == len(self.reference.steps)

    def __str__(self) -> str:
        """The first difference in words; empty without one."""
        if self.is_equal:
            return ""
        step = self.reference.steps[self.equal]
        return (
            f"{self.reference.question!r}: token {self.equal}, where the best two are {step.distance} apart"
        )


def references(count: int | None = None) -> tuple[Reference, ...]:
    """Return the first conversations; None: all of them."""
    table = json.loads(Path(__file__).with_name("answers.json").read_text(encoding="utf-8"))
    return tuple(
        Reference(tuple(each["messages"]), tuple(Step(*step) for step in each["steps"]))
        for each in table[:count]
    )


def request(reference: Reference, model: str = MODEL) -> dict[str, Any]:
    """Return the body for /v1/chat/completions."""
    ask = {"temperature": 0, "max_tokens": TOKENS, "logprobs": True, "top_logprobs": 5}
    return {"model": model, "messages": list(reference.messages), **ask}


def compare(
    reference: Reference, choice: Mapping[str, Any], dtype: Dtype, *, logprob_limit: float | None = None
) -> Comparison:
    """Compare a choice of the answer; `logprob_limit`: the error allowed in place of the format's own."""
    content = (choice.get("logprobs") or {}).get("content") or ()
    served = [each for each in content if each["token"] != _END]
    texts = [_text(each) for each in served]
    pairs = zip((step.text for step in reference.steps), texts, strict=False)
    equal = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
    if equal is None:
        equal = min(len(texts), len(reference.steps))
    errors = [
        (abs(found - step.logprob), step)
        for step, each in zip(reference.steps[: equal + 1], served, strict=False)
        if (found := _logprob(each, step.text)) is not None
    ]
    limits = [(error, limit_of(step, dtype, logprob_limit)) for error, step in errors]
    fault = next((f"a log-probability is {error:.3f} off" for error, limit in limits if error > limit), None)
    if equal < max(len(reference.steps), len(texts)):
        fault = fault or _difference(reference.steps, equal, dtype, logprob_limit)
    worst = max((error for error, _ in errors), default=math.inf)
    return Comparison(reference, "".join(texts), equal, worst, fault)


def limit_of(step: Step, dtype: Dtype, logprob_limit: float | None = None) -> float:
    """Return the largest error of a log-probability that the number format explains."""
    floor = _FLOAT32_LOGPROB if dtype == "float32" else 0.0
    return logprob_limit or max(floor, _GRID_STEPS * grid(step.best, dtype))


def grid(logit: float, dtype: Dtype) -> float:
    """Return the distance of two numbers of this format near a logit: 0.125 in bfloat16 from 16 to 32."""
    return math.ldexp(1.0, math.frexp(abs(logit))[1] - 1 - _FRACTION_BITS[dtype])


def faults(found: Iterable[Comparison]) -> list[str]:
    """Return a line for each answer with a difference that its number format does not explain."""
    return [f"{each.reference.question!r}: {each.fault}: {each.text!r}" for each in found if each.fault]


def _difference(steps: Sequence[Step], at: int, dtype: Dtype, logprob_limit: float | None) -> str | None:
    if at >= len(steps):
        return "the answer goes on where the reference ends"
    allowed = logprob_limit or _GRID_STEPS * grid(steps[at].best, dtype)
    if steps[at].distance < allowed:
        return None
    return f"token {at} differs, where the best two logits are {steps[at].distance} apart"


def _text(token: Mapping[str, Any]) -> str:
    of_bytes = token.get("bytes")
    return bytes(of_bytes).decode(errors="replace") if of_bytes else str(token["token"])


def _logprob(token: Mapping[str, Any], text: str) -> float | None:
    """Return the served log-probability of the reference's token; None where it is not among the best."""
    for each in (token, *token.get("top_logprobs", ())):
        if _text(each) == text:
            return float(each["logprob"])
    return None
