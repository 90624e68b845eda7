import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from medley import store, toolkit
from medley.problem import Problem

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
    found = toolkit.parse(json.dumps(TABLE), "toolkit.json")
    assert found.pythons["3.12"].endswith("python3.12")
    assert found.loader
    assert found.loader.libraries == ("/l",)
    without = {name: value for name, value in TABLE.items() if name != "loader"}
    assert toolkit.parse(json.dumps(without), "toolkit.json").loader is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("{", "no JSON object", id="no JSON object"),
        pytest.param("[]", "no toolkit", id="no table"),
        pytest.param(json.dumps({**TABLE, "uv": 1}), "'uv' is wrong", id="a wrong type"),
        pytest.param(json.dumps({**TABLE, "paths": []}), "rename it to 'path'", id="a typo"),
        pytest.param(json.dumps({"kind": "cpu"}), "'variables' is missing", id="keys that lack"),
    ],
)
def test_what_is_no_toolkit(text: str, says: str) -> None:
    with pytest.raises(Problem) as caught:
        toolkit.parse(text, "toolkit.json")
    assert says in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "toolkit.json").write_text(json.dumps(TABLE))
    return tmp_path


def test_the_shells_toolkit_comes_first(folder: Path) -> None:
    environ = {"MEDLEY_TOOLKIT": str(folder), "MEDLEY_FLAKE": "/nowhere"}
    assert toolkit.find("thor", environ=environ) == toolkit.read(folder)
    assert toolkit.present("thor", environ=environ) == toolkit.read(folder)


@pytest.mark.parametrize("environ", [{}, {"MEDLEY_TOOLKIT": ""}], ids=["none", "empty"])
def test_without_nix(environ: Mapping[str, str]) -> None:
    assert toolkit.find("thor", environ=environ) is None


def test_a_shell_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no toolkit in"):
        toolkit.find("thor", environ={"MEDLEY_TOOLKIT": str(tmp_path)})


def test_the_flakes_is_made_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    environ = {"MEDLEY_FLAKE": "/nix/store/x-source"}
    assert toolkit.present("thor", environ=environ) is None
    link = toolkit.root("thor", environ["MEDLEY_FLAKE"])
    store.make(link.parent)
    link.symlink_to(folder)
    assert toolkit.find("thor", environ=environ) == toolkit.read(folder)


def test_nccl_is_kept_apart(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    environ = {"MEDLEY_FLAKE": "/nix/store/x-source"}
    assert toolkit.nccl_present("orin", environ=environ) is None
    link = toolkit.root("nccl-orin", environ["MEDLEY_FLAKE"])
    store.make(link.parent)
    (folder / "lib").mkdir()
    (folder / "lib/libnccl.so.2").touch()
    link.symlink_to(folder)
    assert toolkit.nccl("orin", environ=environ) == link / "lib/libnccl.so.2"
    assert toolkit.nccl("orin", environ={**environ, "MEDLEY_NCCL": "/mine.so"}) == Path("/mine.so")
    assert toolkit.nccl("orin", environ={}) is None


def test_the_command_of_nix() -> None:
    command = toolkit.realise("/nix/store/x-source", "toolkit-spark", Path("/cache/toolkits/spark-1"))
    assert str(command) == (
        "nix --extra-experimental-features 'nix-command flakes' build '/nix/store/x-source#toolkit-spark' "
        "--out-link /cache/toolkits/spark-1"
    )
