"""A server started anew, with attempts that fail in earnest: no model, no cluster."""

from collections.abc import Callable
from pathlib import Path

import pytest

from medley.cluster.restart_rule import Restart
from medley.engine.server_spec import ServerSpec
from medley.errors import Problem
from medley.planner.site import Site
from medley.progress import SILENT, Output
from medley.serving import server_records
from medley.serving.restarter import Restarter, recall_host_count
from tests.problems import raises_problem

HERE = Site({})
OUTPUT = Output(SILENT, print, print, print, print)
LISTENS = ServerSpec("/model", "demo", "127.0.0.1", 8123)
LOST = Problem("host2, rank 1, is lost, and the model with it", cause="x", fix="y", status=3)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def attempts(*ends: str) -> tuple[list[str], Callable[[Site, Callable[[int], None]], None]]:
    """Each is ready or not, and then lost; the states that others saw meanwhile."""
    seen: list[str] = []
    left = iter(ends)

    def attempt(site: Site, on_ready: Callable[[int], None]) -> None:
        assert site is HERE
        seen.append("begun")
        if next(left) == "ready":
            on_ready(2)
            seen.append("ready")
        raise LOST

    return seen, attempt


def again(limit: int, **more: float) -> Restarter:
    return Restarter(
        Restart(first_s=0, longest_s=0, limit=limit, **more), LISTENS, None, OUTPUT, lambda: HERE
    )


def test_what_was_never_ready_is_not_started_anew() -> None:
    seen, attempt = attempts("lost")
    with pytest.raises(Problem) as caught:
        again(5).run(attempt, HERE)
    assert caught.value is LOST
    assert seen == ["begun"]


def test_it_is_started_anew_so_often_in_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    seen, attempt = attempts("ready", "lost", "lost", "lost")
    with raises_problem("host2, rank 1", "restart 3", status=3):
        again(3).run(attempt, HERE)
    assert seen == ["begun", "ready", "begun", "begun", "begun"]
    assert "restarting, attempt 3: host2, rank 1, is lost" in capsys.readouterr().out
    assert server_records.list_servers() == []


def test_its_record_has_no_gap_until_the_next_attempt() -> None:
    """`status` showed nothing while the memory was waited for, and while the next start was planned."""
    states: list[str] = []

    def attempt(_: Site, on_ready: Callable[[int], None]) -> None:
        states.extend(each.state for each in server_records.list_servers())
        on_ready(1)
        raise LOST

    with raises_problem("host2, rank 1", status=3):
        again(2).run(attempt, HERE)
    assert [each.partition(":")[0] for each in states] == ["restarting, attempt 1", "restarting, attempt 2"]
    assert server_records.list_servers() == []


def test_what_lasted_is_no_row() -> None:
    seen, attempt = attempts(*["ready"] * 5, "lost", "lost")
    with raises_problem("host2, rank 1", "restart 1", status=3):
        again(1, lasting_s=0).run(attempt, HERE)
    assert seen.count("ready") == 5


def test_over_how_many_hosts_it_ran_is_known_after_a_crash_and_not_after_an_end() -> None:
    _, attempt = attempts("ready")
    with recall_host_count(8123, print) as hosts:
        assert hosts is None
    with pytest.raises(Problem):
        again(0).run(attempt, HERE)
    file = server_records.get_records_folder() / "8123.hosts"
    assert file.read_text() == "2"
    file.write_text("1")
    with recall_host_count(8123, print) as hosts:
        assert hosts == 1
    with pytest.raises(KeyboardInterrupt), recall_host_count(8123, print):
        raise KeyboardInterrupt
    assert not file.exists()
