"""Everyone, of two hosts that are both this one: real agents, in a state of their own."""

from pathlib import Path

import pytest

from medley.cluster.cluster_file import Cluster, ClusterHost
from medley.cluster.fleet import Fleet, end_started_processes, format_host_count
from medley.errors import Problem
from medley.progress import SILENT

HERE = Cluster(hosts={name: ClusterHost(ssh="127.0.0.1") for name in ("one", "two")})
NOBODY = {"address": "127.0.0.1", "places": []}


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def test_who_is_left_out_is_ended_there_and_the_others_answer_on() -> None:
    with Fleet(HERE) as everyone:
        assert set(everyone.ask("connect", lambda _: NOBODY, limit_s=30)) == {"one", "two"}
        everyone.failed["two"] = Problem("two is lost", cause="it is tried", fix="none")
        end_started_processes(everyone, ["two"], SILENT)
        assert everyone.ask("connect", lambda _: NOBODY, limit_s=30) == {"one": {"closed": []}}
        assert list(everyone.failed) == ["two"]


def test_how_many() -> None:
    assert [format_host_count("abc"[:count]) for count in (1, 2)] == ["1 host", "2 hosts"]
