"""Apps, typed as users type them."""

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.nix.conftest import Tree

pytestmark = pytest.mark.nix


def test_version(tree: "Tree") -> None:
    assert "0." in tree.nix("run", ".", "--", "--version").stdout


def test_check(tree: "Tree") -> None:
    tree.nix("run", ".#check")


def test_facts(tree: "Tree") -> None:
    assert isinstance(json.loads(tree.nix("run", ".#facts", "--", "--json").stdout), dict)


def test_bare_run_is_medley(tree: "Tree") -> None:
    said = tree.nix("run", ".", "--", "--help").stdout
    assert all(verb in said for verb in tree.eval("lib.verbs"))


def test_every_app_has_help(tree: "Tree") -> None:
    for verb in tree.eval("lib.verbs"):
        assert tree.nix("run", f".#{verb}", "--", "--help").stdout


def test_a_wrong_word_is_exit_2(tree: "Tree") -> None:
    assert tree.nix("run", ".", "--", "no-such-verb", check=False).returncode == 2


def test_an_app_carries_the_flake_uv_and_the_pythons(tree: "Tree") -> None:
    (program,) = (tree.build("checks.x86_64-linux.app-serve") / "bin").iterdir()
    script = program.read_text(encoding="utf-8")
    assert f"MEDLEY_FLAKE='{tree.source()}'" in script
    assert "MEDLEY_UV='/nix/store/" in script
    assert "MEDLEY_PYTHONS='3.11=/nix/store/" in script
    assert ":3.12=/nix/store/" in script


def test_the_flake_that_an_app_carries_builds_its_toolkit(tree: "Tree", tmp_path: "Path") -> None:
    """What medley does once it knows the host; the link is the root that keeps the toolchain."""
    link = tmp_path / "toolkit"
    tree.nix("build", f"{tree.source()}#toolkit-cpu", "--out-link", str(link))
    assert json.loads((link / "toolkit.json").read_text())["kind"] == "cpu"
    assert str(link) in tree.nix_store("--gc", "--print-roots")


def test_python_of_medley_does_not_leak(tree: "Tree") -> None:
    """nixpkgs' wrapper lets through PATH and PYTHONNOUSERSITE, and nothing that another Python obeys."""
    wrapper = (tree.build("medley") / "bin" / "medley").read_text(encoding="utf-8")
    set_by_it = {line.split("=")[0].removeprefix("export ") for line in wrapper.splitlines() if "=" in line}
    assert set_by_it == {"PATH", "PYTHONNOUSERSITE", "MEDLEY_UV", "MEDLEY_FLAKE"}
