from pathlib import Path

import pytest

from medley.cli.cluster_options import AtHead, without

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
    assert without(words.split(), SWITCHES) == left.split()


def test_the_command_for_events_is_read_from_the_cluster_s_table(tmp_path: Path) -> None:
    table = tmp_path / "desk.toml"
    table.write_text('on_event = "wall"\n[hosts.spark-1]\nssh = "spark-1"\n')
    assert AtHead(str(table)).on_event() == "wall"
