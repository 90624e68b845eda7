"""`nix flake init`: somebody's own repository, in which the apps find the cluster.toml beside the flake."""

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.nix.conftest import Tree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nix


@pytest.fixture(scope="module")
def theirs(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    folder = tmp_path_factory.mktemp("theirs")
    made = Tree(folder, tree.variables)
    made.nix("flake", "init", "--template", f"path:{tree.folder}")
    made.nix("flake", "lock", "--override-input", "medley", f"path:{tree.folder}")
    return made


def test_it_is_a_whole_repository(theirs: Tree) -> None:
    assert {path.name for path in theirs.folder.iterdir()} == {
        ".envrc",
        ".gitignore",
        "README.md",
        "cluster.toml",
        "flake.lock",
        "flake.nix",
    }


def test_what_it_tells_to_type_is_there(theirs: Tree) -> None:
    texts = [path.read_text(encoding="utf-8") for path in theirs.folder.iterdir() if path.suffix != ".lock"]
    apps = {name for text in texts for name in re.findall(r"nix run \.#([\w-]+)", text)}
    shells = {name for text in texts for name in re.findall(r"nix develop \.#([\w-]+)", text)}
    assert apps >= {"init", "check", "up", "serve"}
    assert apps <= set(theirs.eval("apps.x86_64-linux", "--apply", "builtins.attrNames"))
    assert shells <= set(theirs.eval("devShells.aarch64-linux", "--apply", "builtins.attrNames"))


def test_its_cluster_is_right_and_one_that_is_not_is_found(theirs: Tree, tmp_path: "Path") -> None:
    assert " 0 wrong" in theirs.nix("run", ".#check").stdout
    copy = theirs.copy(tmp_path / "wrong")
    file = copy.folder / "cluster.toml"
    file.write_text(file.read_text().replace("role =", "rule ="), encoding="utf-8")
    said = copy.nix("run", ".#check", check=False)
    assert said.returncode == 1
    assert "rule" in said.stderr


def test_its_own_flake_check_finds_a_wrong_cluster(theirs: Tree, tmp_path: "Path") -> None:
    theirs.nix("flake", "check")
    copy = theirs.copy(tmp_path / "wrong")
    file = copy.folder / "cluster.toml"
    file.write_text(file.read_text().replace("role =", "rule ="), encoding="utf-8")
    assert copy.nix("flake", "check", check=False).returncode != 0


def test_its_apps_take_the_toolkits_of_the_medley_it_pins(theirs: Tree, tree: Tree) -> None:
    program = theirs.eval("apps.x86_64-linux.up.program")
    assert theirs.nix("run", ".#up", "--", "--help").stdout
    assert tree.source() in tree.nix("store", "cat", program).stdout


def test_its_shells_and_package_are_medley_s(theirs: Tree, tree: Tree) -> None:
    said = theirs.nix("develop", ".#cpu", "-c", "medley", "--version").stdout
    assert said.startswith("medley 0.")
    assert theirs.build("medley") == tree.build("medley")


def test_it_needs_nothing_more_than_medley(theirs: Tree) -> None:
    """And no copy of nixpkgs of its own."""
    lock = json.loads((theirs.folder / "flake.lock").read_text(encoding="utf-8"))
    assert lock["nodes"]["root"]["inputs"] == {"medley": "medley"}
