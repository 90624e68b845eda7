"""`medley service` as typed."""

import os
import subprocess
import sys

import pytest

from medley.cli.service import ServiceVerb
from medley.errors import Problem
from tests.problems import raises_problem


def run(*words: str) -> None:
    ServiceVerb.run(["medley service", *words], exit=False)


@pytest.fixture(autouse=True)
def typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a unit is to start is the program that was started; a variable of the tester's may be a secret."""
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.delenv("HF_TOKEN", raising=False)


def test_a_dry_run_prints_the_file_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    run("install", "serve", "demo", "--dry-run", "--user", "ann", "--set", "A=b=c", "--", "--port", "9000")
    said = capsys.readouterr()
    assert said.out.startswith("[Unit]\nDescription=medley serve demo --port 9000\n")
    assert f"ExecStart={sys.executable} -m medley serve demo --port 9000\n" in said.out
    assert "Environment=A=b=c\n" in said.out
    assert "/etc/systemd/system/medley-serve-9000.service" in said.err


def test_who_typed_sudo_is_who_it_runs_as(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUDO_USER", "ann")
    env, pipe = {**os.environ, "HF_HOME": "/of/sudo"}, subprocess.PIPE
    with subprocess.Popen(["sh", "-c", "echo; read end"], env=env, stdin=pipe, stdout=pipe) as sudo:
        assert sudo.stdout
        assert sudo.stdout.readline()  # it has its environment
        monkeypatch.setattr(os, "getppid", lambda: sudo.pid)
        run("install", "head", "--dry-run")
    said = capsys.readouterr().out
    assert "User=ann\n" in said
    assert "Environment=HF_HOME=/of/sudo\n" in said


@pytest.mark.parametrize(
    ("words", "what"),
    [
        pytest.param(("install", "haed"), "'haed' is not a role", id="no role"),
        pytest.param(
            ("install", "head", "--set", "A", "--dry-run"), "'A' is not a variable", id="no variable"
        ),
        pytest.param(("install", "head", "--set", "A=b\rc", "--dry-run"), "cannot be in", id="no text"),
        pytest.param(
            ("install", "head", "--set", "HF_TOKEN=x", "--dry-run"), "HF_TOKEN would", id="a secret"
        ),
    ],
)
def test_a_problem(words: tuple[str, ...], what: str) -> None:
    with pytest.raises(Problem) as caught:
        run(*words)
    assert what in caught.value.what


def test_nothing_is_installed_here(capsys: pytest.CaptureFixture[str]) -> None:
    run("show", "no-such")
    assert capsys.readouterr().out == "no service of medley's is installed here\n"


@pytest.mark.parametrize(
    "words",
    [
        ("--", "--on-event", "curl -d x ntfy.sh/tulips"),
        ("--", "--on-event=curl -d x ntfy.sh/tulips"),
        ("--set", "MEDLEY_ON_EVENT=curl -d x ntfy.sh/tulips"),
    ],
)
def test_the_text_of_a_command_for_events_is_in_no_unit(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with raises_problem("--on-event"):
        run("install", "serve", "demo", "--dry-run", "--user", "ann", *words)
    assert "tulips" not in capsys.readouterr().out


def test_the_file_of_a_command_for_events_is_in_the_unit(capsys: pytest.CaptureFixture[str]) -> None:
    run("install", "serve", "demo", "--dry-run", "--user", "ann", "--", "--on-event", "/home/ann/notify")
    assert "serve demo --on-event /home/ann/notify\n" in capsys.readouterr().out
