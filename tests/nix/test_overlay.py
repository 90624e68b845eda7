"""Somebody's own flake, with `overlays.default` over their own nixpkgs."""

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.nix.conftest import Tree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nix

THEIRS = """
{
  inputs.nixpkgs.url = "path:HOSTPKGS";
  inputs.medley.url = "path:MEDLEY";
  inputs.medley.inputs.nixpkgs.follows = "nixpkgs";
  outputs =
    { nixpkgs, medley, ... }:
    let
      theirs = _: before: { uv = before.uv // { outPath = "/theirs"; }; };
      with_ = overlays: import nixpkgs { system = "x86_64-linux"; inherit overlays; };
    in
    {
      packages.x86_64-linux = {
        default = (with_ [ medley.overlays.default ]).medley;
        # As one who has another uv: `final` is what they have in the end.
        other = (with_ [ medley.overlays.default theirs ]).medley;
      };
      added = removeAttrs (with_ [ medley.overlays.default ]) (builtins.attrNames (with_ [ ]));
    };
}
"""


@pytest.fixture
def theirs(tree: Tree, tmp_path: "Path") -> Tree:
    places = {"HOSTPKGS": str(tree.folder.parent / "hostpkgs"), "MEDLEY": str(tree.folder)}
    text = re.sub("|".join(places), lambda name: places[name[0]], THEIRS)
    (tmp_path / "flake.nix").write_text(text, encoding="utf-8")
    return Tree(tmp_path, tree.variables)


def test_an_overlay_adds_medley_and_nothing_else(theirs: Tree) -> None:
    assert theirs.eval("added", "--apply", "builtins.attrNames") == ["medley"]
    program = theirs.build("default") / "bin/medley"
    assert "0." in subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout


def test_it_is_made_of_their_packages_and_knows_its_flake(theirs: Tree, tree: Tree) -> None:
    wrapper = (theirs.build("other") / "bin/medley").read_text(encoding="utf-8")
    assert "MEDLEY_UV-/theirs/bin/uv}" in wrapper
    assert f"MEDLEY_FLAKE-{tree.source()}}}" in wrapper
