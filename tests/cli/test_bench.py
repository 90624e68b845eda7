"""`medley bench` as it is typed."""

import json
from pathlib import Path

import pytest

from medley.cli import UsageError
from medley.cli.bench import BenchVerb
from medley.measurement.bench import record
from tests.measurement.bench.benches import bench
from tests.problems import raises_problem

pytestmark = pytest.mark.usefixtures("asked_once")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("MEDLEY_API_KEY", raising=False)
    return tmp_path


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A user's own virtualenv, as far as a dry run looks at it."""
    programs = tmp_path / "env" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "vllm", "sglang"):
        (programs / name).touch(0o755)
    return programs.parent


def run(*words: str) -> int:
    _, status = BenchVerb.run(["medley bench", *words], exit=False)
    return int(status)


def test_nothing_is_served() -> None:
    with raises_problem(fix=("medley serve smollm2", "medley bench --url http://HOST:8000/v1")):
        run()


def test_a_model_is_not_served_by_it() -> None:
    with raises_problem("'demo'", fix=("medley serve demo", "medley bench", "medley bench demo --offline")):
        run("demo")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_dry_run_prints_each_command(
    engine: str, server: str, environment: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("sk-very-secret-0123456789")
    words = ("--engine", engine, "--env", str(environment), "--api-key", str(key))
    assert run("--dry-run", "--url", server, "--concurrency", "1,2", "--repeats", "1", *words) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) == 3
    assert f'OPENAI_API_KEY="$(cat {key})"' in said
    assert "sk-very-secret-0123456789" not in said
    assert f"--base-url {server.removesuffix('/v1')} " in said
    assert list((tmp_path / "state").glob("bench/*")) == []


def test_a_server_that_is_not_there() -> None:
    with raises_problem(
        "http://127.0.0.1:9/v1",
        cause="Connection refused",
        fix=("medley serve smollm2", "--url http://HOST:PORT/v1"),
    ):
        run("--url", "http://127.0.0.1:9/v1", "--env", "/x")


def test_a_model_that_it_does_not_serve(server: str) -> None:
    with raises_problem(server, "other", cause="tiny", fix="--model tiny"):
        run("--url", server, "--model", "other")


@pytest.mark.parametrize("words", [("--repeats", "0"), ("--input-len", "x"), ("--engine", "other")])
def test_wrong_usage(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        run(*words)


def test_nothing_is_kept_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("history") == 0
    assert "no bench is kept here" in capsys.readouterr().out
    with raises_problem("'last'", fix="medley bench"):
        run("show")


def test_what_is_kept_is_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    record.save_record(bench("20261121-1"))
    record.save_record(bench("20261122-2"))
    assert run("history") == 0
    _, newest, oldest = capsys.readouterr().out.splitlines()
    assert newest.split() == [
        *("20261122-2", "2026-11-22", "13:45", "demo", "vllm", "0.32.0"),
        *("alone", "on", "host-1", "4", "387", "0.32"),
    ]
    assert oldest.startswith("20261121-1 ")
    assert run("history", "--json") == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)] == ["20261122-2", "20261121-1"]
    assert run("show", "20261121") == 0
    said = capsys.readouterr().out
    assert said.startswith("20261121-1: demo, vllm 0.32.0\n")
    assert "engine  vllm-cpu d1: vllm 0.32.0, torch 2.13.0" in said
    assert run("show", "last", "--json") == 0
    assert json.loads(capsys.readouterr().out)["id"] == "20261122-2"


def test_two_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    record.save_record(bench("20261121-1"))
    record.save_record(bench("20261122-2", factors=(2, 2, 2)))
    assert run("compare", "last-1", "last") == 0
    assert "2.00 (1.94-2.04)  better" in capsys.readouterr().out
    assert run("compare", "last-1", "last", "--json") == 0
    table = json.loads(capsys.readouterr().out)
    assert (table["first"], table["second"], table["differs"]) == ("20261121-1", "20261122-2", [])
    assert table["results"][0]["ratio"] == pytest.approx(2)


@pytest.mark.parametrize("words", [("show", "last"), ("compare", "last-1", "last")])
def test_a_picture_and_a_page_are_written(words: tuple[str, ...], tmp_path: Path) -> None:
    record.save_record(bench("20261121-1"))
    record.save_record(bench("20261122-2"))
    page, plots = tmp_path / "b.html", tmp_path / "b.svg"
    assert run(*words, "--html", str(page), "--svg", str(plots)) == 0
    assert page.read_text().startswith("<!doctype html>\n<html")
    assert plots.read_text().startswith("<svg ")
    assert ("20261121-1" in page.read_text()) is (words[0] == "compare")
    with raises_problem(str(tmp_path / "absent" / "b.html"), cause=str(tmp_path / "absent")):
        run(*words, "--html", str(tmp_path / "absent" / "b.html"))


def test_without_a_server_a_model_must_be_named() -> None:
    with raises_problem(fix="medley bench smollm2 --offline"):
        run("--offline")


def test_without_a_server_a_dry_run_prints_each_start(
    environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--concurrency", "1,4", "--repeats", "2", "--env", str(environment))
    assert run("demo", "--offline", "--dry-run", *words) == 0
    said = capsys.readouterr().out.splitlines()
    assert [
        f" bench {mode} " in line
        for mode, line in zip(("latency",) * 2 + ("throughput",) * 2, said, strict=True)
    ] == [True] * 4
    with raises_problem("4000", "128", "demo", cause="2048", fix="--input-len 1920"):
        run("demo", "--offline", "--dry-run", "--input-len", "4000", *words)
