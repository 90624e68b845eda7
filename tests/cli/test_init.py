"""`medley init` as typed, where nobody is there to ask."""

import io
import shlex
import sys
from pathlib import Path

import pytest

from medley.cli.init import InitVerb
from tests.problems import raises_problem

pytestmark = pytest.mark.usefixtures("asked_once")


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.mark.parametrize(
    ("typed", "kept", "yes"),
    [
        pytest.param(("--dry-run",), "--dry-run", False, id="it still changes nothing"),
        pytest.param(("--output", "my hosts.toml"), "--output 'my hosts.toml'", True, id="a file"),
        pytest.param(("--keys", "--yes"), "--keys --yes", True, id="once is enough"),
    ],
)
def test_its_fix_is_what_was_typed_with_hosts(typed: tuple[str, ...], kept: str, *, yes: bool) -> None:
    with raises_problem("medley init", cause="--yes") as caught:
        InitVerb.run(["medley init", *typed], exit=False)
    said = caught.value.fix.partition(": ")[2]
    assert said.startswith(f"medley init {kept} ")
    assert shlex.split(said).count("--yes") == int(yes)


def test_nothing_is_written_where_no_host_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the same command again is not refused for a file that nobody changed."""
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with raises_problem(
            "cluster.toml",
            cause="spark-1.invalid, spark-2.invalid",
            fix="medley init spark-1.invalid spark-2.invalid",
        ):
            InitVerb.run(["medley init", "spark-1.invalid", "spark-2.invalid"], exit=False)
    assert not (tmp_path / "cluster.toml").exists()
