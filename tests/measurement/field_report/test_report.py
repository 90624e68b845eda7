"""A report is read as it was written; any other file is a Problem, whatever it holds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.field_report import intake, read
from medley.errors import Problem
from medley.measurement.field_report.report import list_contents
from tests.measurement.field_report.reports import report, save
from tests.problems import raises_problem


@pytest.fixture(scope="module")
def good() -> dict[str, Any]:
    return report()


def test_it_is_read_as_written(tmp_path: Path, good: dict[str, Any]) -> None:
    field_report = read(save(tmp_path, good))
    assert [host.name for host in field_report.hosts] == ["host-1", "host-2"]
    assert field_report.models[0].bench
    assert field_report.models[0].bench.find_prediction("served", 1)
    assert json.loads(field_report.to_json())["links"] == good["links"]


def test_its_contents_are_listed(tmp_path: Path, good: dict[str, Any]) -> None:
    text = "\n".join(list_contents(read(save(tmp_path, good))))
    for part in (
        "host-2: facts, redacted; kind spark",
        "104 Gbit/s there",
        "gpt-oss-120b: tensor parallel 2",
        "predicted 300",
        "2 better",
    ):
        assert part in text
    assert "left out: collective-test: the cluster is not up" in text


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another-format": lambda t: t.update(format="medley field report 99"),
    "unknown-key": lambda t: t.update(extra=1),
    "unknown-key-below": lambda t: t["models"][0]["bench"].update(extra=1),
    "no-hosts": lambda t: t.update(hosts=[]),
    "host-that-is-a-path": lambda t: t["hosts"][0].update(name="../../etc/passwd"),
    "host-twice": lambda t: t["hosts"][1].update(name="host-1"),
    "model-that-is-a-path": lambda t: t["models"][0].update(name="../x"),
    "model-with-a-bar": lambda t: t["models"][0].update(name="a|b"),
    "string-for-a-number": lambda t: t["models"][0]["plan"].update(tokens_per_s="9"),
    "number-for-a-string": lambda t: t["hosts"][0].update(transcript=7),
    "no-stages": lambda t: t["models"][0]["ran"].update(stages=[]),
    "when-that-is-none": lambda t: t.update(when="yesterday"),
    "not-a-number": lambda t: t["models"][0]["plan"].update(low=float("nan")),
    "endless": lambda t: t["models"][0]["plan"].update(high=float("inf")),
    "half-a-surrogate": lambda t: t["hosts"][0].update(transcript="\ud800"),
    "source-with-a-newline": lambda t: t["medley"].update(source="a\nb"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_wrong_is_a_problem(tmp_path: Path, good: dict[str, Any], name: str) -> None:
    table = json.loads(json.dumps(good))
    CHANGES[name](table)
    with pytest.raises(Problem) as raised:
        read(save(tmp_path, table))
    assert "ask its sender" in raised.value.fix


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "32 MiB"),
        (b"\xff\xfe", "32 MiB"),
        (b"[]", "32 MiB"),
        (b"null", "32 MiB"),
        (b"{", "32 MiB"),
        (b'{"a":' * 100_000, "32 MiB"),
        (b'{"format": 1e999}', " inf"),
        (b"\0" * (33 << 20), "32 MiB"),
    ],
    ids=["empty", "no-text", "list", "null", "cut", "nested", "endless", "large"],
)
def test_any_other_file_is_a_problem(tmp_path: Path, content: bytes, cause: str) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with raises_problem(str(path), cause=cause):
        read(path)


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    for path, cause in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        with raises_problem(str(path), cause=cause):
            read(path)


def test_a_transcript_that_is_none(tmp_path: Path, good: dict[str, Any]) -> None:
    table = json.loads(json.dumps(good))
    table["hosts"][1]["transcript"] = "hello"
    with raises_problem("host-2", cause="line 1 is 'hello'"):
        intake(save(tmp_path, table))
