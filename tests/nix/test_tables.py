"""What the flake says without nixpkgs."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from medley.cli import VERBS

if TYPE_CHECKING:
    from tests.nix.conftest import Tree

pytestmark = pytest.mark.nix
ROOT = Path(__file__).parents[2]


def test_the_host_tables_need_no_nixpkgs(released: "Tree") -> None:
    written = {path.stem: tomllib.loads(path.read_text()) for path in (ROOT / "hosts").glob("*.toml")}
    assert released.eval("lib.hosts", "--offline") == written


def test_the_lock_is_complete(released: "Tree") -> None:
    released.nix("flake", "lock", "--offline")
    assert (released.folder / "flake.lock").read_bytes() == (ROOT / "flake.lock").read_bytes()


def test_every_verb_is_an_app(released: "Tree") -> None:
    assert set(released.eval("lib.verbs", "--offline")) == {verb for verb in VERBS if " " not in verb}


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        pytest.param("cpu", {}, id="cpu: nothing unfree, nothing of CUDA"),
        pytest.param("cuda", {"cudaSupport": True}, id="cuda: nixpkgs' own capabilities"),
        pytest.param("rtx", {"cudaSupport": True, "cudaCapabilities": ["12.0"]}, id="rtx"),
        pytest.param("spark", {"cudaSupport": True, "cudaCapabilities": ["12.1"]}, id="spark"),
        pytest.param("thor", {"cudaSupport": True, "cudaCapabilities": ["11.0"]}, id="thor"),
        pytest.param("orin", {"cudaSupport": True, "cudaCapabilities": ["8.7"]}, id="orin"),
    ],
)
def test_nixpkgs_is_told_the_capability_of_one_kind(
    released: "Tree", kind: str, config: dict[str, object]
) -> None:
    assert released.eval("lib", "--offline", "--apply", f"lib: lib.config lib.hosts.{kind}") == config
