"""`medley chat` against a real server: one message, a pipe, and a conversation on a terminal of its own."""

import json
import os
import platform
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from medley import process_identity, storage
from medley.cli import served
from medley.cli.chat import ChatVerb
from medley.engine.server_spec import ServerSpec
from medley.network.free_port import find_free_port
from medley.serving import server_records
from tests.problems import raises_problem
from tests.waiting import wait_for
from tests.web_server import answering

Run = Callable[..., tuple[int, str, str]]
LIMIT_S = 30


def test_one_message_is_answered_with_its_speed(run: Run, server: str) -> None:
    status, out, err = run("chat", "--url", server, "Hello")
    assert (status, out) == (0, "so it is\n")
    assert err.startswith("3 tokens, first after ")


def test_in_one_pipe_the_speed_has_a_line_of_its_own(server: str) -> None:
    command = (sys.executable, "-m", "medley", "chat", "--url", server, "Hello")
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=LIMIT_S
    )
    answer, speed = done.stdout.splitlines()
    assert (answer, speed.split(",")[0]) == ("so it is", "3 tokens")


def test_json_has_the_answer_and_its_speed(run: Run, server: str) -> None:
    status, out, err = run("chat", "--url", server, "--json", "Hello")
    assert (status, err) == (0, "")
    table = json.loads(out)
    assert (table["model"], table["answer"], table["tokens"]) == ("tiny", "so it is", 3)


CONVERSES = pytest.mark.parametrize("server", ["converses"], indirect=True)


@CONVERSES
@pytest.mark.parametrize(
    ("words", "sent"),
    [
        pytest.param((), "from a pipe", id="no text"),
        pytest.param(("--stdin", "Read:"), "Read: from a pipe", id="after the text"),
        pytest.param(("Hello",), "Hello", id="text alone"),
    ],
)
def test_standard_input_is_the_message(server: str, words: tuple[str, ...], sent: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "medley", "chat", "--url", server, *words],
        input="from a pipe",
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    assert done.stdout == f"(thinking) {sent}\n"


class Terminal:
    """A program on a terminal, and what it has printed there."""

    def __init__(self, *words: str) -> None:
        self.pid, self._handle = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "dumb"
            os.execv(sys.executable, (sys.executable, "-m", "medley", *words))
        self._seen = ""

    def until(self, text: str) -> str:
        """Return what was printed up to this text, and forget it."""
        wait_for(
            f"the terminal shows {text!r}",
            lambda: text in self._seen or text in self._read(),
            state=lambda: self._seen,
        )
        before, _, self._seen = self._seen.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self._handle, text.encode())

    def status(self) -> int:
        """Return its exit code; it ends soon."""
        assert process_identity.require_identity(self.pid).wait_for_end(LIMIT_S), self._seen
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> str:
        """Return what was printed since it was forgotten; wait a moment for more."""
        if select.select([self._handle], [], [], 1)[0]:
            self._seen += os.read(self._handle, 4096).decode()
        return self._seen

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._handle)


@pytest.fixture
def terminal(server: str) -> Iterator[Terminal]:
    found = Terminal("chat", "--url", server)
    found.until(">>> ")
    try:
        yield found
    finally:
        found.close()


@CONVERSES
def test_a_conversation_keeps_its_history(terminal: Terminal) -> None:
    terminal.type("one\n")
    assert "(thinking) one" in terminal.until(">>> ")
    terminal.type("two\n")
    assert "(thinking) one | one | two" in terminal.until(">>> "), "thoughts are not sent back"
    terminal.type("/exit\n")
    assert terminal.status() == 0


@CONVERSES
@pytest.mark.parametrize("word", ["/quit", "/bye"])
def test_an_unknown_command_is_not_sent_and_each_that_ends_the_chat_does(
    terminal: Terminal, word: str
) -> None:
    terminal.type("/help\n")
    said = terminal.until(">>> ")
    assert "/help is not a command; commands are /exit, /quit, /bye" in said
    assert "(thinking)" not in said
    terminal.type(f"{word}\n")
    assert terminal.status() == 0


@CONVERSES
def test_an_answer_that_is_cut_off_says_so(run: Run, server: str) -> None:
    assert "cut off" not in run("chat", "--url", server, "Hello")[2]
    _, _, err = run("chat", "--url", server, "--max-tokens", "3", "Hello")
    assert err.endswith("\ncut off at 3 tokens; --max-tokens N sets the limit\n")


@CONVERSES
def test_the_end_by_another_command_is_said(terminal: Terminal) -> None:
    terminal.type("count\n")
    terminal.until(" 7 ")
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.until("medley: ended by SIGTERM, as medley stop and kill send it")
    assert terminal.status() == 128 + signal.SIGTERM


def test_a_worker_is_sent_to_its_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is served from the head, so `medley serve` on this host helps nobody."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.setenv("MEDLEY_CLUSTER", str(tmp_path / "cluster.toml"))
    table = f'[hosts.far]\nssh = "me@192.0.2.1"\nrole = "head"\n[hosts.{platform.node()}]\n'
    (tmp_path / "cluster.toml").write_text(table)
    monkeypatch.setattr(served, "_DEFAULT_URL", f"http://127.0.0.1:{find_free_port()}/v1")
    with raises_problem("127.0.0.1", fix="ssh -t me@192.0.2.1 medley chat"):
        ChatVerb.run(["medley chat", "Hello"], exit=False)


def test_a_server_of_this_host_is_asked_at_its_socket_without_a_key(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever listens at its address is sent nothing, at whatever address of this host it is named."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.setenv("MEDLEY_API_KEY", "sk-0123456789abcdef01234567")
    with answering({}) as thief:
        folder = storage.make_private_folder(tmp_path / "s")
        listens = ServerSpec("tiny", "tiny", "0.0.0.0", thief.server_port, socket_folder=folder)
        models = {"/v1/models": b'{"data": [{"id": "tiny"}]}'}
        with answering(models, listens.socket) as server, server_records.record_server(listens, "ready"):
            run("chat", "--url", f"http://127.0.0.1:{thief.server_port}/v1", "Hello")
    assert ("/v1/models", None, None) in server.asked
    assert not thief.asked


@CONVERSES
def test_ctrl_c_stops_an_answer_and_ctrl_d_ends_the_chat(terminal: Terminal) -> None:
    terminal.type("count\n")
    terminal.until(" 7 ")
    terminal.type("\x03")
    assert "stopped" in terminal.until(">>> ")
    terminal.type("one\n")
    assert "(thinking) one\r\n" in terminal.until("tokens, first"), "what was stopped is not sent back"
    terminal.until(">>> ")
    terminal.type("\x04")
    assert terminal.status() == 0


@CONVERSES
def test_ctrl_c_at_the_prompt_ends_the_chat(terminal: Terminal) -> None:
    terminal.type("half a")
    terminal.until("half a")  # its echo: the prompt reads by now
    # A signal between the echo and the next read is seen only at the next key (CPython's readline).
    time.sleep(0.5)
    terminal.type("\x03")
    assert terminal.status() == 0


@pytest.mark.parametrize("server", ["breaks-off"], indirect=True)
def test_a_conversation_outlives_an_answer_that_breaks_off(terminal: Terminal) -> None:
    terminal.type("one\n")
    assert "aborted" in terminal.until(">>> ")
    terminal.type("/exit\n")
    assert terminal.status() == 0
