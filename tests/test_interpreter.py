import sys
from pathlib import Path

import pytest

from medley import interpreter, uv
from medley.interpreter import Candidate, candidates
from medley.problem import Problem

HERE = "{}.{}".format(*sys.version_info[:2])
NEVER = {"UV_PYTHON_DOWNLOADS": "never"}


def program(path: Path, script: str = "exit 127") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_candidates_in_order(tmp_path: Path) -> None:
    here = [program(tmp_path / folder / name) for name in ("python3.11", "python3") for folder in ("a", "b")]
    old, new = (program(tmp_path / f".pyenv/versions/3.11.{n}/bin/python3.11") for n in (2, 7))
    environ = {
        "PATH": f"{tmp_path}/a::{tmp_path}/none:{tmp_path}/b",
        "MEDLEY_PYTHONS": "3.12=/n/12:3.11=/n/11",
    }
    found = candidates("3.11", pythons={"3.11": "/toolkit/11"}, environ=environ, home=tmp_path)
    assert list(found) == [
        Candidate("/n/11", "MEDLEY_PYTHONS", given=True),
        Candidate("/toolkit/11", "the toolkit", given=True),
        *(Candidate(path, "PATH") for path in here),
        Candidate(new, "pyenv"),
        Candidate(old, "pyenv"),
    ]


def test_what_was_given_for_another_version_is_not_taken(tmp_path: Path) -> None:
    environ = {"MEDLEY_PYTHONS": "3.12=/n/12", "PATH": ""}
    assert list(candidates("3.11", pythons={"3.12": "/t/12"}, environ=environ, home=tmp_path)) == []


def test_this_python() -> None:
    found = interpreter.find(HERE, pythons={HERE: sys.executable}, uv="uv", environ={})
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.path == Path(sys.base_prefix, "bin", found.path.name), "its base, not the virtualenv's"
    assert found.libc.startswith("glibc 2.")
    assert found.implementation == "cpython"


def test_a_shim_that_fails_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / f"python{HERE}")
    real = tmp_path / "real"
    real.mkdir()
    (real / f"python{HERE}").symlink_to(sys.executable)
    found = interpreter.find(HERE, pythons={}, uv="uv", environ={"PATH": f"{tmp_path}:{real}"})
    assert found.version.startswith(HERE)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        pytest.param("exit 127", "exits with 127", id="pyenv's shim"),
        pytest.param("echo hello", "not answer as a Python", id="no Python"),
        pytest.param(
            f"exec {sys.executable} -c \"import json; print(json.dumps({{'version': '3.11.9', "
            "'implementation': 'pypy', 'libc': 'glibc 2.36'}))\"",
            "pypy 3.11.9",
            id="PyPy",
        ),
        pytest.param(
            f"exec {sys.executable} -c \"import json; print(json.dumps({{'version': '3.11.9', "
            "'implementation': 'cpython', 'libc': None}))\"",
            "not glibc",
            id="musl",
        ),
        pytest.param(f'exec {sys.executable} "$@" 3>&1', f"it is cpython {HERE}", id="another version"),
    ],
)
def test_one_that_was_given_must_do(script: str, says: str, tmp_path: Path) -> None:
    wanted = "3.99" if "another" in says or "3>&1" in script else "3.11"
    given = program(tmp_path / "python", script)
    with pytest.raises(Problem) as caught:
        interpreter.find(wanted, pythons={wanted: given}, uv="uv", environ={})
    assert says in caught.value.cause


def test_none_at_all(tmp_path: Path) -> None:
    shim = program(tmp_path / "python3.99")
    environ = {**NEVER, "PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path)}
    with pytest.raises(Problem) as caught:
        interpreter.find("3.99", pythons={}, uv=uv.binary(None), environ=environ)
    assert f"{shim} (PATH): it exits with 127" in caught.value.cause
    assert "UV_PYTHON_DOWNLOADS" in caught.value.cause
    assert "uv python install 3.99" in caught.value.fix
