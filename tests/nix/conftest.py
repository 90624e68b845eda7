"""A copy of this tree over the stand-in package set, made once, in which tests type what users type."""

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from medley import storage
from tests.nix import standin

SCRIPT = Path(__file__).with_name("standin.py")
LIMIT_S = 900
LOCK = SCRIPT.parents[2] / "locks" / "dev.txt"


@dataclass(frozen=True)
class Tree:
    """A folder with the flake in it, and the variables that its Nix needs."""

    folder: Path
    variables: dict[str, str]

    def nix(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `nix WORDS` in the folder."""
        said = subprocess.run(
            ["nix", *words],
            cwd=self.folder,
            env=os.environ | self.variables,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert not check or said.returncode == 0, f"{shlex.join(said.args)}\n{said.stderr}"
        return said

    def eval(self, attribute: str, *words: str) -> Any:
        return json.loads(self.nix("eval", "--json", f".#{attribute}", *words).stdout)

    def evaluate(self, expression: str) -> Any:
        return json.loads(self.nix("eval", "--impure", "--json", "--expr", expression).stdout)

    def source(self) -> str:
        """The flake's own store path."""
        return str(json.loads(self.nix("flake", "metadata", "--json").stdout)["path"])

    def nix_store(self, *words: str) -> str:
        return subprocess.run(["nix-store", *words], capture_output=True, text=True, check=True).stdout

    def build(self, attribute: str) -> Path:
        return Path(self.nix("build", "--no-link", "--print-out-paths", f".#{attribute}").stdout.strip())

    def environment(self, attribute: str) -> dict[str, str]:
        """What the derivation of an output declares, without building it."""
        shown = json.loads(self.nix("derivation", "show", f".#{attribute}").stdout)
        shown = shown.get("derivations", shown)  # Nix 2.34 nests them
        (derivation,) = shown.values()
        return dict(derivation["env"])

    def copy(self, folder: Path) -> "Tree":
        shutil.copytree(self.folder, folder)
        return Tree(folder, self.variables)


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """This tree, with the stand-in in nixpkgs' place."""
    if shutil.which("nix") is None:
        pytest.skip("there is no nix on PATH")
    folder = tmp_path_factory.mktemp("nix")
    command = [sys.executable, str(SCRIPT), str(folder), str(_virtualenv())]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    words = [word.partition("=") for word in shlex.split(said.stdout)]
    return Tree(folder / "medley", {name: value for name, equals, value in words if equals})


def _virtualenv() -> Path:
    """One with Python 3.13, on which nixpkgs' medley runs, kept between runs; else the one that runs this."""
    python = Path(standin.python("3.13"))
    if not python.is_file():
        return Path(sys.prefix)
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    folder = Path.home() / ".cache" / "medley-tests" / f"python-3.13-{digest}"
    with storage.lock_file(folder.with_suffix(".lock"), on_wait=lambda: None):
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([python, "-m", "venv", folder], check=True)
            pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--requirement", str(LOCK)]
            subprocess.run(pip, check=True, capture_output=True)
            (folder / "whole").touch()
    return folder


@pytest.fixture
def released(tree: Tree, tmp_path: Path) -> Tree:
    """This tree as it is released, with the real lock, whose nixpkgs cannot be had here."""
    copy = tree.copy(tmp_path / "medley")
    shutil.copy2(SCRIPT.parents[2] / "flake.lock", copy.folder)
    return Tree(copy.folder, copy.variables | {"NIX_CONFIG": "experimental-features = nix-command flakes"})
