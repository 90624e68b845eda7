"""What a development shell gives, and what it must not."""

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.nix.conftest import Tree

pytestmark = pytest.mark.nix

COMPLETION_TARGETS = [
    pytest.param("x86_64-linux", "cpu", None, None, id="cpu"),
    pytest.param("x86_64-linux", "cuda", None, "13.0", id="cuda: torch asks the GPU"),
    pytest.param("x86_64-linux", "rtx", "12.0a", "13.0", id="rtx"),
    pytest.param("aarch64-linux", "cpu", None, None, id="cpu on Arm"),
    pytest.param("aarch64-linux", "cuda", None, "13.0", id="cuda on Arm"),
    pytest.param("aarch64-linux", "spark", "12.1a", "13.0", id="spark"),
    pytest.param("aarch64-linux", "thor", "11.0a", "13.0", id="thor"),
    pytest.param("aarch64-linux", "orin", "8.7", "12.6", id="orin, L4T r36"),
    pytest.param("aarch64-linux", "orin-r39", "8.7", "13.0", id="orin, L4T r39"),
]


def check(environment: dict[str, str], kind: str, arch_list: str | None, cuda: str | None) -> None:
    assert environment["MEDLEY_TOOLKIT"].endswith(f"-medley-toolkit-{kind}")
    assert environment["CC"].startswith("/nix/store/")
    assert environment["CXX"].startswith("/nix/store/")
    assert environment.get("TORCH_CUDA_ARCH_LIST") == arch_list
    home = environment.get("CUDA_HOME")
    assert (home is None) == (cuda is None)
    if home is not None:
        assert home.endswith(f"-cuda-{cuda}-{kind}")
        assert environment["TRITON_PTXAS_PATH"] == f"{home}/bin/ptxas"
        assert environment["TRITON_PTXAS_BLACKWELL_PATH"] == f"{home}/bin/ptxas"
        assert environment["CUDAHOSTCXX"] == environment["CXX"]
    assert not environment.keys() & {"LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "TRITON_LIBDEVICE_PATH"}


@pytest.mark.parametrize(("system", "kind", "arch_list", "cuda"), COMPLETION_TARGETS)
def test_a_shell_declares(
    tree: "Tree", system: str, kind: str, arch_list: str | None, cuda: str | None
) -> None:
    check(tree.environment(f"devShells.{system}.{kind}"), kind, arch_list, cuda)


@pytest.mark.parametrize(("system", "kind", "arch_list", "cuda"), COMPLETION_TARGETS)
def test_a_shell_runs(tree: "Tree", system: str, kind: str, arch_list: str | None, cuda: str | None) -> None:
    """Arm's shells too: over the stand-in they are made of this machine's programs."""
    said = tree.nix("develop", "--ignore-environment", "--system", system, f".#{kind}", "-c", "env").stdout
    assert "=" in said.splitlines()[0], "a shellHook printed something"
    check(dict(line.split("=", 1) for line in said.splitlines() if "=" in line), kind, arch_list, cuda)


def test_the_default_shell_is_cpu(tree: "Tree") -> None:
    assert "-medley-toolkit-cpu\n" in tree.nix("develop", "-c", "env").stdout


@pytest.mark.parametrize(
    "program", ["medley", "uv", "python3", "python3.11", "python3.12", "gcc", "g++", "ninja", "nvcc", "ptxas"]
)
def test_a_shell_has_its_own(tree: "Tree", program: str) -> None:
    said = tree.nix("develop", ".#rtx", "-c", "sh", "-c", f"command -v {program}").stdout
    assert said.startswith("/nix/store/")


def test_python3_is_what_gpus_run(tree: "Tree") -> None:
    host = json.loads((tree.folder.parent / "hostpkgs" / "host.json").read_text())
    if host["pythons"]["3.12"] == host["pythons"]["3.11"]:
        pytest.skip("this machine has no Python 3.12")
    assert tree.nix("develop", ".#rtx", "-c", "python3", "--version").stdout.startswith("Python 3.12")


def test_host_programs_run_inside(tree: "Tree") -> None:
    """They keep the host's loader and libraries."""
    for program in filter(shutil.which, ("ssh", "curl", "ip")):
        said = tree.nix("develop", ".#rtx", "-c", program, "-V", check=False)
        assert said.returncode == 0, said.stderr
    assert "LD_LIBRARY_PATH" not in os.environ


def test_no_file_of_ours_sets_a_library_path() -> None:
    nix = Path(__file__).parents[2] / "nix"
    assert not [path for path in nix.rglob("*.nix") if "LD_LIBRARY_PATH" in path.read_text()]
