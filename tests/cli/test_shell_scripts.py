"""A real bash is asked what it offers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from medley.cli import shell_scripts
from medley.cli.command_tree import FILE_VALUES, HOST_VALUES, Switch, VerbEntry, WordValues
from tests.cli.test_command_tree import TREE

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
    (folder / "medley.bash").write_text(shell_scripts.build_bash_script(TREE), encoding="utf-8")
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


SHOW = VerbEntry(
    ("link", "show"),
    "Show it.",
    switches=(
        Switch(("--transport",), "it's that", "WHAT", WordValues(("tcp", "rdma"))),
        Switch(("-n", "--lines"), "so many", "N"),
        Switch(("--from",), "replay", "FILE", FILE_VALUES),
    ),
    argument_values=HOST_VALUES,
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
    script = shell_scripts.build_fish_script(
        VerbEntry((), "All.", verbs=(VerbEntry(("link",), "Links.", verbs=(SHOW,)),))
    )
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
    (tmp_path / "medley.fish").write_text(shell_scripts.build_fish_script(TREE), encoding="utf-8")
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


SERVE = VerbEntry(
    ("serve",),
    "Serve a model.",
    switches=(
        Switch(("--engine",), "which: it's [one]", "ENGINE", WordValues(("vllm", "sglang"))),
        Switch(("-n", "--lines"), "so many", "N"),
        Switch(("--without",), "not it", "HOST", HOST_VALUES, is_repeatable=True),
    ),
)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(
            r"'--engine=[which\: it'\''s \[one\]]:ENGINE: _medley_offer no no vllm sglang'", id="quoted"
        ),
        pytest.param("'(-n --lines)-n[so many]:N:' '(-n --lines)--lines=[so many]:N:'", id="two names"),
        pytest.param("'*--without=[not it]:HOST: _medley_offer yes no'", id="said again"),
        pytest.param("'serve:Serve a model.'", id="a verb"),
    ],
)
def test_what_is_specified(line: str) -> None:
    assert line in shell_scripts.build_zsh_script(VerbEntry((), "All.", verbs=(SERVE,)))


def test_every_verb_has_its_function() -> None:
    script = shell_scripts.build_zsh_script(TREE)
    assert script.startswith("#compdef medley\n")
    for verb in TREE.walk():
        assert f"\n{'_'.join(('_medley', *verb.path))}() {{\n" in script


def test_zsh_reads_it(tmp_path: Path) -> None:
    program = shutil.which("zsh")
    if program is None:
        pytest.skip("there is no zsh")
    (tmp_path / "_medley").write_text(shell_scripts.build_zsh_script(TREE), encoding="utf-8")
    subprocess.run([program, "-n", tmp_path / "_medley"], check=True, timeout=30)
