"""`medley models rm`: what is downloaded goes, what is served or the user's own stays."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from medley.engine.server_spec import ServerSpec
from medley.model import hub_download
from medley.serving import server_records
from tests.cli.test_chat import Terminal
from tests.model.hub_server import disk_bytes, large_repositories
from tests.model.hub_server import serving as serving_hub
from tests.problems import assert_problem, problem_in

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache_layout: bool) -> Path:  # noqa: FBT001
    """The folder of one model in a cache that the hub's library made."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    with serving_hub(large_repositories(), monkeypatch, tmp_path):
        folder = hub_download.download_model("openai/gpt-oss-20b").parents[1]
    assert (folder.parent / "blobs").is_dir() is cache_layout
    return folder


@pytest.mark.parametrize("name", ["gpt-oss-20b", "openai/gpt-oss-20b"])
def test_it_removes_the_files_and_prints_what_is_free(run: Run, hub: Path, name: str) -> None:
    before = disk_bytes(hub.parent)
    status, out, err = run("models", "rm", name, "--yes")
    assert (status, out, err) == (0, f"freed 0.00 GB: {hub}\n", "")
    assert not hub.exists()
    assert before - disk_bytes(hub.parent) >= 1_500_000
    status, _, err = run("models", "rm", name, "--yes")
    assert status == 1
    assert_problem(problem_in(err), "gpt-oss-20b", cause=str(hub), fix="medley models")


def test_a_dry_run_removes_nothing(run: Run, hub: Path) -> None:
    assert run("models", "rm", "gpt-oss-20b", "--dry-run") == (0, f"would free 0.00 GB: {hub}\n", "")
    assert hub.exists()


def test_json_has_the_bytes_that_are_free_then(run: Run, hub: Path) -> None:
    before = disk_bytes(hub.parent)
    status, out, _ = run("models", "rm", "gpt-oss-20b", "--yes", "--json")
    table = json.loads(out)
    assert status == 0
    assert table.pop("bytes") == before - disk_bytes(hub.parent)
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
        assert "remove 0.00 GB" in terminal.until("[no] ")
        terminal.type(f"{answer}\n")
        terminal.until("kept" if stays else "freed")
        assert terminal.status() == status
    finally:
        terminal.close()
    assert hub.exists() is stays


def test_a_served_model_stays(run: Run, hub: Path) -> None:
    with server_records.record_server(ServerSpec("gpt-oss-20b", "gpt-oss-20b", port=8123), "ready"):
        status, _, err = run("models", "rm", "openai/gpt-oss-20b", "--yes")
        assert status == 1, "by its other name"
        status, _, err = run("models", "rm", "gpt-oss-20b", "--yes")
    assert status == 1
    assert_problem(problem_in(err), "gpt-oss-20b", fix="medley stop --port 8123")
    assert hub.exists()


def test_a_model_that_is_a_link_stays(run: Run, hub: Path, tmp_path: Path) -> None:
    hub.rename(tmp_path / "elsewhere")
    hub.symlink_to(tmp_path / "elsewhere")
    status, _, err = run("models", "rm", "gpt-oss-20b", "--yes")
    assert status == 1
    fix = f"rm -r {tmp_path / 'elsewhere'} && rm {hub}"
    assert_problem(problem_in(err), str(hub), cause=str(tmp_path / "elsewhere"), fix=fix)
    assert hub.exists()


@pytest.mark.parametrize("name", ["mine", "my own; $(id)"])
def test_a_folder_of_the_user_s_own_stays(run: Run, tmp_path: Path, name: str) -> None:
    own = tmp_path / name
    own.mkdir()
    (own / "config.json").write_text("{}")
    status, _, err = run("models", "rm", str(own), "--yes")
    assert status == 1
    assert_problem(problem_in(err), str(own), fix=f"rm -r {shlex.quote(str(own))}")
    assert own.exists()
