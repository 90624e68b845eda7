"""`medley models rm`: what is downloaded goes, what is served or the user's own stays."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from medley import serving
from tests.cli.test_chat import Terminal
from tests.problems import assert_problem, problem_in

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A hub's cache with one model."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "medley"))
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    folder = tmp_path / "hub" / "models--openai--gpt-oss-20b"
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "1").write_bytes(b"x" * 12_000_000)
    (folder / "snapshots" / "c").mkdir(parents=True)
    (folder / "snapshots" / "c" / "model.safetensors").symlink_to("../../blobs/1")
    return folder


@pytest.mark.parametrize("name", ["gpt-oss-20b", "openai/gpt-oss-20b"])
def test_it_removes_the_files_and_prints_what_is_free(run: Run, hub: Path, name: str) -> None:
    status, out, err = run("models", "rm", name, "--yes")
    assert (status, out, err) == (0, f"freed 0.01 GB: {hub}\n", "")
    assert not hub.exists()
    status, _, err = run("models", "rm", name, "--yes")
    assert status == 1
    assert_problem(problem_in(err), "gpt-oss-20b", cause=str(hub), fix="medley models")


def test_a_dry_run_removes_nothing(run: Run, hub: Path) -> None:
    assert run("models", "rm", "gpt-oss-20b", "--dry-run") == (0, f"would free 0.01 GB: {hub}\n", "")
    assert hub.exists()


def test_json(run: Run, hub: Path) -> None:
    status, out, _ = run("models", "rm", "gpt-oss-20b", "--yes", "--json")
    table = json.loads(out)
    assert status == 0
    assert table.pop("bytes") >= 12_000_000
    assert table == {"model": "gpt-oss-20b", "path": str(hub), "removed": True}


def test_without_a_terminal_it_needs_yes(hub: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "medley", "models", "rm", "gpt-oss-20b"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 1
    assert_problem(problem_in(done.stderr), "gpt-oss-20b", fix="medley models rm gpt-oss-20b --yes")
    assert hub.exists()


@pytest.mark.parametrize(("answer", "stays", "status"), [("n", True, 1), ("y", False, 0)])
def test_on_a_terminal_it_asks(hub: Path, answer: str, stays: bool, status: int) -> None:  # noqa: FBT001
    terminal = Terminal("models", "rm", "gpt-oss-20b")
    try:
        assert "remove 0.01 GB" in terminal.until("[no] ")
        terminal.type(f"{answer}\n")
        terminal.until("kept" if stays else "freed")
        assert terminal.status() == status
    finally:
        terminal.close()
    assert hub.exists() is stays


def test_a_served_model_stays(run: Run, hub: Path) -> None:
    with serving.note_server("http://127.0.0.1:8123/v1", "gpt-oss-20b", 8123, state="ready"):
        status, _, err = run("models", "rm", "openai/gpt-oss-20b", "--yes")
        assert status == 1, "by its other name"
        status, _, err = run("models", "rm", "gpt-oss-20b", "--yes")
    assert status == 1
    assert_problem(problem_in(err), "gpt-oss-20b", fix="medley stop --port 8123")
    assert hub.exists()


def test_a_folder_of_the_user_s_own_stays(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    (own / "config.json").write_text("{}")
    status, _, err = run("models", "rm", str(own), "--yes")
    assert status == 1
    assert_problem(problem_in(err), str(own), fix=f"rm -r {own}")
    assert own.exists()
