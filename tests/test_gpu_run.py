"""The script for a GPU that can be had for half an hour: steps, limits, and wheels in parts."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tools import gpu_run

PROGRAM = Path(gpu_run.__file__)


def run_step(folder: Path, commands: Mapping[str, str], limit_s: float, **more: str) -> dict[str, Any]:
    step = {"commands": commands, **more}
    found = list(gpu_run.run_step("step", step, {"OUT": str(folder)}, limit_s))
    recorded = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert recorded == found
    return {each["command"]: each["status"] for each in found}


def test_a_failed_command_ends_nothing(tmp_path: Path) -> None:
    status = run_step(tmp_path, {"first": "echo out; exit 3", "second": 'echo "in $OUT"'}, 60)
    assert status == {"first": 3, "second": 0}
    assert (tmp_path / "step" / "first.txt").read_text() == "out\n"
    assert (tmp_path / "step" / "second.txt").read_text() == f"in {tmp_path}\n"


def test_a_step_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    commands = {"long": "sleep 987 & echo $!; wait", "later": "echo late"}
    status = run_step(tmp_path, commands, 1, after="echo cleaned")
    assert status["after"] == 0
    assert "limit" in str(status["long"])
    assert str(status["later"]).startswith("not run")
    child = (tmp_path / "step" / "long.txt").read_text().strip()
    ends = time.monotonic() + 20
    while Path(f"/proc/{child}").exists() and _is_running(child) and time.monotonic() < ends:
        time.sleep(0.1)
    assert not Path(f"/proc/{child}").exists() or not _is_running(child)


def _is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_steps_fit_into_half_an_hour(capsys: pytest.CaptureFixture[str]) -> None:
    """A command of the machine ends after ten minutes, so each step fits into one."""
    steps = gpu_run.steps(None)
    assert sum(step["limit_s"] for step in steps.values()) <= 1800
    assert all(step["limit_s"] < 600 for step in steps.values())
    words = ["run", "--out", "o", "--model", "m", "--engine", "e", "--dry-run"]
    shown = subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, check=True)
    assert all(f"{name}: {step['title']}" in shown.stdout for name, step in steps.items())
    with pytest.raises(SystemExit, match="no step other"):
        gpu_run.steps("facts,other")
    capsys.readouterr()


def test_each_command_is_bash() -> None:
    for step in gpu_run.steps(None).values():
        for _, line in gpu_run.lines(step):
            subprocess.run(["bash", "-n", "-c", line], check=True)


def test_a_file_in_parts_is_whole_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_run, "PART_BYTES", 1000)
    files = {"a-1.0.whl": os.urandom(2500), "b-2.0.whl": b"", "c.whl": os.urandom(1000)}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    assert gpu_run.split([tmp_path / name for name in files], parts) == 0
    assert max(each.stat().st_size for each in parts.glob("*.whl.*")) == 1000
    assert gpu_run.join(parts, whole) == 0
    assert {each.name: each.read_bytes() for each in whole.iterdir()} == files


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"other")])
def test_a_missing_or_damaged_part_is_named(
    damage: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("good.whl", "bad.whl"):
        (tmp_path / name).write_bytes(name.encode())
    gpu_run.split([tmp_path / "good.whl", tmp_path / "bad.whl"], tmp_path / "parts")
    damage(tmp_path / "parts" / "bad.whl.000")
    assert gpu_run.join(tmp_path / "parts", tmp_path / "whole") == 1
    assert capsys.readouterr().err.startswith("bad.whl:")
    assert [each.name for each in (tmp_path / "whole").iterdir()] == ["good.whl"]


def test_the_processes_below_one_are_known() -> None:
    with subprocess.Popen(["bash", "-c", "sleep 30 & wait"]) as shell:
        ends = time.monotonic() + 20
        found = dict(gpu_run.descendants(shell.pid))
        while "sleep" not in found.values() and time.monotonic() < ends:  # first it is a fork of bash
            time.sleep(0.1)
            found = dict(gpu_run.descendants(shell.pid))
        for pid in (*found, shell.pid):
            os.kill(pid, 9)
    assert "sleep" in found.values()
