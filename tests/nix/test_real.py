"""The flake and examples/nixos over a real nixpkgs tree, where one is there.

    MEDLEY_NIXPKGS=DIR .venv/bin/pytest -m nix tests/nix/test_real.py          five minutes
    MEDLEY_DGX_SPARK=DIR MEDLEY_JETPACK=DIR    trees of nixos-dgx-spark and jetpack-nixos, for the examples

Everything evaluates and nothing is built.
"""

import json
import os
import re
import shutil
import subprocess
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tools import nixos_options

pytestmark = pytest.mark.nix

ROOT = Path(__file__).parents[2]
TREES = {"nixpkgs": "MEDLEY_NIXPKGS", "spark": "MEDLEY_DGX_SPARK", "jetpack": "MEDLEY_JETPACK"}
FLAKE_CHECK_LIMIT_S = 60
LIMIT_S = 900
EVAL = ("nix", "eval", "--impure", "--json", "--offline", "--option", "eval-cache", "false")
ATTRIBUTES: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parent / "attributes.toml").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Real:
    """Store paths of the trees that are there."""

    trees: Mapping[str, str]

    def eval(self, expression: str) -> Any:
        given = "".join(f'{name} = "{path}"; ' for name, path in self.trees.items())
        whole = f"let real = import {ROOT}/tests/nix/real.nix {{ {given}}}; in {expression}"
        return json.loads(run(*EVAL, "--expr", whole))


def run(*words: str) -> str:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def stored(folder: str) -> str:
    """The tree's store path, because a flake outside the store is copied at every command."""
    return run("nix", "store", "add", "--name", "source", str(Path(folder).resolve())).strip()


def tree(name: str) -> str:
    folder = os.environ.get(TREES[name])
    if not folder:
        pytest.skip(f"{TREES[name]} names no tree")
    return stored(folder)


@pytest.fixture(scope="module")
def real() -> Real:
    if shutil.which("nix") is None:
        pytest.skip("there is no nix on PATH")
    return Real({"nixpkgs": tree("nixpkgs")})


def test_every_output_evaluates_on_both_systems(real: Real) -> None:
    words = ("--no-build", "--all-systems", "--offline", "--no-write-lock-file")
    over = ("--override-input", "nixpkgs", f"path:{real.trees['nixpkgs']}")
    began = time.monotonic()
    run("nix", "flake", "check", f"git+file://{ROOT}", *words, *over)
    assert time.monotonic() - began < FLAKE_CHECK_LIMIT_S


@pytest.mark.parametrize(
    ("host", "needs", "units"),
    [
        pytest.param("desk", None, {"serve"}, id="a workstation"),
        pytest.param("spark", "spark", set(), id="a DGX Spark"),
        pytest.param("orin", "jetpack", set(), id="a Jetson Orin"),
        pytest.param("thor", "jetpack", set(), id="a Jetson Thor"),
        pytest.param("spark-1", "spark", {"head", "serve"}, id="the first of two Sparks"),
        pytest.param("spark-2", "spark", {"worker"}, id="the second"),
    ],
)
def test_an_example_is_a_whole_system(real: Real, host: str, needs: str | None, units: set[str]) -> None:
    trees = {**real.trees, **({needs: tree(needs)} if needs else {})}
    found = Real(trees).eval(f'real.hosts."{host}"')
    assert found["system"].endswith(".drv")
    assert found["units"].keys() == {f"medley-{unit}.service" for unit in units}
    assert not [warning for warning in found["warnings"] if "medley" in warning]
    for text in found["units"].values():
        assert 'Environment="MEDLEY_FLAKE="\n' in text
        assert 'Environment="MEDLEY_TOOLKIT=/nix/store/' in text
        assert "\nStateDirectory=medley\n" in text
        assert ("LoadCredential=token:/run/secrets/medley-token" in text) == (
            host.startswith("spark-") and "ray-" in text
        )


def test_the_toolkit_is_part_of_the_system(real: Real) -> None:
    system = real.eval("real.hosts.desk.system")
    closure = run("nix-store", "--query", "--requisites", system)
    assert "-medley-toolkit-rtx.drv" in closure


def test_a_capability_changes_no_part_of_cuda(real: Real) -> None:
    """NVIDIA builds one archive for all chips, so a cache that has it for one has it for all."""
    parts = []
    for kind in ("cuda", "spark", "thor"):
        toolkit = real.eval(f"real.medley.packages.aarch64-linux.toolkit-{kind}.drvPath")
        closure = run("nix-store", "--query", "--requisites", toolkit).split()
        parts.append({path for path in closure if re.search(r"-cuda13\.0-(cuda|lib)\w+-[\d.]+\.drv$", path)})
    assert len(parts[0]) > 8
    assert parts[0] == parts[1] == parts[2]


def test_the_virtual_machines_evaluate(real: Real) -> None:
    assert real.eval("real.virtual")["two-hosts"].endswith("-vm-test-run-medley-two-hosts.drv")


def test_the_option_reference_is_what_nixos_makes_of_the_module(real: Real) -> None:
    found = {option["name"]: option for option in real.eval("real.options")}
    written = {str(option["name"]): option for option in nixos_options.options()}
    assert found.keys() == written.keys()
    for name, option in found.items():
        assert option["type"] == written[name]["type"], name
        assert option["description"] == written[name]["description"], name
        assert option.get("default", {}).get("text") == written[name]["default"], name


def test_a_cross_built_package_runs_nothing(real: Real) -> None:
    hook = real.eval(
        "(real.nixpkgs.legacyPackages.x86_64-linux.pkgsCross.aarch64-multiplatform.callPackage"
        f" {ROOT}/nix/package.nix {{ }}).postInstall"
    )
    assert hook == ""


def test_the_files_of_the_attributes_are_there(real: Real) -> None:
    root = Path(real.trees["nixpkgs"])
    assert {name for name, about in ATTRIBUTES.items() if not (root / about["file"]).is_file()} == set()


def test_the_attributes_are_there(real: Real) -> None:
    names = [name.split(".") for name in ATTRIBUTES]
    found = real.eval(
        'let p = import real.nixpkgs { system = "x86_64-linux"; config.cudaSupport = true; };'
        ' has = path: p.lib.hasAttrByPath (if builtins.head path == "cudaPackages" then'
        ' [ "cudaPackages_13_0" ] ++ builtins.tail path else path) p;'
        f" in map has (builtins.fromJSON ''{json.dumps(names)}'')"
    )
    assert [name for name, there in zip(ATTRIBUTES, found, strict=True) if not there] == []
