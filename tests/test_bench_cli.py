"""`medley bench` as it is typed."""

from pathlib import Path

import pytest

from medley.cli.bench import Bench
from medley.cli.verb import Usage
from medley.problem import Problem


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
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
    _, status = Bench.run(["medley bench", *words], exit=False)
    return int(status)


def test_nothing_is_served() -> None:
    with pytest.raises(Problem, match="nothing is served here") as raised:
        run()
    assert "medley serve demo" in raised.value.fix


def test_a_model_is_not_served_by_it() -> None:
    with pytest.raises(Problem, match="bench takes no model") as raised:
        run("demo")
    assert raised.value.fix.startswith("medley serve demo")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_dry_run_prints_each_command(
    engine: str, server: str, environment: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("sk-very-secret")
    words = ("--engine", engine, "--env", str(environment), "--api-key", str(key))
    assert run("--dry-run", "--url", server, "--concurrency", "1,2", "--repeats", "1", *words) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) == 3
    assert f'OPENAI_API_KEY="$(cat {key})"' in said
    assert "sk-very-secret" not in said
    assert f"--base-url {server.removesuffix('/v1')} " in said
    assert list((tmp_path / "state").glob("bench/*")) == []


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(Problem, match="no server answers at"):
        run("--url", "http://127.0.0.1:9/v1", "--env", "/x")


def test_a_model_that_it_does_not_serve(server: str) -> None:
    with pytest.raises(Problem, match="does not serve other") as raised:
        run("--url", server, "--model", "other")
    assert raised.value.fix == "--model tiny"


@pytest.mark.parametrize("words", [("--repeats", "0"), ("--input-len", "x"), ("--engine", "other")])
def test_wrong_usage(words: tuple[str, ...]) -> None:
    with pytest.raises(Usage):
        run(*words)
