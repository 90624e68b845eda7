"""Stacks of real processes: those that handle the signal, those that do not, and stopped ones."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from medley.environment import payload
from medley.environment.payload import process_stacks
from tests.waiting import wait_for

STACKS = payload.FOLDER / "stacks"
FORKS = """
import os, time
def waits_in_child(): time.sleep(60)
def waits_in_parent(): time.sleep(60)
if os.fork(): waits_in_parent()
else: waits_in_child()
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, **env: str) -> "subprocess.Popen[str]":
        started.append(subprocess.Popen(words, env={**os.environ, **env}, text=True, process_group=0))
        if words[0] == sys.executable:
            pid = started[-1].pid
            wait_for(
                "parent and child sleep",
                lambda: _both_wait(pid),
                60,
                state=lambda: process_stacks.describe_processes([pid]),
            )
        return started[-1]

    yield begin
    for each in started:
        os.killpg(each.pid, signal.SIGKILL)
        each.wait()


def _both_wait(pid: int) -> bool:
    """Whether parent and child have begun to sleep."""
    found = process_stacks.describe_processes([pid])["processes"]
    return len(found) == 2 and all("nanosleep" in each["wchan"] for each in found)


def test_a_process_and_its_fork_each_write_their_own_stacks(start: Start) -> None:
    child = start(sys.executable, "-c", FORKS, PYTHONPATH=str(STACKS))
    for _ in range(2):  # it goes on, and can be asked again
        parent, forked = process_stacks.describe_processes([child.pid], stacks=True)["processes"]
        assert "waits_in_parent" in parent["stack"]
        assert "waits_in_child" in forked["stack"]
        assert "waits_in_parent" not in forked["stack"]
    assert child.poll() is None


def test_a_process_without_the_handler_gets_no_signal(start: Start) -> None:
    child = start("sleep", "60")
    (found,) = process_stacks.describe_processes([child.pid], stacks=True)["processes"]
    assert found["stack"].startswith("none: ")
    assert child.poll() is None


def test_a_stopped_process_is_seen_as_that(start: Start) -> None:
    child = start(sys.executable, "-c", FORKS, PYTHONPATH=str(STACKS))
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    parent, forked = process_stacks.describe_processes([child.pid], stacks=True)["processes"]
    assert (parent["state"], parent["stack"]) == ("T", "none: a process in this state handles no signal")
    assert "waits_in_child" in forked["stack"]


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.other = 'ran'\n")
    code = "import sys; print(sys.other, [each for each in sys.path if 'stacks' in each])"
    env = {**os.environ, "PYTHONPATH": f"{STACKS}:{tmp_path}"}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("ran []\n", "")


def test_without_another_it_prints_nothing() -> None:
    env = {**os.environ, "PYTHONPATH": str(STACKS)}
    said = subprocess.run(
        [sys.executable, "-c", "print(1)"], env=env, capture_output=True, text=True, check=True
    )
    assert (said.stdout, said.stderr) == ("1\n", "")


def test_as_a_script_it_prints_one_object(start: Start) -> None:
    child = start("sleep", "60")
    words = [sys.executable, str(payload.FOLDER / "process_stacks.py"), "stacks", str(child.pid)]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert [each["name"] for each in found["processes"]] == ["sleep"]
    assert "MemAvailable" in found["host"]
