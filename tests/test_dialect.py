"""An engine asked for its flags: here a small program with a parser of its own, as vLLM's is argparse's."""

import sys
from pathlib import Path

import pytest

from medley.dialect import require_known
from medley.engine import vllm
from medley.problem import Problem

ENGINE = f"""#!{sys.executable}
import argparse, pathlib, sys
pathlib.Path(__file__).with_name("asked").open("a").write("x")
parser = argparse.ArgumentParser()
for number in range({{count}}):
    parser.add_argument(f"--flag-{{{{number}}}}", f"-f{{{{number}}}}", help="as --other does")
parser.parse_args(["--help"])
"""


@pytest.fixture
def binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    return engine(tmp_path / "env", 400)


def engine(folder: Path, count: int) -> Path:
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "vllm"
    program.write_text(ENGINE.format(count=count).replace("{{", "{").replace("}}", "}"))
    program.chmod(0o755)
    return folder / "bin"


def test_it_is_asked_once(binary: Path) -> None:
    for _ in range(3):
        require_known(vllm, binary, ("--flag-7", "1", "-f8"))
    assert (binary / "asked").read_text() == "x"


def test_it_is_not_asked_where_no_flag_is_given(binary: Path) -> None:
    require_known(vllm, binary, ())
    require_known(vllm, binary, ("--flag-7",), ask=False)
    assert not (binary / "asked").exists()


def test_a_flag_that_it_does_not_know_is_a_problem_with_the_nearest(binary: Path) -> None:
    with pytest.raises(Problem) as caught:
        require_known(vllm, binary, ("--falg-7", "1", "--other"))
    assert caught.value.what == "vLLM does not know --falg-7, --other"
    assert "--falg-7: --flag-7 is the nearest there is" in caught.value.fix


def test_another_version_is_asked_anew(binary: Path) -> None:
    require_known(vllm, binary, ("--flag-7",))
    (binary.parent / "lib" / "python3.12" / "site-packages" / "vllm-9.dist-info").mkdir(parents=True)
    require_known(vllm, binary, ("--flag-7",))
    assert (binary / "asked").read_text() == "xx"


def test_a_program_whose_help_says_little_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    require_known(vllm, engine(tmp_path / "small", 3), ("--anything",))
