"""`medley batch` as it is typed, against a server that runs already."""

import json
from pathlib import Path

import pytest

from medley.cli import UsageError
from medley.cli.batch import BatchVerb
from tests.problems import raises_problem

LINES = [
    {"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "x"}},
    {"custom_id": "b", "url": "/v1/completions", "body": {"prompt": "y"}},
    {"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "z"}},
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)))
    return path


def run(*words: str) -> int:
    _, status = BatchVerb.run(["medley batch", *words], exit=False)
    return int(status)


@pytest.mark.parametrize("server", ["answers"], indirect=True)
def test_answers_and_wrong_lines_are_counted_and_a_second_run_asks_nothing(
    server: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = tmp_path / "out.jsonl"
    for done in (0, 2):
        assert run("tiny", str(source), str(answers), "--url", server, "--json") == 0
        said = capsys.readouterr()
        assert f"2 requests, {done} of them done; wrong lines: 1" in said.err
        counted = json.loads(said.out)
        assert (counted["answered"], counted["refused"], counted["wrong"]) == (2, 0, 1)
    assert len(answers.read_text().splitlines()) == 2


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with raises_problem(str(tmp_path / "absent"), cause="No such file"):
        run("tiny", str(tmp_path / "absent"), str(tmp_path / "out"), "--url", "http://127.0.0.1:9/v1")


def test_a_batch_needs_two_files() -> None:
    with pytest.raises(UsageError):
        run("tiny")
