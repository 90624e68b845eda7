"""The script for fish: a line for each thing; a real fish is asked what it offers, where there is one."""

import shutil
import subprocess
from pathlib import Path

import pytest

from medley.completion import FILES, HOSTS, Offer, Switch, Verb, fish
from tests.test_completion_cli import TREE

SHOW = Verb(
    ("link", "show"),
    "Show it.",
    switches=(
        Switch(("--transport",), "it's that", "WHAT", Offer(("tcp", "rdma"))),
        Switch(("-n", "--lines"), "so many", "N"),
        Switch(("--from",), "replay", "FILE", FILES),
    ),
    offer=HOSTS,
)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(r"-l transport -x -a 'tcp rdma' -d 'it\'s that'", id="a closed set"),
        pytest.param("-s n -l lines -x -d 'so many'", id="two names"),
        pytest.param("-l from -r -F -d 'replay'", id="a file"),
        pytest.param("-a '(__medley_hosts)'", id="a word"),
    ],
)
def test_what_is_offered(line: str) -> None:
    script = fish.script(Verb((), "All.", verbs=(Verb(("link",), "Links.", verbs=(SHOW,)),)))
    assert rf"complete -c medley -n '__medley_at \'link show\'' {line}" in script.splitlines()
    assert r"complete -c medley -n '__medley_at \'link\'' -a show -d 'Show it.'" in script.splitlines()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        pytest.param("serve --engine ", {"vllm", "sglang"}, id="a value"),
        pytest.param("link show --tr", {"--transport"}, id="a switch"),
        pytest.param("up --without ", {"spark-1"}, id="a host"),
    ],
)
def test_what_fish_offers(tmp_path: Path, typed: str, expected: set[str]) -> None:
    program = shutil.which("fish")
    if program is None:
        pytest.skip("there is no fish")
    (tmp_path / "medley.fish").write_text(fish.script(TREE), encoding="utf-8")
    (tmp_path / "cluster.toml").write_text("[hosts.spark-1]\n", encoding="utf-8")
    ask = f"source medley.fish; complete -C 'medley {typed}'"
    said = subprocess.run(
        [program, "--no-config", "-c", ask],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert {line.split("\t")[0] for line in said.stdout.splitlines()} == expected
