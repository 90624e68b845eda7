"""`medley top` typed: one look, figures for programs, and the page."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from socket import gethostname

import pytest

from medley import machine
from medley.command import Command

MEDLEY = (sys.executable, "-m", "medley", "top")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """With no cluster.toml, so that it is this host alone."""
    return {
        "MEDLEY_STATE": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "MEDLEY_CLUSTER": "",
        "COLUMNS": "80",
    }


def typed(*words: str, env: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MEDLEY, *words],
        cwd=folder,
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=40,
    )


def test_one_look(env: dict[str, str], tmp_path: Path) -> None:
    said = typed("--once", env=env, folder=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    assert gethostname()[:20] in said.stdout
    assert "GiB" in said.stdout
    assert all(len(line) <= 80 for line in said.stdout.splitlines())


def test_the_dashboard_is_json(env: dict[str, str], tmp_path: Path) -> None:
    assert json.loads(typed("--dashboard", env=env, folder=tmp_path).stdout)["title"] == "Medley"


@pytest.mark.parametrize(
    ("words", "status", "what"),
    [
        pytest.param(("--web", "0.0.0.0:0"), 1, "others would reach 0.0.0.0", id="beyond this host"),
        pytest.param(("127.0.0.1:0",), 1, "says nothing here", id="a place without --web"),
        pytest.param(("--web", "127.0.0.1:0", "spark-1"), 1, "'spark-1' says nothing here", id="two places"),
        pytest.param(("--open",), 2, "missing ['web']", id="open what"),
        pytest.param(("--web", "--once"), 2, "once", id="once, and for ever"),
    ],
)
def test_what_cannot_be_meant(
    words: tuple[str, ...], status: int, what: str, env: dict[str, str], tmp_path: Path
) -> None:
    said = typed(*words, env=env, folder=tmp_path)
    assert said.returncode == status
    assert what in said.stderr
    assert said.stdout == ""


def test_it_serves_until_ctrl_c(env: dict[str, str], tmp_path: Path) -> None:
    come = threading.Event()
    command = Command(("env", "--default-signal=INT", f"--chdir={tmp_path}", *MEDLEY, "--web"), env)
    process = machine.Process(command, lambda _: come.set())
    try:
        assert come.wait(20)
        url = process.last[0].split()[0]
        with urllib.request.urlopen(f"{url}metrics", timeout=10) as answer:
            assert b"medley_host_up" in answer.read()
        os.kill(process.pid, signal.SIGINT)
        finished = process.wait(15)
        assert finished is not None
        assert finished.status == 130
    finally:
        process.stop()
