"""The stand-in refuses what nixpkgs refuses, so that a name or mix nobody checked cannot slip in."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.nix.conftest import Tree

pytestmark = pytest.mark.nix

ARM, X86 = "aarch64-linux", "x86_64-linux"
SOUND = {"cudaSupport": "true", "allowUnfreePredicate": "plain._cuda.lib.allowUnfreeCudaPredicate"}


def evaluate(tree: "Tree", expression: str) -> str:
    """What the stand-in says to an expression over `hostpkgs` and `plain`: a value, or why not."""
    names = f"let hostpkgs = import {tree.folder.parent / 'hostpkgs'}; plain = hostpkgs {{ }}; in "
    said = tree.nix("eval", "--impure", "--raw", "--expr", names + expression, check=False)
    return said.stderr if said.returncode else said.stdout


def nvcc(tree: "Tree", version: str, config: dict[str, str], system: str = X86) -> str:
    """The compiler of a CUDA version, from nixpkgs imported with a configuration."""
    given = " ".join(f"{name} = {value};" for name, value in config.items())
    packages = f'(hostpkgs {{ system = "{system}"; config = {{ {given} }}; }})'
    name = "cudaPackages_" + version.replace(".", "_")
    scope = f"({packages}.{name}.overrideScope (_: _: {{ cuda_compat = null; }}))"
    return evaluate(tree, f"{scope}.cuda_nvcc.drvPath")


def listed(capabilities: list[str]) -> str:
    return "[ " + " ".join(f'"{capability}"' for capability in capabilities) + " ]"


@pytest.mark.parametrize(
    ("system", "version", "capabilities"),
    [
        pytest.param(X86, "13.0", [], id="defaults"),
        pytest.param(X86, "13.0", ["12.0"], id="rtx"),
        pytest.param(ARM, "13.0", ["12.1"], id="spark"),
        pytest.param(ARM, "13.0", ["11.0"], id="thor"),
        pytest.param(ARM, "12.6", ["8.7"], id="orin r36"),
        pytest.param(ARM, "13.0", ["8.7"], id="orin r39"),
        pytest.param(ARM, "13.2", ["8.7"], id="orin r39, a later minor"),
    ],
)
def test_right(tree: "Tree", system: str, version: str, capabilities: list[str]) -> None:
    assert nvcc(tree, version, SOUND | {"cudaCapabilities": listed(capabilities)}, system).endswith(".drv")


@pytest.mark.parametrize(
    ("system", "version", "capabilities", "why"),
    [
        pytest.param(X86, "12.6", ["8.7"], "to be aarch64-linux", id="a Jetson's capability on x86"),
        pytest.param(X86, "13.0", ["11.0"], "to be aarch64-linux", id="Thor's on x86"),
        pytest.param(
            ARM, "12.6", ["8.7", "9.0"], "cannot be specified with other", id="Orin's mixed with another"
        ),
        pytest.param(ARM, "12.9", ["11.0"], "too new for CUDA 12.9", id="Thor before CUDA 13"),
        pytest.param(ARM, "13.0", ["10.1"], "too old for CUDA 13.0", id="Thor's first number"),
        pytest.param(X86, "12.6", ["12.0"], "too new for CUDA 12.6", id="RTX before its CUDA"),
        pytest.param(ARM, "12.8", ["12.1"], "too new for CUDA 12.8", id="Spark before its CUDA"),
        pytest.param(X86, "13.0", ["12.9"], "unrecognized CUDA capabilities", id="no such capability"),
        pytest.param(X86, "13.9", ["12.0"], "attribute 'cudaPackages_13_9' missing", id="no such set"),
    ],
)
def test_wrong(tree: "Tree", system: str, version: str, capabilities: list[str], why: str) -> None:
    assert why in nvcc(tree, version, SOUND | {"cudaCapabilities": listed(capabilities)}, system)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        pytest.param({"allowUnfreePredicate": "_: false"}, "unfree license", id="unfree"),
        pytest.param({"cudaSupport": "false"}, "marked as broken", id="without cudaSupport"),
    ],
)
def test_refused(tree: "Tree", config: dict[str, str], why: str) -> None:
    assert why in nvcc(tree, "13.0", SOUND | config)


def test_nccl_is_refused_for_orin(tree: "Tree") -> None:
    config = '{ cudaSupport = true; cudaCapabilities = [ "8.7" ]; allowUnfreePredicate = _: true; }'
    packages = f'(hostpkgs {{ system = "{ARM}"; config = {config}; }})'
    scope = f"({packages}.cudaPackages_12_6.overrideScope (_: _: {{ cuda_compat = null; }}))"
    assert "not available on the requested" in evaluate(tree, f"{scope}.nccl.drvPath")


def test_cuda_compat_must_be_nulled(tree: "Tree") -> None:
    assert "missing" in evaluate(tree, "plain.cudaPackages_12_6.cuda_nvcc.drvPath")


@pytest.mark.parametrize("name", ["cowsay", "cudaPackages", "python3", "python313.pkgs.torch", "lib.mkIf"])
def test_a_name_nobody_checked_is_an_error(tree: "Tree", name: str) -> None:
    assert "missing" in evaluate(tree, f"plain.{name}")
