"""`medley init` as typed, where nobody is there to ask."""

import io
import os
import platform
import shlex
import sys
from pathlib import Path

import pytest

from medley.cli.init import InitVerb
from medley.cluster import cluster_file
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


def test_a_name_without_an_address_replaces_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a typo has none; a host that is only off is written, because it comes back."""
    (tmp_path / "ssh").write_text(
        "#!/bin/sh\necho 'ssh: Could not resolve hostname hots2: Name or service not known' >&2; exit 255\n"
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host host2\n    HostName 10.0.0.2\n")
    file = tmp_path / "cluster.toml"
    file.write_text("[hosts.host2]\n")
    words = (platform.node(), "hots2", "--force", "--output", str(file))
    with raises_problem(
        str(file),
        cause="hots2",
        fix=shlex.join(("medley", "init", platform.node(), "host2", "--force", "--output", str(file))),
    ):
        InitVerb.run(["medley init", *words], exit=False)
    assert file.read_text() == "[hosts.host2]\n"
    assert not (tmp_path / "cluster.toml.1").exists()
    _, status = InitVerb.run(["medley init", *words, "--only-reached"], exit=False)
    assert status == 0
    assert list(cluster_file.read_cluster(str(file)).hosts) == [platform.node()]
