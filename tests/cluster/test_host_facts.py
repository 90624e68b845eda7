"""A plan before `medley up` is for the hosts of cluster.toml, as their own agents describe them."""

import os
from pathlib import Path

import pytest

from medley.cluster.cluster_file import Cluster, ClusterHost
from medley.cluster.host_facts import find_planned_site
from medley.errors import Problem
from medley.progress import SILENT, SilentProgress
from tests.cluster.test_bringup import SSH, Desk


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Desk(tmp_path)


def test_all_hosts_are_planned_for_and_one_that_is_away_is_named(desk: Desk) -> None:
    away = ClusterHost(medley=("false",))
    notes = Notes()
    site = find_planned_site(Cluster(hosts={"one": desk.host(7), "two": desk.host(8), "away": away}), notes)
    assert list(site.hosts) == ["one", "two"]
    assert (site.rank_order, {device.host for device in site.list_devices()}) == ((), {"one", "two"})
    (note,) = notes.lines
    assert note.startswith("planned without away: ")


@pytest.mark.usefixtures("desk")
def test_without_any_host_there_is_no_plan() -> None:
    with pytest.raises(Problem):
        find_planned_site(Cluster(hosts={"away": ClusterHost(medley=("false",))}), SILENT)
