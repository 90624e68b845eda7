"""What others say reaches a terminal as text."""

import io
import os
import pty
import re
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from medley import process
from medley.__main__ import main
from medley.cli import terminal
from medley.cli.progress import Spinner
from medley.command import Command
from tests.odd_input import COUNTS, MEBIBYTE, hold, texts
from tests.problems import assert_problem, problem_in
from tests.waiting import wait_for

TITLE, CLIPBOARD = "\x1b]0;owned\x07", "\x1b]52;c;ZWNobyBvd25lZA==\x07"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        pytest.param("a model\tin two\nlines\r\n", "a model\tin two\nlines\r\n", id="text"),
        pytest.param("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m", id="colours"),
        pytest.param(
            "\x1b[36m(x)\x1b[0;0m\x1b[38;5;8m", "\x1b[36m(x)\x1b[0;0m\x1b[38;5;8m", id="an engine's colours"
        ),
        pytest.param("\x1b[8mx\x1b[1;8m\x1b[30;40m", "�[8mx�[1;8m�[30;40m", id="hidden text"),
        pytest.param("a\u2028b\u2029c\u061cd", "a�b�c�d", id="breaks and marks"),
        pytest.param("a\U000e0041\U000e007f", "a��", id="invisible tags"),
        pytest.param(TITLE, "�]0;owned�", id="a title"),
        pytest.param(CLIPBOARD, "�]52;c;ZWNobyBvd25lZA==�", id="the clipboard"),
        pytest.param("\x1b[2J\x1b[1A\x1bc", "�[2J�[1A�c", id="over what stands there"),
        pytest.param("safe\rEVIL", "safe�EVIL", id="over its own beginning"),
        pytest.param("\x9b2J\x9d0;x\x9c\x7f", "�2J�0;x��", id="in eight bits"),
        pytest.param("a\u202egnp.exe\u2066", "a�gnp.exe�", id="turned round"),
        pytest.param("\ud800", "�", id="half of a pair"),
        pytest.param("Grüße, 你好, 🚀", "Grüße, 你好, 🚀", id="every writing"),
    ],
)
def test_clean(said: str, shown: str) -> None:
    assert terminal.clean_text(said) == shown
    stream = io.StringIO()
    print(said, end="", file=terminal.CleanStream(stream))
    assert stream.getvalue() == shown
    drawn = io.StringIO()
    terminal.create_console(drawn).print(said, end="")
    # Rich breaks lines and draws colours by itself: what is left has no control character.
    plain = re.sub(r"\x1b\[(1;31|36|0;0|38;5;8|0)m", "", drawn.getvalue())
    assert [each for each in plain if not each.isprintable() and each not in "\n\t\r"] == []


def test_what_is_no_markup_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """An engine's line has brackets: read as markup, one that closes nothing ended the command."""
    spinner = Spinner()
    with spinner.stage("[/x] stage"):
        spinner.line("[core.py:12] [/bold] done")
        spinner.note("[/red] said")
    assert "[/red] said" in capsys.readouterr().err


def typed_on_a_terminal(monkeypatch: pytest.MonkeyPatch, *words: str) -> bytes:
    """What `medley WORDS` writes where its output and its errors are a terminal."""
    ours, theirs = pty.openpty()
    said: list[bytes] = []

    def hear() -> None:
        with suppress(OSError):  # its other end is closed
            while chunk := os.read(ours, 4096):
                said.append(chunk)

    ear = threading.Thread(target=hear)
    ear.start()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream, monkeypatch.context() as patched:
        for name in ("stdout", "stderr"):
            patched.setattr(sys, name, stream)
        patched.setattr(sys, "argv", ["medley", *words])
        main()
        assert stream.isatty()
        for each in (sys.stdout, sys.stderr):
            each.flush()
    ear.join(30)
    os.close(ours)
    return b"".join(said)


@pytest.mark.parametrize("verb", ["facts", "doctor", "plan"])
def test_a_transcript_that_somebody_sent(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[1] / "host" / "recorded" / "spark.txt").read_text(encoding="utf-8")
    hostile = text.replace("NVIDIA GB10", f"NVIDIA GB10{TITLE}{CLIPBOARD}").replace("MT2910", f"MT{TITLE}")
    assert hostile != text
    (tmp_path / "sent.txt").write_text(hostile, encoding="utf-8")
    model = {"plan": ("gpt-oss-20b",), "doctor": ("--verbose",)}.get(verb, ())
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm-256color")
    said = typed_on_a_terminal(monkeypatch, verb, *model, "--from", str(tmp_path / "sent.txt"))
    assert b"GB10" in said
    assert b"\x1b]" not in said
    assert b"\x07" not in said


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_the_terminal(count: int) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")

    def show(text: str) -> None:
        print(text, file=terminal.CleanStream(stream))

    longest = MEBIBYTE if count > 300 else MEBIBYTE // 4
    hold(show, texts([f"a {TITLE} b"], longest=longest), count, ())


def test_work_goes_on_where_its_terminal_is_closed(tmp_path: Path) -> None:
    """As a server that `serve --detach` waits for, while its user closes the window."""
    begun, done = tmp_path / "begun", tmp_path / "done"
    program = (
        "import sys, time; from pathlib import Path; from medley.cli import terminal\n"
        "begun, done = map(Path, sys.argv[1:])\n"
        "with terminal.survive_hangup():\n"
        "    begun.touch()\n"
        "    while sys.stdin.isatty(): time.sleep(0.02)\n"
        "    print('shown to nobody', flush=True)\n"
        "    done.touch()\n"
    )
    pid, master = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", program, str(begun), str(done)])
    try:
        wait_for("the program has begun", begun.exists)
    finally:
        os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert done.exists()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_a_stream_cannot_encode_is_no_traceback(encoding: str) -> None:
    words = (sys.executable, "-m", "medley", "plan", "gpt-oss-120b", "--hosts", "spark:2")
    finished = process.run(Command(words, {"PYTHONIOENCODING": encoding}), limit_s=60)
    assert finished.status == 0, finished.lines
    assert any("gpt-oss-120b" in line for line in finished.lines)
    assert not any("Traceback" in line for line in finished.lines)


@pytest.mark.parametrize("verb", ["check", "plan demo", "help"])
def test_a_full_disk_behind_stdout_is_a_problem(verb: str, tmp_path: Path) -> None:
    status, said = typed_in_shell(verb, ">/dev/full", tmp_path)
    assert status == 1
    assert_problem(problem_in(said), "standard output cannot be written", cause="No space left on device")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-", "<&-"])
def test_streams_that_are_closed(closed: str, tmp_path: Path) -> None:
    """No file of medley's gets the number of a stream, and a verb goes on."""
    status, said = typed_in_shell("plan demo --svg plan.svg", closed, tmp_path)
    assert (status, [line for line in said.splitlines() if "Traceback" in line]) == (0, [])
    assert (tmp_path / "plan.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_that_lacks_a_character_gets_another(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    status, said = typed_in_shell("plan demo", "2>&1", tmp_path)
    assert status == 0
    assert "LAYERS" in said


def typed_in_shell(words: str, redirection: str, folder: Path) -> tuple[int, str]:
    """Run medley in a shell with these redirections; return its status and what came by both streams."""
    command = f"{sys.executable} -m medley {words} {redirection}"
    env = {**os.environ, "MEDLEY_STATE": str(folder / "state"), "MEDLEY_CACHE": str(folder / "cache")}
    done = subprocess.run(
        ["sh", "-c", command],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        encoding="latin-1",
    )
    return done.returncode, done.stdout
