"""`medley top` typed: one look, figures for programs, and the page."""

import json
import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from socket import gethostname

import pytest

from medley.command import Command
from medley.process import Process
from tests.problems import assert_problem, problem_in

Run = Callable[..., tuple[int, str, str]]
MEDLEY = (sys.executable, "-m", "medley", "top")


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no cluster.toml, so that it is this host alone."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("MEDLEY_CLUSTER", "")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


def test_one_look(run: Run) -> None:
    status, out, err = run("top", "--once")
    assert (status, err) == (0, "")
    assert gethostname()[:20] in out
    assert "GiB" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_the_dashboard_is_json(run: Run) -> None:
    assert json.loads(run("top", "--dashboard")[1])["title"] == "Medley"


PLACE = "medley top --web 127.0.0.1:9180"


@pytest.mark.parametrize(
    ("words", "name", "fix"),
    [
        pytest.param(
            ("--web", "0.0.0.0:0"), "0.0.0.0", "medley top --web 0.0.0.0:0 --open", id="beyond this host"
        ),
        pytest.param(("127.0.0.1:0",), "'127.0.0.1:0'", PLACE, id="a place without --web"),
        pytest.param(("--web", "127.0.0.1:0", "spark-1"), "'spark-1'", PLACE, id="two places"),
    ],
)
def test_a_place_that_is_refused(run: Run, words: tuple[str, ...], name: str, fix: str) -> None:
    status, out, err = run("top", *words)
    assert (status, out) == (1, "")
    assert_problem(problem_in(err), name, fix=fix)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        pytest.param(("--open",), "--open needs --web", id="open what"),
        pytest.param(("--web", "--once"), "once", id="once, and for ever"),
    ],
)
def test_what_cannot_be_meant(run: Run, words: tuple[str, ...], what: str) -> None:
    status, out, err = run("top", *words)
    assert (status, out) == (2, "")
    assert what in err


def test_it_serves_until_ctrl_c() -> None:
    come = threading.Event()
    command = Command(("env", "--default-signal=INT", *MEDLEY, "--web"))
    process = Process(command, lambda _: come.set())
    try:
        assert come.wait(20)
        url = process.last_lines[0].split()[0]
        with urllib.request.urlopen(f"{url}metrics", timeout=20) as answer:
            assert b"medley_host_up" in answer.read()
        os.kill(process.pid, signal.SIGINT)
        finished = process.wait(30)
        assert finished is not None
        assert finished.status == 130
    finally:
        process.stop()
