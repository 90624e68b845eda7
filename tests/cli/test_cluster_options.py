from pathlib import Path

import pytest

from medley.cli.cluster_options import HeadChoice, drop_medley_switches
from medley.cluster.cluster_file import Cluster, ClusterHost
from medley.cluster.fleet import is_this_host
from medley.cluster.self_command import TYPED_HERE_VARIABLE

SWITCHES = {"--detach": 0, "--cluster": 1}


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("serve demo", "serve demo"),
        ("serve --detach demo --restart", "serve demo --restart"),
        ("serve --cluster desk.toml demo", "serve demo"),
        ("serve --cluster=desk.toml demo --detach", "serve demo"),
        ("serve demo -- --cluster x --detach", "serve demo -- --cluster x --detach"),
        ("serve --clusters demo", "serve --clusters demo"),
    ],
)
def test_what_is_typed_elsewhere(words: str, left: str) -> None:
    assert drop_medley_switches(words.split(), SWITCHES) == left.split()


def test_the_command_for_events_is_read_from_the_cluster_s_table(tmp_path: Path) -> None:
    table = tmp_path / "desk.toml"
    table.write_text('on_event = "wall"\n[hosts.spark-1]\nssh = "spark-1"\n')
    assert HeadChoice(str(table)).read_on_event() == "wall"


def test_a_verb_that_was_passed_on_is_not_passed_on_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that is known by an alias of ssh does not see that it is the head, without end."""
    table = tmp_path / "desk.toml"
    table.write_text('[hosts.desk]\nssh = "192.0.2.1"\nrole = "head"\n')
    there = HeadChoice(str(table)).find_remote_head()
    assert there
    there.close(0.1)
    monkeypatch.setenv(TYPED_HERE_VARIABLE, "1")
    assert HeadChoice(str(table)).find_remote_head() is None


@pytest.mark.parametrize("target", ["a..b", "x" * 64, "127.0.0.1", "::1"])
def test_a_name_that_no_host_can_have_is_not_here(target: str) -> None:
    assert is_this_host(Cluster(hosts={"a": ClusterHost(ssh=target)}), "a") == (
        target in {"127.0.0.1", "::1"}
    )
