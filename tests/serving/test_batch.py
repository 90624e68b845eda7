import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medley.serving.batch import BatchFiles, RefusedLine, Request, open_batch, parse_lines
from tests.problems import raises_problem

BAD = [RefusedLine(2, None, "it is not valid JSON")]


def request(name: str, number: int = 1) -> Request:
    return Request(number, name, "/v1/completions", {"prompt": "x"})


def ids(path: Path) -> list[str | None]:
    return [json.loads(line)["custom_id"] for line in path.read_text().splitlines()]


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """Of a run that answered a and had b refused, and was cut off in the middle of c."""
    path = tmp_path / "out.jsonl"
    with open_batch(path, b"requests", "demo", BAD) as book:
        book.write_answer(request("a"), {"text": "ü"}, "r1")
        book.write_refusal(request("b", 3), 400, "too long")
    with path.open("a") as file:
        file.write('{"custom_id": "c", "respon')
    return path


def test_answers_and_errors_are_their_owners_alone(answers: Path) -> None:
    for path in (answers, answers.with_name("out.jsonl.errors")):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_run_goes_on_where_the_last_one_stopped(answers: Path) -> None:
    with open_batch(answers, b"requests", "demo", BAD) as book:
        assert book.done_ids == {"a", "b"}
        assert book.refused_count == 1
        book.write_answer(request("c"), {}, "r2")
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
        raises_problem(str(answers), cause=changed, fix=f"rm {answers} {answers.parent}/.out.jsonl.batch"),
        open_batch(answers, source, model, []),
    ):
        pass
    assert answers.read_bytes() == before


def test_a_file_that_is_no_batchs_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("chapter one")
    with (
        raises_problem(str(path), cause=f".{path.name}.batch", fix="medley batch MODEL IN.jsonl OUT.jsonl"),
        open_batch(path, b"", "demo", []),
    ):
        pass
    assert path.read_text() == "chapter one"


def test_two_runs_do_not_write_one_file(answers: Path) -> None:
    with (
        open_batch(answers, b"requests", "demo", BAD),
        raises_problem("out.jsonl", cause="lock"),
        open_batch(answers, b"requests", "demo", BAD),
    ):
        pass


def test_an_answer_is_in_the_file_once_it_is_given(tmp_path: Path) -> None:
    """Nothing waits in a buffer that a kill would lose."""
    path = tmp_path / "out.jsonl"
    with open_batch(path, b"", "demo", []) as book:
        assert isinstance(book, BatchFiles)
        book.write_answer(request("a"), {}, "r")
        assert ids(path) == ["a"]


def line(**changed: Any) -> str:
    table = {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"messages": [{"role": "user", "content": "Hello"}]},
    }
    return json.dumps({name: value for name, value in {**table, **changed}.items() if value is not None})


@pytest.mark.parametrize(
    ("text", "url"),
    [
        pytest.param(line(), "/v1/chat/completions", id="chat"),
        pytest.param(line(method=None), "/v1/chat/completions", id="POST goes without saying"),
        pytest.param(line(url="/v1/completions", body={"prompt": "x"}), "/v1/completions", id="completion"),
        pytest.param(line(url="/v1/embeddings", body={"input": "x"}), "/v1/embeddings", id="embedding"),
        pytest.param(f"  {line()}\r", "/v1/chat/completions", id="white space around it"),
    ],
)
def test_a_request(text: str, url: str) -> None:
    (found,) = parse_lines([text])
    assert isinstance(found, Request)
    assert (found.line_number, found.custom_id, found.url) == (1, "a", url)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("{", "it is not valid JSON", id="cut off"),
        pytest.param("[" * 10_000, "it is not valid JSON", id="too deep"),
        pytest.param("[1]", "it is not a JSON object", id="a list"),
        pytest.param(line(custom_id=None), "custom_id must be text", id="no id"),
        pytest.param(line(custom_id=7), "custom_id must be text", id="a number for an id"),
        pytest.param(line(custom_id="x" * 513), "custom_id must be text", id="a long id"),
        pytest.param(line(method="GET"), "only POST", id="another method"),
        pytest.param(line(url="/v1/files"), "supported are /v1/chat/completions", id="another url"),
        pytest.param(line(url=None), "supported are", id="no url"),
        pytest.param(line(body="x"), "body must be an object", id="no body"),
        pytest.param(line(body={}), "body has no messages", id="no messages"),
        pytest.param(line(body={"messages": [], "stream": True}), "does not stream answers", id="in pieces"),
    ],
)
def test_what_is_wrong(text: str, why: str) -> None:
    (found,) = parse_lines([text])
    assert isinstance(found, RefusedLine)
    assert why in found.reason


def test_lines_are_counted_as_an_editor_does_and_an_id_counts_once() -> None:
    first, second, third = parse_lines([line(), "", line(custom_id="b"), "  ", line()])
    assert [first.line_number, second.line_number, third.line_number] == [1, 3, 5]
    assert isinstance(third, RefusedLine)
    assert third.reason == "line 1 has the same custom_id"


@given(st.text(max_size=60))
def test_any_text_is_a_request_or_wrong(text: str) -> None:
    assert all(isinstance(each, Request | RefusedLine) for each in parse_lines([text]))
