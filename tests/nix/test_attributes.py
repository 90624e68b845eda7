"""Every attribute that the stand-in offers is in a file of nixpkgs', and the flake uses it."""

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.nix.conftest import Tree

pytestmark = pytest.mark.nix

ROOT = Path(__file__).parents[2]
ATTRIBUTES: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parent / "attributes.toml").read_text(encoding="utf-8")
)
# Sets of which what is in them is listed, by how each is had.
SETS = {
    "lib": "p.lib",
    "lib.fileset": "p.lib.fileset",
    "lib.licenses": "p.lib.licenses",
    "lib.platforms": "p.lib.platforms",
    "dockerTools": "p.dockerTools",
    "stdenv": "p.stdenv",
    "python313.pkgs": "p.python313.pkgs",
    "_cuda": "p._cuda",
    "_cuda.lib": "p._cuda.lib",
    "cudaPackages": "(p.cudaPackages_13_0.overrideScope (_: _: { cuda_compat = null; }))",
}
# Used by what is not the flake's text: names that are made out of hosts/*.toml, the stand-in's own tests.
ELSEWHERE = {"lib.escapeShellArg", *(name for name in ATTRIBUTES if name.startswith("cudaPackages_"))}


def offered(tree: "Tree") -> set[str]:
    import_ = f"import {tree.folder.parent / 'hostpkgs'} {{ config.cudaSupport = true; }}"
    sets = " ".join(f'"{name}" = builtins.attrNames {value};' for name, value in {"": "p", **SETS}.items())
    expression = f"let p = {import_}; in {{ {sets} }}"
    found: dict[str, Any] = tree.evaluate(expression)
    names = {f"{name}.{each}" if name else each for name, all_ in found.items() for each in all_}
    return (names | {"python313.withPackages"}) - SETS.keys()


def test_the_list_is_what_the_stand_in_offers(tree: "Tree") -> None:
    assert offered(tree) == ATTRIBUTES.keys()


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_has_a_source(name: str) -> None:
    about = ATTRIBUTES[name]
    assert about.keys() <= {"file", "revision", "seen", "note"}
    assert re.fullmatch(r"(pkgs|lib)/.*\.(nix|sh)", about["file"])
    assert about["seen"] in {"read", "listed"}
    assert re.fullmatch("[0-9a-f]{40}", about["revision"]) if "revision" in about else about["note"]


@pytest.mark.parametrize("name", sorted(ATTRIBUTES.keys() - ELSEWHERE))
def test_the_flake_uses_it(name: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "nix").glob("*.nix")]
    last = re.escape(name.rpartition(".")[2])
    code = (re.sub(r"(?m)(^|\s)# .*", "", text) for text in texts)
    assert any(re.search(rf"(?<![\w-]){last}(?![\w-])", text) for text in code)


def test_the_sets_of_cuda_are_those_of_the_hosts_and_of_the_stand_in_s_tests() -> None:
    hosts = [tomllib.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "hosts").glob("*.toml")]
    named = {host["toolkit"]["cuda"].replace(".", "_") for host in hosts if "toolkit" in host}
    offered = {name.removeprefix("cudaPackages_") for name in ATTRIBUTES if name.startswith("cudaPackages_")}
    assert named <= offered
    tests = Path(__file__).with_name("test_standin.py").read_text(encoding="utf-8")
    assert all(f'"{version.replace("_", ".")}"' in tests for version in offered - named)
