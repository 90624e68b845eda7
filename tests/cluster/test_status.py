from typing import Any

import pytest

from medley.cluster.cluster_file import Cluster, ClusterHost
from medley.cluster.status import HostStatus, list_findings, list_host_statuses, list_lost_workers
from medley.errors import Problem

TABLE = Cluster(hosts={"a": ClusterHost(), "b": ClusterHost()})
MEMORY = {"total_bytes": 8 << 30, "available_bytes": 5 << 30}
AT = "10.0.0.1:24000"
NODES = [
    {"address": "10.0.0.1", "alive": True, "slots": 1, "free": 0},
    {"address": "10.0.0.2", "alive": True, "slots": 2, "free": 2},
]
RAY = {"name": "medley-ray", "running": True, "said": "", "next_s": None, "restarts": 0, "status": None}


def told(role: str, address: str, **more: Any) -> dict[str, Any]:
    said = {
        "membership": {"role": role, "head": AT, "address": address},
        "units": [RAY],
        "servers": [],
        "memory": MEMORY,
        "wire": {"interface": "eth1", "up": True, "mbit": 200_000},
        "low": [],
        "nodes": NODES if role == "head" else None,
    }
    return {**said, **more}


HEAD, WORKER = told("head", "10.0.0.1"), told("worker", "10.0.0.2")
ENDED = {
    **RAY,
    "running": False,
    "said": "first\nx is dead",
    "restarts": 2,
    "next_s": 1.0,
}
GIVEN_UP = {**ENDED, "next_s": None}
ANEW = "Ray restarts, 2 times in a row"
SERVER = {"model": "demo", "url": "http://127.0.0.1:8000/v1", "state": "restarting, attempt 1"}
UNSEEN = [NODES[0]]
DEAD = [NODES[0], {**NODES[1], "alive": False}]


def rows(said: dict[str, dict[str, Any]], failed: dict[str, Problem] | None = None) -> dict[str, HostStatus]:
    return {each.host: each for each in list_host_statuses(TABLE, said, failed or {})}


def test_as_it_was_wanted() -> None:
    found = rows({"a": HEAD, "b": WORKER})
    assert found["a"] == (
        "a", "head", "up", "10.0.0.1 (eth1, 200 Gbit/s)", "1 of 1 taken", "5.0 of 8.0 GiB", "-"
    )  # fmt: skip
    assert found["b"].slots == "0 of 2 taken"
    assert list(list_findings(found.values(), {"a": HEAD, "b": WORKER}, {}, "a")) == []


@pytest.mark.parametrize(
    ("head", "worker", "state"),
    [
        pytest.param(HEAD, {**WORKER, "membership": None, "units": []}, "not in the cluster", id="left"),
        pytest.param(HEAD, {**WORKER, "membership": None}, "Ray starts or ended", id="for a moment"),
        pytest.param(HEAD, {**WORKER, "units": [ENDED]}, f"{ANEW} (x is dead)", id="ended"),
        pytest.param(HEAD, {**WORKER, "units": [GIVEN_UP]}, "Ray ended (x is dead)", id="for good"),
        pytest.param({**HEAD, "nodes": UNSEEN}, WORKER, "not listed by the head", id="unseen"),
        pytest.param({**HEAD, "nodes": DEAD}, WORKER, "the head reports it dead", id="dead"),
        pytest.param({**HEAD, "nodes": {"what": "no answer"}}, WORKER, "up, head unknown", id="deaf"),
        pytest.param(HEAD, told("head", "10.0.0.2"), f"is head of the cluster at {AT}", id="another cluster"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_worker(head: dict[str, Any], worker: dict[str, Any], state: str) -> None:
    assert rows({"a": head, "b": worker})["b"].state == state


def test_a_host_that_does_not_answer() -> None:
    gone = Problem("b cannot be reached", cause="x", fix="y")
    found = rows({"a": HEAD}, {"b": gone})
    assert found["b"].state == "does not answer"
    (said,) = list_findings(found.values(), {"a": HEAD}, {}, "a")
    assert said.startswith("b: it is off or unreachable")


def test_a_cut_is_told_from_an_end() -> None:
    said = {"a": {**HEAD, "nodes": DEAD}, "b": WORKER}
    found = rows(said)
    assert list_lost_workers(found.values(), said) == ["b"]
    (cut,) = list_findings(found.values(), said, {"b": "No route to host"}, "a")
    assert cut.startswith("b: it cannot reach a (No route to host), and a runs")
    (ended,) = list_findings(found.values(), said, {}, "a")
    assert ended == "b: the head reports it dead: medley up; medley logs b"


def test_a_cluster_that_nobody_has_started() -> None:
    """Before the first `up`, and after `down`: nothing has ended by itself."""
    said = {
        "a": {**HEAD, "membership": None, "units": [], "nodes": None},
        "b": {**WORKER, "membership": None, "units": []},
    }
    found = rows(said)
    assert {each.state for each in found.values()} == {"not started"}
    assert list(list_findings(found.values(), said, {}, "a")) == ["the cluster is not started: medley up"]


def test_a_head_whose_ray_ended() -> None:
    said = {"a": {**HEAD, "units": [ENDED], "nodes": {"what": "no answer"}}, "b": WORKER}
    found = list_findings(rows(said).values(), said, {"b": "Connection refused"}, "a")
    assert "the host answers, so only Ray ended" in next(iter(found))


def test_what_is_served() -> None:
    found = rows({"a": {**HEAD, "servers": [SERVER]}, "b": WORKER})
    assert found["a"].models == f"demo at {SERVER['url']} ({SERVER['state']})"
    unit = {"name": "medley-serve-8000", "running": False, "status": 3}
    assert (
        rows({"a": {**HEAD, "units": [RAY, unit]}, "b": WORKER})["a"].models
        == "medley-serve-8000 exited with 3"
    )


def test_a_model_whose_host_is_dead_is_not_ready() -> None:
    server = {**SERVER, "state": "ready", "hosts": "10.0.0.1 10.0.0.2"}
    found = rows({"a": {**HEAD, "servers": [server], "nodes": DEAD}, "b": WORKER})
    assert found["a"].models == f"demo at {SERVER['url']} (lost: the head reports 10.0.0.2 dead)"
    assert "(ready)" in rows({"a": {**HEAD, "servers": [server]}, "b": WORKER})["a"].models


def test_limits_that_are_too_low() -> None:
    said = {"a": {**HEAD, "low": ["it may lock 64 KiB"]}, "b": WORKER}
    assert list(list_findings(rows(said).values(), said, {}, "a")) == ["a: it may lock 64 KiB"]
    said["b"] = {**WORKER, "low": ["it may lock 64 KiB"]}
    assert list(list_findings(rows(said).values(), said, {}, "a")) == ["a, b: it may lock 64 KiB"]
