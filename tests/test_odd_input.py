"""The odd input itself: the same each time, varied, and a parser that fails or is slow is found."""

import json
import re
from itertools import islice

import pytest

from tests import odd_input
from tests.odd_input import blobs, hold, json_texts, texts, values

SAMPLE = {"host": "spark-1", "ports": [1, 2], "deep": {"a": {"b": "c"}}}


@pytest.mark.parametrize(
    "inputs", [lambda: texts(["a: 1\nb: 2"]), lambda: values([SAMPLE]), lambda: json_texts([SAMPLE])]
)
def test_it_is_seeded_and_varied(inputs: "object") -> None:
    made = [list(map(repr, islice(inputs(), 80))) for _ in range(2)]  # type: ignore[operator] # a lambda above
    assert made[0] == made[1]
    assert len(set(made[0])) > 60


def test_a_traceback_is_found() -> None:
    with pytest.raises(AssertionError, match=r"KeyError|TypeError|AttributeError"):
        hold(lambda value: value["host"].upper(), values([SAMPLE]), 300, (IndexError,))


def test_a_slow_pattern_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(odd_input, "_GIVE_UP_S", 0.1)
    with pytest.raises(AssertionError, match=r"processor time|s$"):
        hold(lambda text: re.search(r"(a+)+$", text + "b"), texts(["aaa"]), 300)


def test_a_parser_that_holds_holds() -> None:
    hold(json.loads, json_texts([SAMPLE]), 60, (ValueError, RecursionError))
    hold(bytes.decode, blobs([b"abc"]), 60, (UnicodeDecodeError,))
