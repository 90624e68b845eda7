"""The driver's libcuda in a folder of its own, and who is told of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from medley import config, libcuda, tools
from medley.kind import Kind
from medley.preload import Preload
from medley.problem import Problem
from medley.tables import Driver, Host
from medley.toolkit import Toolkit
from medley.variables import LIBCUDA, of_toolkit
from tests.driver_trees import begin

TOOLKIT = Toolkit(kind="rtx", variables={"CC": "/n/gcc"}, path=(), preload=(), pythons={}, uv="/n/uv")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a system that holds libcuda among other things."""
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(LIBCUDA, raising=False)
    folder = tmp_path / "usr" / "lib"
    folder.mkdir(parents=True)
    for name in ("libcuda.so.580.95.05", "libc.so.6"):
        (folder / name).write_bytes(begin(os.uname().machine))
    (folder / "libcuda.so.1").symlink_to("libcuda.so.580.95.05")
    return folder


def host(*folders: Path, name: str = "rtx") -> Host:
    there = Driver(shared_directories=tuple(map(str, folders)))
    return config.hosts()[name].model_copy(update={"driver": there})


def told(chain: Toolkit | None) -> Path | None:
    return Path(chain.variables[LIBCUDA]) if chain and LIBCUDA in chain.variables else None


def test_it_holds_libcuda_and_nothing_else(system: Path, tmp_path: Path) -> None:
    folder = told(libcuda.given(TOOLKIT, host(system)))
    assert folder
    assert folder.is_relative_to(tmp_path / "cache")
    held = {each.name: str(each.readlink()) for each in folder.iterdir()}
    assert held == dict.fromkeys(("libcuda.so.1", "libcuda.so"), f"{system}/libcuda.so.1")


def test_it_is_made_once_and_outlasts_an_upgrade(system: Path) -> None:
    folder = told(libcuda.given(TOOLKIT, host(system)))
    assert folder
    before = (folder / "libcuda.so").lstat()
    (system / "libcuda.so.590.1").write_bytes(begin(os.uname().machine))
    (system / "libcuda.so.580.95.05").unlink()
    (system / "libcuda.so.1").unlink()
    (system / "libcuda.so.1").symlink_to("libcuda.so.590.1")
    assert told(libcuda.given(TOOLKIT, host(system))) == folder
    assert (folder / "libcuda.so").resolve().name == "libcuda.so.590.1"
    assert (folder / "libcuda.so").lstat().st_ino == before.st_ino


def test_a_driver_that_moved_has_another_and_a_wrong_link_is_made_right(system: Path, tmp_path: Path) -> None:
    first = told(libcuda.given(TOOLKIT, host(system)))
    moved = tmp_path / "opt"
    system.rename(moved)
    second = told(libcuda.given(TOOLKIT, host(system, moved)))
    assert first
    assert second
    assert first != second
    (second / "libcuda.so").unlink()
    (second / "libcuda.so").symlink_to("/elsewhere")
    libcuda.given(TOOLKIT, host(system, moved))
    assert str((second / "libcuda.so").readlink()) == f"{moved}/libcuda.so.1"


def test_who_is_told_nothing(system: Path, tmp_path: Path) -> None:
    assert libcuda.given(None, host(system)) is None, "without a toolchain of Nix's"
    assert libcuda.given(TOOLKIT, host(system, name="cpu")) == TOOLKIT
    assert libcuda.given(TOOLKIT, host(tmp_path)) == TOOLKIT, "without a driver"
    assert libcuda.given(TOOLKIT, host(system), environ={LIBCUDA: "/mine"}) == TOOLKIT
    assert not (tmp_path / "cache").exists()


def test_a_dry_run_names_it_and_makes_nothing(system: Path, tmp_path: Path) -> None:
    folder = told(libcuda.given(TOOLKIT, host(system), make=False))
    assert folder
    assert not (tmp_path / "cache").exists()
    assert folder == told(libcuda.given(TOOLKIT, host(system)))


def test_it_has_a_reason_of_its_own(system: Path) -> None:
    chain = libcuda.given(TOOLKIT, host(system))
    assert chain
    why = {each.name: each.why for each in of_toolkit(chain.variables, (), "")}
    assert "libcuda alone" in why[LIBCUDA]
    assert why["CC"] != why[LIBCUDA]


def test_an_engine_gets_it(system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toolkit.json").write_text(TOOLKIT.model_dump_json())
    monkeypatch.setenv("MEDLEY_TOOLKIT", str(tmp_path))
    (tmp_path / "own" / "bin").mkdir(parents=True)
    for name in ("python", "vllm"):
        (tmp_path / "own" / "bin" / name).touch()
    there = Kind("rtx", host(system), "")
    for prepare in (tools.ready, tools.expected):
        settings = prepare(there, str(tmp_path / "own")).settings
        assert set(settings) == {"CC", LIBCUDA}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, to link")
def test_what_is_linked_against_it_needs_libcuda_by_its_name_alone(tmp_path: Path, system: Path) -> None:
    """As a Jetson's libcuda is, which needs a library that is not in that folder."""

    def shared(name: str, code: str, *more: str) -> None:
        (tmp_path / "a.c").write_text(code)
        words = ("gcc", "-shared", "-fPIC", "-O3", "-o", f"{tmp_path}/{name}", f"{tmp_path}/a.c", *more)
        subprocess.run(words, check=True)

    shared("usr/lib/libnvos.so", "int os(void) { return 4; }", "-Wl,-soname,libnvos.so")
    (system / "libcuda.so.580.95.05").unlink()
    shared(
        "usr/lib/libcuda.so.580.95.05",
        "int os(void); int cuda(void) { return os(); }",
        *("-Wl,-soname,libcuda.so.1", f"-L{system}", "-l:libnvos.so"),
    )
    folder = told(libcuda.given(TOOLKIT, host(system)))
    for wanted in ("-l:libcuda.so.1", "-lcuda"):
        shared("kernel.so", "int cuda(void); int go(void) { return cuda(); }", wanted, f"-L{folder}")
        said = subprocess.run(
            ["readelf", "-d", tmp_path / "kernel.so"], capture_output=True, text=True, check=True
        )
        assert "[libcuda.so.1]" in said.stdout
        assert "RUNPATH" not in said.stdout
        assert "libnvos" not in said.stdout


def test_a_python_of_nix_without_a_driver_is_a_problem_at_once(system: Path, tmp_path: Path) -> None:
    """Where nothing would find it but medley; before an environment is built."""
    nix = Preload.of(TOOLKIT, Driver(directories=("/nothing",)))
    there, bare = Kind("rtx", host(system), ""), Kind("rtx", host(tmp_path), "")
    tools.require_driver(there, nix)
    tools.require_driver(bare, Preload())
    tools.require_driver(Kind("cpu", host(tmp_path, name="cpu"), ""), nix)
    with pytest.raises(Problem, match="is not found"):
        tools.require_driver(bare, nix)
