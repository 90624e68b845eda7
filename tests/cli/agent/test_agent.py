"""`medley agent` as another host talks to it: a real process, one JSON object a line."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from medley import process_identity
from medley.cluster import self_command


class Agent:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.process = subprocess.Popen(
            (sys.executable, "-m", "medley", "agent"),
            env=os.environ | {"MEDLEY_STATE": str(state)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def heard(self) -> dict[str, Any]:
        assert self.process.stdout
        table = json.loads(self.process.stdout.readline())
        assert isinstance(table, dict)
        return table

    def say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def asked(self, errand: str, **more: object) -> dict[str, Any]:
        self.say(json.dumps({"do": errand, "with": more}))
        return self.heard()

    def hang_up(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(20)


@contextmanager
def greeted(state: Path) -> Iterator[Agent]:
    found = Agent(state)
    greeting = found.heard()
    assert (greeting["medley"], greeting["host"]) == (
        self_command.compute_source_digest(),
        socket.gethostname(),
    )
    assert abs(greeting["epoch_s"] - time.time()) < 10
    yield found
    found.process.kill()
    with found.process:
        pass


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """One for all errands: whatever one asks, the next is answered."""
    with greeted(tmp_path_factory.mktemp("agent") / "state") as found:
        yield found


def test_it_ends_with_its_input(tmp_path: Path) -> None:
    with greeted(tmp_path) as agent:
        assert agent.hang_up() == 128 + signal.SIGTERM, "as in the middle of an errand"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("hello", id="no JSON"),
        pytest.param("[]", id="no table"),
        pytest.param('{"do": "look"}', id="nothing with it"),
        pytest.param('{"do": 7, "with": {}}', id="no name"),
    ],
)
def test_a_line_that_is_no_errand_is_a_problem_and_the_next_is_answered(agent: Agent, line: str) -> None:
    agent.say(line)
    assert agent.heard()["problem"]["what"] == "this host's medley got no valid request"
    assert agent.asked("connect", address="127.0.0.1", places=[]) == {"said": {"closed": []}}


def test_an_errand_of_a_later_medley_is_a_problem(agent: Agent) -> None:
    assert "does not know the request 'dance'" in agent.asked("dance")["problem"]["what"]


def test_notes_come_before_the_answer(agent: Agent) -> None:
    assert agent.asked("mend", words=["echo", "done"], unasked=[], root=False) == {"note": "done"}
    assert agent.heard() == {"said": {}}


def test_what_cannot_be_mended_is_a_problem_with_its_last_words(agent: Agent) -> None:
    words = ["sh", "-c", "echo no; exit 4"]
    assert agent.asked("mend", words=words, unasked=[], root=False) == {"note": "no"}
    problem = agent.heard()["problem"]
    assert (problem["what"], problem["cause"]) == ("the change failed: sh -c echo no; exit 4", "no")


def test_hung_up_on_in_the_middle_it_ends_what_it_runs(tmp_path: Path) -> None:
    words = ["sh", "-c", "echo $$; exec sleep 600"]
    with greeted(tmp_path) as agent:
        child = process_identity.find_identity(
            int(agent.asked("mend", words=words, unasked=[], root=False)["note"])
        )
        assert child
        agent.hang_up()
        assert child.wait_for_end(10)


def test_the_token_of_a_head_and_where_there_is_none(agent: Agent) -> None:
    assert "problem" in agent.asked("token")
    agent.state.mkdir(exist_ok=True)
    (agent.state / "token").write_text(f"{'ab' * 32}\n")
    (agent.state / "token").chmod(0o600)
    assert agent.asked("token") == {"said": {"token": "ab" * 32}}


def test_all_of_it_is_ended_and_its_files_go(agent: Agent) -> None:
    for name in ("token", "gathered.json", "sglang-8000.yaml", "units/old.state", "vllm/x"):
        file = agent.state / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    assert agent.asked("end", part=False) == {"note": "end Ray …"}
    assert agent.heard() == {"said": {"ended": 0, "left": []}}
    assert [file for file in agent.state.rglob("*") if file.is_file()] == []
