"""The bytecode of an engine's server, written by the real Python of a small environment."""

import os
import venv
from pathlib import Path

import pytest

from medley.environment.bytecode import write_server_bytecode
from medley.process import wait_until

SERVER = "vllm/entrypoints/openai/api_server.py"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    venv.create(tmp_path, symlinks=True)
    return tmp_path / "bin" / "python"


def write_server(python: Path, text: str) -> Path:
    """Write a server module into an environment; returns its path."""
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    (site / SERVER).parent.mkdir(parents=True)
    (site / SERVER).write_text(text)
    return site / SERVER


def test_bytecode_of_a_server_is_written(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    server = write_server(python, "")
    with write_server_bytecode(python):
        assert wait_until(lambda: [*server.parent.glob("__pycache__/api_server.*.pyc")], 20)


def test_an_import_that_does_not_end_is_stopped(python: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    note_pid = f"import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))"
    write_server(python, f"{note_pid}; time.sleep(600)\n")
    with write_server_bytecode(python):
        assert wait_until(lambda: pid.exists() and pid.read_text(), 20)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
