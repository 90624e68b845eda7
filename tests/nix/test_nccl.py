"""NCCL for a Jetson: with an NVML that answers as a Jetson's does, stock NCCL ends, and the flake's goes on.

Of NCCL's own source the stand-in has one file, in our words (hostpkgs/nccl.cc). That the change fits the real
one at v2.27.7-1, v2.29.7-1 and v2.30.7-1 was seen by hand, with the same NVML: docs/explanation/nix.md.
"""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.nix.conftest import Tree

pytestmark = pytest.mark.nix

NVML = """
int nvmlDeviceGetCount_v2(unsigned *n) { *n = GPUS; return 0; }
int nvmlDeviceGetHandleByIndex(unsigned i, void **d) { *d = (void *)(long)(66 + i); return 0; }
int nvmlDeviceGetHandleByPciBusId(const char *b, void **d) { return 6; }  /* NVML_ERROR_NOT_FOUND */
int nvmlDeviceGetP2PStatus(void *a, void *b, int i, int *s) { return P2P; }
"""
NOT_SUPPORTED, UNKNOWN = 3, 999
ASK = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
nccl, device = ctypes.CDLL(sys.argv[2]), ctypes.c_void_p()
print(nccl.standinFirst(b"0000:00:00.0", ctypes.byref(device)), nccl.standinPair(), device.value)
"""


@pytest.fixture
def nvml(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    gpus, p2p = request.param
    source, library = tmp_path / "nvml.c", tmp_path / "libnvidia-ml.so.1"
    source.write_text(NVML.replace("GPUS", str(gpus)).replace("P2P;", f"{p2p};"))
    words = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(source)]
    subprocess.run(words, check=True)
    return library


def asked(nvml: Path, nccl: Path) -> str:
    words = [sys.executable, "-c", ASK, str(nvml), str(nccl / "lib/libnccl.so.2")]
    said = subprocess.run(words, check=True, capture_output=True, text=True)
    return said.stdout.strip()


@pytest.mark.parametrize("kind", ["orin", "orin-r39", "thor"])
@pytest.mark.parametrize("nvml", [(1, NOT_SUPPORTED)], indirect=True)
def test_the_flakes_goes_on(tree: "Tree", nvml: Path, kind: str) -> None:
    assert asked(nvml, tree.build(f"packages.aarch64-linux.nccl-{kind}")) == "0 5 66"


@pytest.mark.parametrize("nvml", [(1, NOT_SUPPORTED)], indirect=True)
def test_nixpkgs_ends(tree: "Tree", nvml: Path) -> None:
    config = "{ cudaSupport = true; allowUnfreePredicate = _: true; }"
    packages = f"import {tree.folder.parent / 'hostpkgs'} {{ config = {config}; }}"
    nccl = f"(({packages}).cudaPackages_13_0.overrideScope (_: _: {{ cuda_compat = null; }})).nccl"
    said = tree.nix("build", "--impure", "--no-link", "--print-out-paths", "--expr", nccl)
    assert asked(nvml, Path(said.stdout.strip())) == "2 0 None"


@pytest.mark.parametrize(
    ("nvml", "says"),
    [
        pytest.param((1, UNKNOWN), "2 0 None", id="another failure still ends it"),
        pytest.param((2, NOT_SUPPORTED), "2 5 None", id="of two GPUs none is taken for the one asked for"),
    ],
    indirect=["nvml"],
)
def test_nothing_else_is_passed_over(tree: "Tree", nvml: Path, says: str) -> None:
    assert asked(nvml, tree.build("packages.aarch64-linux.nccl-orin")) == says
