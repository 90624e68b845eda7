import sys
from pathlib import Path

import pytest

from medley.environment import interpreter, uv
from medley.environment.interpreter import PythonCandidate, list_candidates
from tests.problems import raises_problem

LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")


def test_the_loader_of_this_python_is_the_one_it_runs_on() -> None:
    loader = interpreter.read_elf_loader(Path(sys.executable).resolve())
    assert loader is not None
    assert str(Path(loader).resolve()) in Path("/proc/self/maps").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "content",
    [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\0" * 60, b"MZ" * 40],
    ids=["empty", "script", "short", "an object file", "another system's"],
)
def test_what_names_no_loader(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert interpreter.read_elf_loader(tmp_path / "file") is None


def test_a_library_names_none() -> None:
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").split()
    libraries = sorted(
        {word for word in maps if ".so" in word and "/ld-" not in word and "libc.so" not in word}
    )
    if not libraries:
        pytest.skip(f"{sys.executable} has loaded no library")
    assert interpreter.read_elf_loader(Path(libraries[0])) is None


@pytest.mark.parametrize(
    ("loader", "hosts"),
    [
        *((each, True) for each in LOADERS),
        ("/nix/store/x-glibc-2.42/lib/ld-linux-x86-64.so.2", False),
        (None, False),
    ],
)
def test_whose_loader(loader: str | None, *, hosts: bool) -> None:
    assert interpreter.is_host_loader(loader) is hosts


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
    found = list_candidates("3.11", pythons={"3.11": "/toolkit/11"}, environ=environ, home=tmp_path)
    assert list(found) == [
        PythonCandidate("/n/11", "MEDLEY_PYTHONS", is_required=True),
        PythonCandidate("/toolkit/11", "the toolkit", is_required=True),
        *(PythonCandidate(path, "PATH") for path in here),
        PythonCandidate(new, "pyenv"),
        PythonCandidate(old, "pyenv"),
    ]


def test_what_was_given_for_another_version_is_not_taken(tmp_path: Path) -> None:
    environ = {"MEDLEY_PYTHONS": "3.12=/n/12", "PATH": ""}
    assert list(list_candidates("3.11", pythons={"3.12": "/t/12"}, environ=environ, home=tmp_path)) == []


def test_this_python() -> None:
    found = interpreter.find_interpreter(HERE, pythons={HERE: sys.executable}, uv="uv")
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.path == Path(sys.base_prefix, "bin", found.path.name), "its base, not the virtualenv's"
    assert found.libc.startswith("glibc 2.")
    assert found.implementation == "cpython"


def test_a_shim_that_fails_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / f"python{HERE}")
    real = tmp_path / "real"
    real.mkdir()
    (real / f"python{HERE}").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}:{real}")
    found = interpreter.find_interpreter(HERE, pythons={}, uv="uv")
    assert found.version.startswith(HERE)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        pytest.param("exit 127", "127", id="pyenv's shim"),
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
        pytest.param(f'exec {sys.executable} "$@" 3>&1', f"cpython {HERE}", id="another version"),
    ],
)
def test_one_that_was_given_must_do(script: str, says: str, tmp_path: Path) -> None:
    wanted = "3.99" if "another" in says or "3>&1" in script else "3.11"
    given = program(tmp_path / "python", script)
    with raises_problem(wanted, cause=(str(given), says), fix="unset MEDLEY_PYTHONS MEDLEY_TOOLKIT"):
        interpreter.find_interpreter(wanted, pythons={wanted: given}, uv="uv")


def test_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = program(tmp_path / "python3.99")
    tool = uv.find_uv(None)
    for name, value in {**NEVER, "PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with raises_problem(
        "3.99",
        cause=(f"{shim} (PATH): ", "127", "UV_PYTHON_DOWNLOADS"),
        fix=("uv python install 3.99", "export MEDLEY_PYTHONS=3.99=/PATH"),
    ):
        interpreter.find_interpreter("3.99", pythons={}, uv=tool)
