"""The driver's libcuda in a folder of its own, and who is told of it."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from medley import config, storage
from medley.environment import toolkit, tools
from medley.environment.patches import Preload
from medley.environment.toolkit import LIBCUDA_VARIABLE, Toolkit, list_toolkit_variables
from medley.host.kind import Kind
from medley.host_schema import Driver, HostTable
from tests.environment.driver_trees import begin
from tests.problems import raises_problem

TOOLKIT = Toolkit(kind="rtx", variables={"CC": "/n/gcc"}, path=(), preload=(), pythons={}, uv="/n/uv")


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MEDLEY_TOOLKIT", "MEDLEY_FLAKE", "MEDLEY_NCCL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a system that holds libcuda among other things."""
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(LIBCUDA_VARIABLE, raising=False)
    folder = tmp_path / "usr" / "lib"
    folder.mkdir(parents=True)
    for name in ("libcuda.so.580.95.05", "libc.so.6"):
        (folder / name).write_bytes(begin(os.uname().machine))
    (folder / "libcuda.so.1").symlink_to("libcuda.so.580.95.05")
    return folder


def host(*folders: Path, name: str = "rtx") -> HostTable:
    there = Driver(shared_directories=tuple(map(str, folders)))
    return config.load_hosts()[name].replace(driver=there)


def told(chain: Toolkit | None) -> Path | None:
    return Path(chain.variables[LIBCUDA_VARIABLE]) if chain and LIBCUDA_VARIABLE in chain.variables else None


def test_it_holds_libcuda_and_nothing_else(system: Path, tmp_path: Path) -> None:
    folder = told(toolkit.add_libcuda(TOOLKIT, host(system)))
    assert folder
    assert folder.is_relative_to(tmp_path / "cache")
    held = {each.name: str(each.readlink()) for each in folder.iterdir()}
    assert held == dict.fromkeys(("libcuda.so.1", "libcuda.so"), f"{system}/libcuda.so.1")


def test_it_is_made_once_and_outlasts_an_upgrade(system: Path) -> None:
    folder = told(toolkit.add_libcuda(TOOLKIT, host(system)))
    assert folder
    before = (folder / "libcuda.so").lstat()
    (system / "libcuda.so.590.1").write_bytes(begin(os.uname().machine))
    (system / "libcuda.so.580.95.05").unlink()
    (system / "libcuda.so.1").unlink()
    (system / "libcuda.so.1").symlink_to("libcuda.so.590.1")
    assert told(toolkit.add_libcuda(TOOLKIT, host(system))) == folder
    assert (folder / "libcuda.so").resolve().name == "libcuda.so.590.1"
    assert (folder / "libcuda.so").lstat().st_ino == before.st_ino


def test_a_driver_that_moved_has_another_and_a_wrong_link_is_made_right(system: Path, tmp_path: Path) -> None:
    first = told(toolkit.add_libcuda(TOOLKIT, host(system)))
    moved = tmp_path / "opt"
    system.rename(moved)
    second = told(toolkit.add_libcuda(TOOLKIT, host(system, moved)))
    assert first
    assert second
    assert first != second
    (second / "libcuda.so").unlink()
    (second / "libcuda.so").symlink_to("/elsewhere")
    toolkit.add_libcuda(TOOLKIT, host(system, moved))
    assert str((second / "libcuda.so").readlink()) == f"{moved}/libcuda.so.1"


def test_who_is_told_nothing(system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert toolkit.add_libcuda(None, host(system)) is None, "without a toolchain of Nix's"
    assert toolkit.add_libcuda(TOOLKIT, host(system, name="cpu")) == TOOLKIT
    assert toolkit.add_libcuda(TOOLKIT, host(tmp_path)) == TOOLKIT, "without a driver"
    monkeypatch.setenv(LIBCUDA_VARIABLE, "/mine")
    assert toolkit.add_libcuda(TOOLKIT, host(system)) == TOOLKIT
    assert not (tmp_path / "cache").exists()


def test_a_dry_run_names_it_and_makes_nothing(system: Path, tmp_path: Path) -> None:
    folder = told(toolkit.add_libcuda(TOOLKIT, host(system), can_write=False))
    assert folder
    assert not (tmp_path / "cache").exists()
    assert folder == told(toolkit.add_libcuda(TOOLKIT, host(system)))


def test_it_has_a_reason_of_its_own(system: Path) -> None:
    chain = toolkit.add_libcuda(TOOLKIT, host(system))
    assert chain
    why = {each.name: each.why for each in list_toolkit_variables(chain.variables, (), "")}
    assert "libcuda only" in why[LIBCUDA_VARIABLE]
    assert why["CC"] != why[LIBCUDA_VARIABLE]


def test_an_engine_gets_it(system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toolkit.json").write_text(TOOLKIT.to_json())
    monkeypatch.setenv("MEDLEY_TOOLKIT", str(tmp_path))
    (tmp_path / "own" / "bin").mkdir(parents=True)
    for name in ("python", "vllm"):
        (tmp_path / "own" / "bin" / name).touch()
    there = Kind("rtx", host(system), "")
    for dry_run in (False, True):
        settings = tools.prepare_tools(there, str(tmp_path / "own"), dry_run=dry_run).toolchain_variables
        assert set(settings) == {"CC", LIBCUDA_VARIABLE}


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
    folder = told(toolkit.add_libcuda(TOOLKIT, host(system)))
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
    nix = Preload.collect(TOOLKIT, Driver(directories=("/nothing",)))
    there, bare = Kind("rtx", host(system), ""), Kind("rtx", host(tmp_path), "")
    tools.require_driver(there, nix)
    tools.require_driver(bare, Preload())
    tools.require_driver(Kind("cpu", host(tmp_path, name="cpu"), ""), nix)
    with raises_problem("NVIDIA", cause=("libcuda.so.1", str(tmp_path)), fix="sudo ubuntu-drivers install"):
        tools.require_driver(bare, nix)


TABLE: dict[str, Any] = {
    "kind": "thor",
    "variables": {"CUDA_HOME": "/nix/store/c", "CC": "/nix/store/gcc/bin/gcc"},
    "path": ["/nix/store/c/bin"],
    "preload": ["/nix/store/gcc-lib/lib/libstdc++.so.6"],
    "pythons": {"3.12": "/nix/store/p/bin/python3.12"},
    "uv": "/nix/store/uv/bin/uv",
    "loader": {
        "interpreter": "/nix/store/libc/ld.so",
        "patchelf": "/nix/store/p/patchelf",
        "libraries": ["/l"],
    },
}


def test_parse() -> None:
    found = toolkit.parse_toolkit(json.dumps(TABLE), "toolkit.json")
    assert found.pythons["3.12"].endswith("python3.12")
    assert found.loader
    assert found.loader.libraries == ("/l",)
    without = {name: value for name, value in TABLE.items() if name != "loader"}
    assert toolkit.parse_toolkit(json.dumps(without), "toolkit.json").loader is None


BUILD = "point MEDLEY_TOOLKIT at the result of `nix build .#toolkit-KIND`"


@pytest.mark.parametrize(
    ("text", "name", "fix"),
    [
        pytest.param("{", "toolkit.json ", BUILD, id="no JSON object"),
        pytest.param("[]", "toolkit.json ", BUILD, id="no table"),
        pytest.param(
            json.dumps({**TABLE, "uv": 1}),
            "toolkit.json: 'uv' ",
            "fix uv in toolkit.json",
            id="a wrong type",
        ),
        pytest.param(
            json.dumps({**TABLE, "paths": []}), "toolkit.json: 'paths' ", "rename it to 'path'", id="a typo"
        ),
        pytest.param(
            json.dumps({"kind": "cpu"}),
            "toolkit.json: 'variables' ",
            "add 'variables = …' to toolkit.json",
            id="keys that lack",
        ),
    ],
)
def test_what_is_no_toolkit(text: str, name: str, fix: str) -> None:
    with raises_problem(name, fix=fix):
        toolkit.parse_toolkit(text, "toolkit.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "toolkit.json").write_text(json.dumps(TABLE))
    return tmp_path


def test_the_shells_toolkit_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_TOOLKIT", str(folder))
    monkeypatch.setenv("MEDLEY_FLAKE", "/nowhere")
    assert toolkit.find_toolkit("thor") == toolkit.read_toolkit(folder)
    assert toolkit.find_toolkit("thor", can_build=False) == toolkit.read_toolkit(folder)


@pytest.mark.parametrize("named", [None, ""], ids=["none", "empty"])
def test_without_nix(named: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if named is not None:
        monkeypatch.setenv("MEDLEY_TOOLKIT", named)
    assert toolkit.find_toolkit("thor") is None
    assert toolkit.find_nccl("orin") is None


def test_a_shell_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_TOOLKIT", str(tmp_path))
    with raises_problem(str(tmp_path), cause="toolkit.json: No such file", fix="unset MEDLEY_TOOLKIT"):
        toolkit.find_toolkit("thor")


def test_the_flakes_is_made_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MEDLEY_FLAKE", "/nix/store/x-source")
    assert toolkit.find_toolkit("thor", can_build=False) is None
    link = toolkit.get_root_link("thor", "/nix/store/x-source")
    storage.make_folder(link.parent)
    link.symlink_to(folder)
    assert toolkit.find_toolkit("thor") == toolkit.read_toolkit(folder)


def test_nccl_is_kept_apart(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MEDLEY_FLAKE", "/nix/store/x-source")
    assert toolkit.find_nccl("orin", can_build=False) is None
    link = toolkit.get_root_link("nccl-orin", "/nix/store/x-source")
    storage.make_folder(link.parent)
    (folder / "lib").mkdir()
    (folder / "lib/libnccl.so.2").touch()
    link.symlink_to(folder)
    assert toolkit.find_nccl("orin") == link / "lib/libnccl.so.2"
    monkeypatch.setenv("MEDLEY_NCCL", "/mine.so")
    assert toolkit.find_nccl("orin") == Path("/mine.so")


def test_the_command_of_nix() -> None:
    command = toolkit.build_realize_command(
        "/nix/store/x-source", "toolkit-spark", Path("/cache/toolkits/spark-1")
    )
    assert str(command) == (
        "nix --extra-experimental-features 'nix-command flakes' build '/nix/store/x-source#toolkit-spark' "
        "--out-link /cache/toolkits/spark-1"
    )
