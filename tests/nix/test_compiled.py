"""Every CUDA shell compiles for its host's chip: real nvcc, ptxas and headers, engines' own JITs, no GPU.

The toolkit in a shell is what nix/cuda.nix joins, here out of parts of NVIDIA's wheels (cuda_wheels.py), and
the variables are those that `nix develop` sets. PyPI has no nvcc of CUDA 12: Orin's 12.6 compiles by nvrtc.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.nix import cuda_wheels, standin
from tests.nix.conftest import Tree

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="only the wheels for x86_64 are pinned"),
]

HERE = Path(__file__).parent
LIMIT_S = 300
X86, ARM = "x86_64-linux", "aarch64-linux"
SYSTEM = {"rtx": X86, "cuda": X86, "orin": ARM, "orin-r39": ARM, "spark": ARM, "thor": ARM}
CHIPS = [
    pytest.param("orin-r39", "87", id="orin-r39: sm_87"),
    pytest.param("thor", "110a", id="thor: sm_110a"),
    pytest.param("rtx", "120a", id="rtx: sm_120a"),
    pytest.param("spark", "121a", id="spark: sm_121a"),
]


class Shells:
    """The shells of a tree whose CUDA is NVIDIA's own."""

    def __init__(self, tree: Tree, python: str) -> None:
        self.tree, self.python = tree, python
        self.known: dict[str, dict[str, str]] = {}

    def variables(self, kind: str) -> dict[str, str]:
        """All that a program sees in the shell of a kind of host."""
        if kind not in self.known:
            system = ("--system", SYSTEM[kind])
            said = self.tree.nix(
                "develop", "--ignore-environment", *system, f".#{kind}", "-c", "env", "-0"
            ).stdout
            self.known[kind] = dict(line.split("=", 1) for line in said.split("\0") if line)
        return self.known[kind]

    def run(
        self,
        kind: str,
        folder: Path,
        *command: str | Path,
        check: bool = True,
        changes: Mapping[str, str | None] = MappingProxyType({}),
    ) -> subprocess.CompletedProcess[str]:
        folder.mkdir(exist_ok=True)
        # Triton keeps what it made under HOME, and must not find it again.
        given = {**self.variables(kind), "HOME": str(folder), **changes}
        said = subprocess.run(
            [shutil.which(command[0], path=given["PATH"]) or command[0], *command[1:]],
            env={name: value for name, value in given.items() if value is not None},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert not check or said.returncode == 0, said.stdout + said.stderr
        return said

    def triton(self, kind: str, folder: Path, *capabilities: str, **changes: str | None) -> Any:
        script = (self.python, HERE / "jit_triton.py", folder)
        said = self.run(kind, folder, *script, *capabilities, changes=changes)
        return json.loads(said.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def shells(tmp_path_factory: pytest.TempPathFactory) -> Shells:
    if shutil.which("nix") is None:
        pytest.skip("there is no nix on PATH")
    folder = tmp_path_factory.mktemp("compiled")
    parts = {version: cuda_wheels.parts(version, folder / "parts") for version in ("12.6", "13.0")}
    variables = standin.prepare(folder, Path(sys.prefix), parts)
    build = [sys.executable, "-m", "medley", "env", "build", "sglang-cpu"]  # it has torch and Triton
    environment = subprocess.run(build, capture_output=True, text=True, check=True).stdout.strip()
    return Shells(Tree(folder / "medley", variables), f"{environment}/bin/python")


@pytest.fixture(scope="module")
def extensions(
    shells: Shells, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, subprocess.CompletedProcess[str]]]:
    """Of each kind a folder and what compiling there said; two at a time, because nvcc uses one core."""

    def compiled(kind: str) -> tuple[Path, subprocess.CompletedProcess[str]]:
        folder = tmp_path_factory.mktemp(kind)
        script = (shells.python, HERE / "jit.py", "torch", HERE / "kernel.cu", folder)
        return folder, shells.run(kind, folder, *script, check=False)

    kinds = [str(chip.values[0]) for chip in CHIPS]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(kinds, pool.map(compiled, kinds), strict=True))


def chip(cubin: Path) -> int:
    """The SM number in a cubin's header: LLVM's BinaryFormat/ELF.h, EF_CUDA_SM, by the ABI's version."""
    head = cubin.read_bytes()[:52]
    (machine,), (flags,) = struct.unpack_from("<H", head, 18), struct.unpack_from("<I", head, 48)
    assert machine == 190, "no code for a GPU of NVIDIA's"
    return int(flags & 0xFF if head[8] == 7 else flags >> 8 & 0xFF)


@pytest.mark.parametrize(("kind", "sm"), CHIPS)
def test_an_extension_of_torch(
    shells: Shells,
    extensions: dict[str, tuple[Path, subprocess.CompletedProcess[str]]],
    kind: str,
    sm: str,
) -> None:
    """torch's own flags, CUB, torch's headers, an instruction of that chip alone, a link with cudart."""
    folder, said = extensions[kind]
    assert said.returncode == 0, said.stdout + said.stderr
    variables = shells.variables(kind)
    compiled = json.loads(said.stdout.splitlines()[-1])["said"]
    assert f"{variables['CUDA_HOME']}/bin/nvcc  -ccbin {variables['CC']} " in compiled
    assert f" -gencode=arch=compute_{sm},code=sm_{sm} " in compiled
    listed = shells.run("orin-r39", folder, "cuobjdump", "-lelf", "unit.so").stdout  # reads any chip's
    assert [line.rpartition(".sm_")[2] for line in listed.splitlines()] == [f"{sm}.cubin"]


def test_cuda_12_compiles_with_nvrtc(shells: Shells, tmp_path: Path) -> None:
    shells.run("orin", tmp_path, shells.python, HERE / "jit.py", "nvrtc", HERE / "kernel.cu", tmp_path)
    assert chip(tmp_path / "unit.cubin") == 87


@pytest.mark.parametrize(
    ("kind", "sm", "version"),
    [
        pytest.param("orin", "87", "12.6", id="orin"),
        pytest.param("orin-r39", "87", "13.0", id="orin-r39"),
        pytest.param("thor", "110a", "13.0", id="thor"),
        pytest.param("rtx", "120a", "13.0", id="rtx"),
        pytest.param("spark", "121a", "13.0", id="spark"),
        pytest.param("cuda", "90a", "13.0", id="cuda, on a Hopper"),
        pytest.param("cuda", "120a", "13.0", id="cuda, on a Blackwell"),
    ],
)
def test_triton_takes_the_toolkits_ptxas(
    shells: Shells, tmp_path: Path, kind: str, sm: str, version: str
) -> None:
    capability = sm.removesuffix("a")
    found = shells.triton(kind, tmp_path, capability)[capability]
    ptxas = f"{shells.variables(kind)['CUDA_HOME']}/bin/ptxas"
    assert found == {"ptxas": ptxas, "version": version, "target": f"sm_{sm}"}
    assert chip(tmp_path / f"sm_{capability}") == int(capability)


def test_what_triton_brings(shells: Shells, tmp_path: Path) -> None:
    """As docs/explanation/environments.md has it: without the variables, and with the wrong one."""
    unset = {"TRITON_PTXAS_PATH": None, "TRITON_PTXAS_BLACKWELL_PATH": None}
    own = shells.triton("spark", tmp_path, "87", "121", **unset)
    assert [own[number]["version"] for number in ("87", "121")] == ["12.8", "13.1"]
    half = shells.triton("spark", tmp_path / "half", "121", TRITON_PTXAS_BLACKWELL_PATH=None)
    assert half["121"]["ptxas"] == own["121"]["ptxas"], "TRITON_PTXAS_PATH says nothing from 10.0 on"
    older = {"TRITON_PTXAS_BLACKWELL_PATH": own["87"]["ptxas"]}
    refused = shells.triton("spark", tmp_path / "older", "110", "120", "121", **older)
    assert "Value 'sm_110a' is not defined" in refused["110"]["failed"]
    assert "Value 'sm_121a' is not defined" in refused["121"]["failed"]
    assert "failed" not in refused["120"]


def test_the_general_architecture_is_not_enough(shells: Shells, tmp_path: Path) -> None:
    """So that the tests above would fail without the `a` in arch_list."""
    general = ("nvcc", "-cubin", "-gencode=arch=compute_121,code=sm_121", HERE / "kernel.cu")
    said = shells.run("spark", tmp_path, *general, check=False)
    assert said.returncode != 0
    assert "not supported on .target 'sm_121'" in said.stderr


@pytest.mark.parametrize("kind", ["orin-r39", "spark"])
def test_a_cub_of_ones_own_comes_before_the_toolkits(shells: Shells, tmp_path: Path, kind: str) -> None:
    """As flashinfer's, which it names with -I."""
    (tmp_path / "cub").mkdir()
    (tmp_path / "cub" / "cub.cuh").write_text("#error our own\n")
    (tmp_path / "asks.cu").write_text("#include <cub/cub.cuh>\n")
    said = shells.run(kind, tmp_path, "nvcc", "-cubin", f"-I{tmp_path}", "asks.cu", check=False)
    assert "#error our own" in said.stderr


@pytest.mark.parametrize("kind", ["orin", "orin-r39", "spark"])
def test_no_stub_can_be_taken_for_the_driver(shells: Shells, kind: str) -> None:
    """torch's inductor writes $CUDA_HOME/lib64 into what it links, as a place to load from."""
    libraries = Path(shells.variables(kind)["CUDA_HOME"], "lib64")
    assert (libraries / "stubs" / "libcuda.so").is_file(), "there is something to link with"
    assert not (libraries / "libcuda.so.1").exists()


PLAIN = '__global__ void k(int* x) { *x += 1; }\nextern "C" void go(int* x) { k<<<1, 1>>>(x); }\n'


@pytest.mark.parametrize("kind", ["spark", "orin-r39"])
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("plain.cu", "-lcuda"), id="in one go, as TileLang"),
        pytest.param(("-rdc=true", "plain.cu"), id="device code too, as flashinfer's mixed_comm"),
    ],
)
def test_nvcc_alone_compiles_and_links(
    shells: Shells, tmp_path: Path, kind: str, words: tuple[str, ...]
) -> None:
    """Nobody names $CUDA_HOME/include or its libraries, and cudart is linked as nvcc does: the static one."""
    (tmp_path / "plain.cu").write_text(PLAIN)
    sm = shells.variables(kind)["TORCH_CUDA_ARCH_LIST"].replace(".", "")
    given = (f"-arch=sm_{sm}", "--compiler-options", "-fPIC", "--shared", "-o", "plain.so")
    shells.run(kind, tmp_path, "nvcc", *given, *words)
    assert (tmp_path / "plain.so").is_file()
