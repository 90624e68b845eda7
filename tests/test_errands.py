"""Errands as an agent runs them, on this host."""

import threading
import time
from pathlib import Path

import pytest

from medley import errands, membership, store, units
from medley.command import Command
from medley.errands import gather
from medley.problem import Problem
from medley.unit import Restart, Unit


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def said(name: str, asked: dict[str, object]) -> list[str]:
    noted: list[str] = []
    errands.run(name, asked, noted.append)
    return noted


def test_the_last_lines_of_all_units_by_time() -> None:
    store.write(units.log("medley-ray"), "2026-01-01T00:00:01 a\n2026-01-01T00:00:03 c\n")
    store.write(units.log("medley-serve-8000"), "2026-01-01T00:00:02 b\n2026-01-01T00:00:04 d\n")
    store.write(store.state() / "logs" / "serve-8000.log", "not a unit's\n")
    lines = said("log", {"lines": 3, "follow": False})
    assert lines == [
        "2026-01-01T00:00:02 serve-8000 b",
        "2026-01-01T00:00:03 ray c",
        "2026-01-01T00:00:04 serve-8000 d",
    ]
    assert said("log", {"lines": 0, "follow": False}) == []


def test_lines_that_come_while_it_follows() -> None:
    log = units.log("medley-ray")
    store.write(log, "2026-01-01T00:00:01 old\n")
    noted: list[str] = []
    follow = {"lines": 0, "follow": True}
    threading.Thread(target=errands.run, args=("log", follow, noted.append), daemon=True).start()
    time.sleep(0.3)
    with log.open("a") as file:
        file.write("2026-01-01T00:00:02 new\n2026-01-01T00:00:03 ha")
        file.flush()
        deadline = time.monotonic() + 10
        while not noted and time.monotonic() < deadline:
            time.sleep(0.02)
        assert noted == ["2026-01-01T00:00:02 ray new"]
        file.write("lf\n")
    while len(noted) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert noted[1:] == ["2026-01-01T00:00:03 ray half"]


def test_ports_that_listen_are_reached_and_others_are_not() -> None:
    asked = {"address": "127.0.0.1", "starts": False, "head": False}
    ports = errands.run("listen", asked, print)["ports"]
    places = [["me", "127.0.0.1", port] for port in ports]
    closed = {"address": "127.0.0.1", "places": [*places, ["me", "127.0.0.1", 1]]}
    ((name, _, port, why),) = errands.run("connect", closed, print)["closed"]
    assert (name, port) == ("me", 1)
    assert "refused" in why


def test_what_a_head_that_started_says() -> None:
    lines = ["welcome", '{"nodes": [1], "missing": []}']
    assert gather.answer(lines) == {"nodes": [1], "missing": []}
    for wrong in (['{"error": "RpcError", "said": "deadline exceeded"}'], ["oops"]):
        with pytest.raises(Problem, match="the head's Ray does not answer"):
            gather.answer(wrong)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        pytest.param(
            "ray.exceptions.AuthenticationError: InvalidAuthToken", "authentication token", id="known"
        ),
        pytest.param("the moon is in the wrong house", "the moon", id="unknown"),
    ],
)
def test_a_ray_that_ends_says_why(said: str, cause: str) -> None:
    script = f"echo '{said}' >&2; exit 1"
    unit = Unit(membership.UNIT, "Ray", Command(("sh", "-c", script)), Restart(longest_s=30))
    units.start(unit)
    try:
        with pytest.raises(Problem, match="Ray could not be started") as caught:
            errands.run("settle", {"role": "worker"}, print)
    finally:
        units.stop(membership.UNIT)
    assert cause in caught.value.cause
    assert ("medley ray-worker" in caught.value.fix) == (cause == "authentication token")


def test_an_end_where_nothing_runs_ends_nothing() -> None:
    assert errands.run("end", {"part": False}, print) == {"ended": 0, "left": []}


def test_a_host_with_nothing_tells_so() -> None:
    told = errands.run("tell", {"nodes": True}, print)
    assert (told["membership"], told["units"], told["servers"], told["nodes"]) == (None, [], [], None)
    assert 0 < told["memory"]["available_bytes"] <= told["memory"]["total_bytes"]


def test_there_is_a_module_for_each() -> None:
    folder = Path(errands.__file__).parent
    assert {file.stem for file in folder.glob("*.py")} - {"__init__"} == set(errands.ERRANDS)
