"""The script for zsh: one function for each verb; a real zsh reads it, where there is one."""

import shutil
import subprocess
from pathlib import Path

import pytest

from medley.completion import HOSTS, Offer, Switch, Verb, zsh
from tests.test_completion_cli import TREE

SERVE = Verb(
    ("serve",),
    "Serve a model.",
    switches=(
        Switch(("--engine",), "which: it's [one]", "ENGINE", Offer(("vllm", "sglang"))),
        Switch(("-n", "--lines"), "so many", "N"),
        Switch(("--without",), "not it", "HOST", HOSTS, repeats=True),
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
    assert line in zsh.script(Verb((), "All.", verbs=(SERVE,)))


def test_every_verb_has_its_function() -> None:
    script = zsh.script(TREE)
    assert script.startswith("#compdef medley\n")
    for verb in TREE.all():
        assert f"\n{'_'.join(('_medley', *verb.path))}() {{\n" in script


def test_zsh_reads_it(tmp_path: Path) -> None:
    program = shutil.which("zsh")
    if program is None:
        pytest.skip("there is no zsh")
    (tmp_path / "_medley").write_text(zsh.script(TREE), encoding="utf-8")
    subprocess.run([program, "-n", tmp_path / "_medley"], check=True, timeout=30)
