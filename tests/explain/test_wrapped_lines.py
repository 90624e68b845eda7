"""The lines of one exception that a logger wrapped are one message."""

import pytest

from medley.explain.diagnosis import explain_logs
from medley.explain.scanned_log import Log
from medley.explain.wrapped_lines import join_wrapped
from tests.explain.test_explain import names, of

PREFIX = "(EngineCore pid=77) ERROR 11-21 08:41:03 [core.py:1138] "
WRAPPED = ["odd.OddError: the shelf of", "the node is full, with", "12 of 10 books"]
WHOLE = "odd.OddError: the shelf of the node is full, with 12 of 10 books"


def encode(texts: list[str], prefix: str = PREFIX) -> list[bytes]:
    return [f"{prefix}{text}".encode() for text in texts]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_each_line_of_the_exception_has_the_whole_message(index: int) -> None:
    call = '  File "/x/y.py", line 9, in run'
    raws = encode([call, *WRAPPED, "During handling of the above exception"])
    assert join_wrapped(raws[: index + 1], raws[index + 1], raws[index + 2 :]) == WHOLE


@pytest.mark.parametrize(
    "next_raws",
    [
        encode(["the node"], prefix=PREFIX.replace("77", "78")),
        encode(["the node"], prefix=PREFIX.replace("ERROR", "INFO")),
        encode(["The node is another sentence"]),
        encode(['  File "/x/y.py", line 9, in run']),
        encode(["other.OtherError: it is odd"]),
        [],
    ],
    ids=["another process", "another level", "a sentence", "a call", "an exception", "nothing"],
)
def test_another_line_is_not_joined(next_raws: list[bytes]) -> None:
    assert join_wrapped([], encode(WRAPPED[:1])[0], next_raws) is None


def test_lines_without_a_prefix_are_not_joined() -> None:
    raws = encode(WRAPPED, prefix="")
    assert join_wrapped([], raws[0], raws[1:]) is None


def test_an_unknown_error_has_its_whole_message() -> None:
    first = of("".join(f"{PREFIX}{text}\n" for text in WRAPPED)).first
    assert first
    assert first.match.failure.name == "unknown-error"
    assert WHOLE in first.problem().cause


def test_a_traceback_may_end_in_the_next_block() -> None:
    call = '  File "/opt/vllm/v1/x.py", line 9, in run'
    blocks = [b"".join(raw + b"\n" for raw in encode(texts)) for texts in ([call], WRAPPED)]
    first = explain_logs([Log("log", blocks)]).first
    assert first
    assert WHOLE in first.problem().cause


def test_a_failure_is_found_whose_needle_is_on_two_lines() -> None:
    texts = ["torch.OutOfMemoryError: CUDA out of", "memory. Tried to allocate 2.00 GiB."]
    whole = f"{PREFIX}{' '.join(texts)}\n"
    assert names(of("".join(f"{PREFIX}{text}\n" for text in texts))) == names(of(whole)) != ["unknown-error"]
