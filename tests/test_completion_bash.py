"""A real bash is asked what it offers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from medley.completion import bash
from tests.test_completion_cli import TREE

ASK = """
source "$1"
shift
COMP_WORDS=(medley "$@") COMP_CWORD=$#
_medley
printf '%s\\n' "${COMPREPLY[@]}"
"""
CLUSTER = """
[hosts.spark-1]
role = "head"
[hosts."10.0.0.2"] # with dots
  [hosts.thor_1]
[hosts."$(touch expanded)"]
[hosts.a`touch expanded`]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = shutil.which("bash") or "bash"
    if subprocess.run([program, "-c", "type complete"], capture_output=True, check=False).returncode:
        pytest.skip("this bash cannot complete: nixpkgs' builders have one without readline")
    folder = tmp_path_factory.mktemp("here")
    (folder / "medley.bash").write_text(bash.script(TREE), encoding="utf-8")
    (folder / "cluster.toml").write_text(CLUSTER, encoding="utf-8")
    (folder / "a model").mkdir()
    return folder


def offered(folder: Path, *words: str, **variables: str) -> list[str]:
    program = shutil.which("bash")
    assert program
    said = subprocess.run(
        [program, "--norc", "-c", ASK, "bash", folder / "medley.bash", *words],
        cwd=folder,
        env={"PATH": str(Path(shutil.which("sed") or "/bin/sed").parent), "HOME": "/nowhere", **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert said.stderr == ""
    return [line for line in said.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(("st",), ["status", "stop"], id="a verb"),
        pytest.param(("link", ""), ["setup", "show", "test", "watch"], id="a verb's verb"),
        pytest.param(("serve", "--en"), ["--engine", "--env"], id="a switch of the verb"),
        pytest.param(("link", "show", "--tr"), ["--transport"], id="one of a verb's verb"),
        pytest.param(("serve", "--engine", ""), ["vllm", "sglang"], id="a value"),
        pytest.param(("serve", "--engine", "=", "v"), ["vllm"], id="a value after ="),
        pytest.param(("serve", "--engine", "="), ["vllm", "sglang"], id="nothing after ="),
        pytest.param(("serve", "demo", "--port", ""), [], id="a number"),
        pytest.param(("up", "--without", ""), ["spark-1", "10.0.0.2", "thor_1"], id="a host"),
        pytest.param(("ray-worker", "th"), ["thor_1"], id="a host as a word"),
        pytest.param(("up", "--cluster", "clu"), ["cluster.toml"], id="a file"),
        pytest.param(
            ("serve", ""), ["demo", "a model", "cluster.toml", "medley.bash"], id="a model, a folder"
        ),
        pytest.param(("serve", "demo", "--", "clu"), ["cluster.toml"], id="the engine's own flags"),
        pytest.param(("bench", "--model", "show", "--rep"), ["--repeats"], id="a value named as a verb"),
        pytest.param(("down", ""), ["--cluster", "--json", "--without", "-h", "--help"], id="no words"),
        pytest.param(("nonsense", "--x"), [], id="no verb"),
    ],
)
def test_what_bash_offers(folder: Path, words: tuple[str, ...], expected: list[str]) -> None:
    assert sorted(offered(folder, *words)) == sorted(expected)


def test_a_stranger_s_table_runs_nothing(folder: Path) -> None:
    offered(folder, "up", "--without", "")
    assert not (folder / "expanded").exists()


def test_hosts_are_of_the_table_that_medley_would_take(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "medley").mkdir()
    (tmp_path / "mine.toml").write_text("[hosts.mine]\n", encoding="utf-8")
    assert offered(folder, "ray-worker", "", MEDLEY_CLUSTER=str(tmp_path / "mine.toml")) == ["mine"]


def test_shellcheck_has_nothing_to_say(folder: Path) -> None:
    program = Path(sys.executable).with_name("shellcheck")
    if not program.exists():
        pytest.skip("there is no shellcheck")
    subprocess.run([program, "--shell=bash", folder / "medley.bash"], check=True, timeout=60)
