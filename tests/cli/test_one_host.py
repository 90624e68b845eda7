"""Verbs of a cluster on one host without cluster.toml: they are of this host."""

import json
import socket
import sys
from pathlib import Path

import pytest

from medley.__main__ import main
from medley.cluster import events


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEDLEY_CLUSTER", raising=False)
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["medley", *words])
    return main()


def test_logs_shows_what_a_detached_server_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "state" / "logs"
    logs.mkdir(parents=True)
    (logs / "medley-serve-8000.log").write_text("2026-11-23T10:00:00 ready after 31 s\n")
    assert run(monkeypatch, "logs") == 0
    assert "serve-8000 ready after 31 s" in capsys.readouterr().out


@pytest.mark.skipif(not Path("/sys/class/net").is_dir(), reason="Nix's sandbox has no /sys")
def test_pull_has_what_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"x" * 1000)
    assert run(monkeypatch, "pull", str(model)) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [socket.gethostname(), "-", "had", "it"] in rows


def test_a_cluster_that_is_named_must_be_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "logs", "--cluster", "absent.toml") == 1
    assert "absent.toml" in capsys.readouterr().err


def test_logs_shows_events_for_people_and_for_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events.record_event("start", "demo on port 8000", "medley serve demo")
    events.record_event("fault", "demo on port 8000", "no token for 120 s")
    assert run(monkeypatch, "logs", "--events", "-n", "1") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("fault    demo on port 8000: no token for 120 s")
    assert run(monkeypatch, "logs", "--events", "--json") == 0
    found = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert [each["kind"] for each in found] == ["start", "fault"]
    assert found[0]["host"] == socket.gethostname()
    assert run(monkeypatch, "logs", "--json") == 2
