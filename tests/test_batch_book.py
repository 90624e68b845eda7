import json
from pathlib import Path

import pytest

from medley.batch.book import Book, opened
from medley.batch.lines import Bad, Request
from medley.problem import Problem

BAD = [Bad(2, None, "it is no JSON")]


def request(name: str, number: int = 1) -> Request:
    return Request(number, name, "/v1/completions", {"prompt": "x"})


def ids(path: Path) -> list[str | None]:
    return [json.loads(line)["custom_id"] for line in path.read_text().splitlines()]


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """Of a run that answered a and had b refused, and was cut off in the middle of c."""
    path = tmp_path / "out.jsonl"
    with opened(path, b"requests", "demo", BAD) as book:
        book.answer(request("a"), {"text": "ü"}, "r1")
        book.refuse(request("b", 3), 400, "too long")
    with path.open("a") as file:
        file.write('{"custom_id": "c", "respon')
    return path


def test_a_run_goes_on_where_the_last_one_stopped(answers: Path) -> None:
    with opened(answers, b"requests", "demo", BAD) as book:
        assert book.done == {"a", "b"}
        assert book.refused == 1
        book.answer(request("c"), {}, "r2")
    assert ids(answers) == ["a", "c"]
    assert ids(book.errors) == [None, "b"]
    errors = [json.loads(line) for line in book.errors.read_text().splitlines()]
    assert [(each["line"], each["error"]["code"]) for each in errors] == [(2, "bad_line"), (3, "400")]


@pytest.mark.parametrize(
    ("source", "model", "changed"),
    [
        pytest.param(b"others", "demo", "the requests changed", id="other requests"),
        pytest.param(b"requests", "other", "the model changed", id="another model"),
        pytest.param(b"others", "other", "the requests and the model changed", id="both"),
    ],
)
def test_another_batchs_answers_are_left_alone(
    answers: Path, source: bytes, model: str, changed: str
) -> None:
    before = answers.read_bytes()
    with (
        pytest.raises(Problem, match="answers of another batch") as caught,
        opened(answers, source, model, []),
    ):
        pass
    assert changed in caught.value.cause
    assert answers.read_bytes() == before


def test_a_file_that_is_no_batchs_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("chapter one")
    with pytest.raises(Problem, match="is not empty, and no batch of ours"), opened(path, b"", "demo", []):
        pass
    assert path.read_text() == "chapter one"


def test_two_runs_do_not_write_one_file(answers: Path) -> None:
    with (
        opened(answers, b"requests", "demo", BAD),
        pytest.raises(Problem, match="another medley batch"),
        opened(answers, b"requests", "demo", BAD),
    ):
        pass


def test_an_answer_is_in_the_file_once_it_is_given(tmp_path: Path) -> None:
    """Nothing waits in a buffer that a kill would lose."""
    path = tmp_path / "out.jsonl"
    with opened(path, b"", "demo", []) as book:
        assert isinstance(book, Book)
        book.answer(request("a"), {}, "r")
        assert ids(path) == ["a"]
