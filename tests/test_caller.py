"""Tests see the same, whoever starts them: a script in its background, nohup, a service, another locale."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[1]
VARIABLES = {
    **dict.fromkeys(["COLUMNS", "FORCE_COLOR", "HF_HUB_OFFLINE", "NO_COLOR", "PYTHONDONTWRITEBYTECODE"], "1"),
    **dict.fromkeys(["GIT_DIR", "MEDLEY_CACHE", "MEDLEY_URL", "XDG_STATE_HOME", "http_proxy"], "/nowhere"),
    **dict.fromkeys(["LANG", "LANGUAGE"], "de_DE.UTF-8"),
    "LC_ALL": "POSIX",
    "TERM": "dumb",
    "TZ": "Asia/Tokyo",
}
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)
PLAIN = """
import os, shutil, signal, subprocess, sys, time
import pytest

def test_a_child_ignores_and_blocks_no_signal():
    lines = subprocess.check_output(["grep", "Sig[IB]", "/proc/self/status"], text=True).splitlines()
    known = sum(1 << number - 1 for number in signal.valid_signals())  # 32 and 33 are glibc's own
    assert [int(line.split()[1], 16) & known for line in lines] == [0, 0], lines

def test_ctrl_c():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

def test_variables():
    assert os.environ.keys().isdisjoint(NAMES)
    assert (os.environ["LC_ALL"], time.tzname[0]) == ("C.UTF-8", "UTC")

def test_width():
    assert shutil.get_terminal_size().columns == 80

def test_bytecode():
    assert not sys.dont_write_bytecode

def test_others_may_read_a_new_file(tmp_path):
    (tmp_path / "file").touch()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
"""
OF_AN_ENGINE = """
import os
import pytest

@pytest.mark.engine
def test_the_machine_s_folders_and_the_caller_s_server():
    assert os.environ["MEDLEY_CACHE"] == "/nowhere"
    assert "MEDLEY_URL" not in os.environ
"""


def outcome(folder: Path, text: str, *words: str) -> str:
    """The output of a run of such tests, started by a hostile caller."""
    (folder / "test_tiny.py").write_text(text)
    settings = ("-p", "no:cacheprovider", "--config-file", str(TREE / "pyproject.toml"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, *words, str(folder)],
        cwd=TREE,
        env={**os.environ, **VARIABLES},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=_hostile,
        restore_signals=False,
    )
    return done.stdout


def _hostile() -> None:
    os.close(0)
    os.umask(0o077)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})


@pytest.mark.parametrize(
    ("words", "counted"),
    [
        pytest.param(("-p", "tests.conftest"), "6 passed in", id="neutralized"),
        pytest.param((), "6 failed in", id="as it is"),
    ],
)
def test_a_hostile_caller(tmp_path: Path, words: tuple[str, ...], counted: str) -> None:
    names = sorted(VARIABLES.keys() - {"LC_ALL", "TERM", "TZ"})
    said = outcome(tmp_path, PLAIN.replace("NAMES", repr(names)), *words)
    assert counted in said, said


def test_tests_of_engines_find_the_machine_s_folders(tmp_path: Path) -> None:
    said = outcome(tmp_path, OF_AN_ENGINE, "-p", "tests.conftest", "-m", "engine")
    assert "1 passed in" in said, said
