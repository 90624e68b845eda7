"""Answers beside their reference: what rounding excuses, and what it does not."""

from typing import Any

import pytest

from medley.serving import answers
from medley.serving.answers import Dtype, Reference, Step

QUESTION = ({"role": "user", "content": "What is the capital of France?"},)
# The second step is a near-tie, the third is not; all best logits are between 16 and 32.
REFERENCE = Reference(
    QUESTION, (Step("The", -0.5, 25.0, 3.0), Step(" sea", -1.0, 20.0, 0.2), Step(" is", -0.7, 17.0, 0.9))
)
TEXTS = ("The", " sea", " is")


def choice(*tokens: tuple[str, float] | tuple[str, float, tuple[str, float]]) -> dict[str, Any]:
    """Return a choice of an answer; a third part of a token is another of the best."""
    content = []
    for text, logprob, *others in tokens:
        tops = [{"token": other[0], "bytes": None, "logprob": other[1]} for other in others]
        content.append(
            {"token": text, "bytes": list(text.encode()), "logprob": logprob, "top_logprobs": tops}
        )
    return {"logprobs": {"content": content}}


def served(*logprobs: float, texts: tuple[str, ...] = TEXTS) -> dict[str, Any]:
    return choice(*zip(texts, logprobs, strict=True))


def test_the_reference_is_of_a_model_that_talks() -> None:
    found = answers.read_references()
    assert len(found) == 14
    assert found[0].text == "The capital of France is Paris."
    assert found[0].steps[0] == Step("The", -1.8643, 25.3599, 0.0983)
    assert all(0 < len(each.steps) <= answers.MAX_TOKENS for each in found)
    assert all(
        each.margin > 2 * answers.compute_grid_step(each.best_logit, "float32")
        for one in found
        for each in one.steps
    )


def test_equal_tokens() -> None:
    found = answers.compare_answer(REFERENCE, served(-0.5, -1.0001, -0.7), "float32")
    assert (found.is_equal, found.equal_tokens, found.fault, str(found)) == (True, 3, None, "")
    assert found.logprob_error == pytest.approx(0.0001)


def test_an_end_token_is_no_difference() -> None:
    found = answers.compare_answer(
        REFERENCE, choice(("The", -0.5), (" sea", -1.0), (" is", -0.7), ("<|im_end|>", -0.1)), "float32"
    )
    assert (found.is_equal, found.fault) == (True, None)


@pytest.mark.parametrize(
    ("tokens", "dtype", "equal", "fault"),
    [
        pytest.param((("The", -0.5), (" sun", -1.0, (" sea", -1.1)), (" was", -0.1)), "bfloat16", 1, None,
                     id="a near-tie in bfloat16"),
        pytest.param((("The", -0.5), (" sun", -1.0, (" sea", -1.0)), (" was", -0.1)), "float32", 1,
                     "token 1 differs", id="the same in float32"),
        pytest.param((("The", -0.5), (" sea", -1.0), (" was", -0.6, (" is", -0.7))), "bfloat16", 2,
                     "token 2 differs", id="no near-tie"),
        pytest.param((("The", -0.9), (" sea", -1.0), (" is", -0.7)), "bfloat16", 3,
                     "a log-probability is 0.400 off", id="a log-probability"),
        pytest.param((("The", -0.5), (" sun", -0.5, (" sea", -1.5)), (" was", -0.1)), "bfloat16", 1,
                     "a log-probability is 0.500 off", id="a log-probability at a near-tie"),
        pytest.param((("The", -0.51), (" sea", -1.0), (" is", -0.7)), "float32", 3,
                     "a log-probability is 0.010 off", id="a log-probability in float32"),
        pytest.param((("The", -0.5), (" sea", -1.0)), "float32", 2, "token 2 differs", id="an early end"),
        pytest.param((("The", -0.5), (" sea", -1.0), (" is", -0.7), (" a", -0.1)), "bfloat16", 3,
                     "goes on", id="a late end"),
    ],
)  # fmt: skip
def test_a_difference_needs_a_reason(tokens: Any, dtype: Dtype, equal: int, fault: str | None) -> None:
    found = answers.compare_answer(REFERENCE, choice(*tokens), dtype)
    assert found.equal_tokens == equal
    assert (found.fault is None) if fault is None else fault in (found.fault or "")
    assert len(answers.list_faults([found])) == (fault is not None)


def test_another_limit_in_place_of_the_format_s() -> None:
    tokens = (("The", -0.9), (" sun", -1.0, (" sea", -1.3)), (" was", -0.1))
    assert answers.compare_answer(REFERENCE, choice(*tokens), "float32").fault
    assert answers.compare_answer(REFERENCE, choice(*tokens), "float32", logprob_limit=0.5).fault is None


@pytest.mark.parametrize(
    ("logit", "dtype", "grid"),
    [
        pytest.param(16.0, "bfloat16", 0.125, id="bfloat16 from 16"),
        pytest.param(31.9, "bfloat16", 0.125, id="below 32"),
        pytest.param(32.0, "bfloat16", 0.25, id="from 32"),
        pytest.param(-9.0, "bfloat16", 0.0625, id="negative"),
        pytest.param(16.0, "float32", 2.0**-19, id="float32"),
    ],
)
def test_the_grid_of_a_number_format(logit: float, dtype: Dtype, grid: float) -> None:
    assert answers.compute_grid_step(logit, dtype) == grid


def test_a_request_asks_for_what_is_compared() -> None:
    body = answers.build_request(answers.read_references(1)[0])
    assert (body["temperature"], body["logprobs"], body["max_tokens"]) == (0, True, answers.MAX_TOKENS)
