"""Errands as an agent runs them, on this host."""

import importlib
import threading
from pathlib import Path

import pytest

from medley import storage
from medley.cli.agent import ray, requests
from medley.cluster import membership, units
from medley.cluster.restart_rule import Restart
from medley.cluster.unit_file import Unit
from medley.command import Command
from tests.problems import raises_problem
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def said(name: str, asked: dict[str, object]) -> list[str]:
    noted: list[str] = []
    requests.answer_request(name, asked, noted.append)
    return noted


def test_the_last_lines_of_all_units_by_time() -> None:
    storage.write_text(units.get_log_file("medley-ray"), "2026-01-01T00:00:01 a\n2026-01-01T00:00:03 c\n")
    storage.write_text(
        units.get_log_file("medley-serve-8000"), "2026-01-01T00:00:02 b\n2026-01-01T00:00:04 d\n"
    )
    storage.write_text(
        storage.find_state_folder() / "logs" / "serve-8000.log", "2026-01-01T00:00:05 (APIServer) e\n"
    )
    storage.write_text(storage.find_state_folder() / "logs" / "run-x.log", "2026-01-01T00:00:06 a script's\n")
    lines = said("log", {"lines": 3, "follow": False})
    assert lines == [
        "2026-01-01T00:00:03 ray c",
        "2026-01-01T00:00:04 serve-8000 d",
        "2026-01-01T00:00:05 serve-8000 (APIServer) e",
    ]
    assert said("log", {"lines": 0, "follow": False}) == []


def test_lines_that_come_while_it_follows() -> None:
    log = units.get_log_file("medley-ray")
    storage.write_text(log, "2026-01-01T00:00:01 old\n")
    noted: list[str] = []
    follow = {"lines": 1, "follow": True}
    threading.Thread(target=requests.answer_request, args=("log", follow, noted.append), daemon=True).start()
    wait_for("it prints the last line", lambda: noted)
    with log.open("a") as file:
        file.write("2026-01-01T00:00:02 new\n2026-01-01T00:00:03 ha")
        file.flush()
        wait_for("it prints the new line", lambda: noted[1:])
        assert noted[1:] == ["2026-01-01T00:00:02 ray new"]
        file.write("lf\n")
    wait_for("it prints the rest", lambda: noted[2:])
    assert noted[2:] == ["2026-01-01T00:00:03 ray half"]


def test_ports_that_listen_are_reached_and_others_are_not() -> None:
    asked = {"address": "127.0.0.1", "starts": False, "head": False}
    ports = requests.answer_request("listen", asked, print)["ports"]
    places = [["me", "127.0.0.1", port] for port in ports]
    closed = {"address": "127.0.0.1", "places": [*places, ["me", "127.0.0.1", 1]]}
    ((name, _, port, why),) = requests.answer_request("connect", closed, print)["closed"]
    assert (name, port) == ("me", 1)
    assert "refused" in why


def test_what_a_head_that_started_says() -> None:
    lines = ["welcome", '{"nodes": [1], "missing": []}']
    assert ray.parse_nodes(lines) == {"nodes": [1], "missing": []}
    for wrong in (['{"error": "RpcError", "said": "deadline exceeded"}'], ["oops"]):
        with raises_problem(fix=("medley down", "medley up")):
            ray.parse_nodes(wrong)


@pytest.mark.parametrize(
    ("said", "cause", "fix"),
    [
        pytest.param(
            "ray.exceptions.AuthenticationError: InvalidAuthToken",
            "InvalidAuthToken",
            "medley ray-worker HEAD --token-file FILE",
            id="known",
        ),
        pytest.param(
            "the moon is in the wrong house",
            "the moon is in the wrong house",
            "medley explain {}/medley-ray.log",
            id="unknown",
        ),
    ],
)
def test_a_ray_that_ends_says_why(said: str, cause: str, fix: str, tmp_path: Path) -> None:
    script = f"echo '{said}' >&2; exit 1"
    unit = Unit(membership.UNIT_NAME, "Ray", Command(("sh", "-c", script)), Restart(longest_s=30))
    units.start_unit(unit)
    try:
        with raises_problem("Ray", cause=cause, fix=fix.format(f"{tmp_path}/logs")):
            requests.answer_request("settle", {"role": "worker"}, print)
    finally:
        units.stop_unit(membership.UNIT_NAME)


def test_an_end_where_nothing_runs_ends_nothing() -> None:
    assert requests.answer_request("end", {"part": False}, print) == {"ended": 0, "left": []}


def test_a_host_with_nothing_tells_so() -> None:
    told = requests.answer_request("tell", {"nodes": True}, print)
    assert (told["membership"], told["units"], told["servers"], told["nodes"]) == (None, [], [], None)
    assert 0 < told["memory"]["available_bytes"] <= told["memory"]["total_bytes"]


def test_there_is_a_module_for_each() -> None:
    for name, module in requests.HANDLER_MODULES.items():
        assert callable(getattr(importlib.import_module(f"medley.cli.agent.{module}"), f"answer_{name}"))
