"""What `.ci/run` prints at its end: the groups, what they waited for, the most expensive set-ups."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import durations

TREE = Path(__file__).parents[2]
TESTS = """
import time
import pytest
from medley import process
from medley.command import Command
from tests.waiting import wait_for

@pytest.fixture
def slow():
    time.sleep(0.7)

def test_waits(slow):
    began = time.monotonic()
    wait_for("a second has passed", lambda: time.monotonic() - began > 1)

def test_runs_a_program():
    process.run(Command(("sh", "-c", "sleep 0.6; : medley ray-head")))
"""


@pytest.fixture(scope="module", params=["0", "2"], ids=["one process", "two workers"])
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> durations.Group:
    """What a real run of two tests records."""
    folder = tmp_path_factory.mktemp("durations")
    (folder / "test_two.py").write_text(TESTS)
    record = folder / "two.jsonl"
    command = (sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider")
    env = {**os.environ, durations.VARIABLE: str(record)}
    done = subprocess.run(
        [*command, "-n", request.param, str(folder)],
        env=env,
        cwd=TREE,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    return durations.read(record)


def test_it_counts_tests_and_their_seconds(group: durations.Group) -> None:
    assert (group.name, group.tests) == ("two", 2)
    assert group.seconds > 0.7 + 1 + 0.6
    ((seconds, test), *_) = group.longest("setup")
    assert seconds >= 0.7
    assert test.endswith("test_two.py::test_waits")


@pytest.mark.parametrize("reason", [durations.FIXED_TIME, durations.POLL, "start of Ray"])
def test_it_names_what_was_waited_for(group: durations.Group, reason: str) -> None:
    assert 0 < group.waits[reason] < group.seconds


def test_the_table_has_a_line_for_each(group: durations.Group, tmp_path: Path) -> None:
    record = tmp_path / "one.jsonl"
    record.write_text(json.dumps({"test": "a", "phase": "call", "s": 7.5, "outcome": "passed"}) + "\n")
    lines = list(durations.table([group, durations.read(record)]))
    assert lines[2].split() == ["one", "1", "8"]
    assert any(line.startswith("start of Ray ") for line in lines)
    setups = lines.index("seconds  most expensive set-ups")
    assert lines[setups + 1].endswith("::test_waits")
    longest = lines.index("seconds  longest tests")
    assert lines[longest + 1].split() == ["7.5", "a"]
