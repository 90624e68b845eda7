"""A report hides a secret that it has whole, so no text of an explanation has a part of one."""

import re

import pytest

from medley.explain.lines import cut_at_blank, decode_start
from tests.explain.test_context import ERROR, traced
from tests.explain.test_explain import of

SECRET = "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0"
LOGS = {
    "warning": ("WARNING 11-20 10:00:01 [y.py:2] unsupported gateway {} end\n" * 2, "FooError: odd"),
    "message": ("", "FooError: odd {}"),
    "sentence": ("", "FooError: odd: {}\nand {}"),
    "advice": ("", "FooError: odd. Please set the {}"),
    "advice below": ("", f"FooError: odd\nIt is {'w' * 200}. Please set the name of {{}}"),
    "remedy": ("WARNING 11-20 10:00:01 [y.py:2] flashinfer is too old, install {}\n", "FooError: flashinfer"),
}


@pytest.mark.parametrize("place", LOGS)
def test_no_part_of_a_secret_is_in_an_explanation(place: str) -> None:
    before, error = LOGS[place]
    parts = []
    for width in range(0, 1700, 48):
        text = f"{'x' * width} {SECRET} end"
        log = before.replace("{}", text) + traced("vllm/a.py", error=error.replace("{}", text))
        for report in of(log).problems:
            parts += re.findall(r"9f8e7d6c\w*", str(report.table).replace(SECRET, ""))
    assert parts == []


@pytest.mark.parametrize("width", range(0, 600, 48))
def test_no_part_of_a_secret_is_in_the_end_of_a_log(width: int) -> None:
    text = f"{'x' * width} {SECRET} {'y' * 180} {'z' * 180}"
    for log in (f"(EngineCore pid=9) INFO 11-20 10:00:01 [y.py:2] odd {text}\n", f"$ docker stop {text}\n"):
        (report,) = of(f"{ERROR.replace('ERROR', 'INFO')}Starting to load model a/b {text}\n{log}").problems
        assert re.findall(r"9f8e7d6c\w*|\w*d3c2b1a0", str(report.table).replace(SECRET, "")) == []


@pytest.mark.parametrize(
    ("text", "whole"), [("ab cd", "ab cd"), ("ab cdefg", "ab"), ("abcdefgh", ""), ("ab cd efg", "ab cd")]
)
def test_a_text_is_cut_at_a_blank(text: str, whole: str) -> None:
    assert cut_at_blank(text, 5) == whole


def test_a_line_is_cut_at_a_blank() -> None:
    assert decode_start("é ab cd".encode(), 6) == "é ab"
    assert decode_start("é ab".encode(), 6) == "é ab"
