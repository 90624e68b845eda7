"""`nix flake check` passes, and fails where it must."""

import re
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.nix.conftest import Tree

pytestmark = pytest.mark.nix


def test_the_flake_check_passes(tree: "Tree") -> None:
    tree.nix("flake", "check")


def test_a_broken_test_fails_the_flake_check(tree: "Tree", tmp_path: "Path") -> None:
    copy = tree.copy(tmp_path / "medley")
    shutil.rmtree(copy.folder / "tests")  # that they pass is seen above, and takes minutes
    (copy.folder / "tests").mkdir()
    (copy.folder / "tests/test_broken.py").write_text("def test_broken() -> None:\n    assert False\n")
    said = copy.nix("flake", "check", "--keep-going", check=False)
    assert said.returncode != 0
    assert _fails("medley-tests", said.stderr)


@pytest.mark.parametrize(
    ("file", "text", "culprit"),
    [
        pytest.param("hosts/cpu.toml", 'devise = "cpu"\n', "tables", id="a table with a typo"),
        pytest.param("tests/nix/broken.nix", "{ }: undefined\n", "syntax", id="a Nix file"),
    ],
)
def test_what_is_broken_fails_its_check(
    tree: "Tree", tmp_path: "Path", file: str, text: str, culprit: str
) -> None:
    copy = _broken(tree, tmp_path, file, text)
    said = copy.nix("build", "--no-link", f".#checks.x86_64-linux.{culprit}", check=False)
    assert said.returncode != 0
    assert _fails(f"medley-{culprit}", said.stderr)


@pytest.mark.parametrize("part", ["include/crt", "include/cuda_runtime.h", "lib/libcudart_static.a"])
def test_a_toolkit_looks_for_what_a_join_may_lose(tree: "Tree", tmp_path: "Path", part: str) -> None:
    copy = tree.copy(tmp_path / "medley")
    path = copy.folder / "nix/cuda.nix"
    path.write_text(
        path.read_text().replace("postBuild = ''\n", f"postBuild = ''\n      rm -r $out/{part}\n")
    )
    said = copy.nix("build", "--no-link", ".#toolkit-rtx", check=False)
    assert said.returncode != 0
    assert "toolkit-rtx: there is no /nix/store/" in said.stderr
    assert f"-cuda-13.0-rtx/{part}" in said.stderr


def _broken(tree: "Tree", folder: "Path", file: str, text: str) -> "Tree":
    copy = tree.copy(folder / "medley")
    path = copy.folder / file
    path.write_text(text + (path.read_text() if path.exists() else ""))
    return copy


def _fails(culprit: str, said: str) -> bool:
    """Nix 2.34 says the first, 2.26 the second."""
    return bool(re.search(rf"(Cannot build|builder for) '/nix/store/\w+-{culprit}\.drv'", said))


def test_a_module_that_is_not_declared_fails_the_package(tree: "Tree", tmp_path: "Path") -> None:
    copy = tree.copy(tmp_path / "medley")
    path = copy.folder / "pyproject.toml"
    path.write_text(path.read_text().replace('"httpx>=0.27",', '"httpx>=0.27", "paramiko>=3",'))
    said = copy.nix("build", "--no-link", ".#medley", check=False)
    assert "paramiko not installed" in said.stderr
