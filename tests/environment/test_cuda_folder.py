"""The CUDA folder of an environment: what compilers find in it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from medley import config
from medley.environment import cuda_folder
from medley.environment.engine_source import has_matching_nvcc
from medley.progress import SILENT

CUDART = "int cudaGetDevice(int *device) { return *device = 0; }"
PROGRAM = """
int cudaGetDevice(int *);
int cuMemAlloc_v2(void **, long);
int load(void) { int device; void *at; return cudaGetDevice(&device) + cuMemAlloc_v2(&at, 1); }
"""
HEADER = """
#define cuMemAlloc cuMemAlloc_v2
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *dptr, size_t bytesize);
"""


def compile_c(text: str, output: Path, *flags: str) -> None:
    words = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(output), *flags]
    subprocess.run(words, input=text, text=True, check=True)


@pytest.fixture
def site_packages(tmp_path: Path) -> Path:
    """Lay out the wheels' files: a compiler, and libraries without the names for a linker."""
    folder = tmp_path / "nvidia" / "cu13"
    for name in ("bin", "include", "lib"):
        (folder / name).mkdir(parents=True)
    (folder / "bin" / "nvcc").touch()
    (folder / "include" / "cuda.h").write_text(HEADER)
    compile_c(CUDART, folder / "lib" / "libcudart.so.13", "-Wl,-soname,libcudart.so.13")
    (folder / "lib" / "libcudart_static.a").touch()
    return tmp_path


def test_an_extension_links_as_with_a_toolkit(site_packages: Path, tmp_path: Path) -> None:
    """The flags are those of FlashInfer 0.7.2 and of torch's extensions."""
    cuda_folder.complete_cuda_folder(site_packages, SILENT)
    home = site_packages / cuda_folder.FOLDER
    extension = tmp_path / "extension.so"
    compile_c(
        PROGRAM,
        extension,
        f"-L{home}/lib64",
        f"-L{home}/lib64/stubs",
        "-Wl,--as-needed",
        "-lcudart",
        "-lcuda",
    )
    shown = subprocess.run(["readelf", "-d", extension], text=True, capture_output=True, check=True).stdout
    assert "[libcudart.so.13]" in shown
    assert "[libcuda.so.1]" in shown, "the driver's own, and not the stub"
    assert (home / "bin" / "nvcc").exists()


def test_an_environment_without_a_compiler_is_left_alone(site_packages: Path) -> None:
    (site_packages / "nvidia" / "cu13" / "bin" / "nvcc").unlink()
    before = sorted(site_packages.rglob("*"))
    cuda_folder.complete_cuda_folder(site_packages, SILENT)
    assert sorted(site_packages.rglob("*")) == before
    shutil.rmtree(site_packages / "nvidia")
    cuda_folder.complete_cuda_folder(site_packages, SILENT)


@pytest.mark.parametrize(
    ("name", "has_compiler"), [("vllm-cuda", True), ("sglang-cuda", True), ("vllm-cpu", False)]
)
def test_the_compiler_is_of_the_minor_version_of_the_headers(name: str, *, has_compiler: bool) -> None:
    """CUDA's headers refuse a compiler of another minor version, as 13.5 beside 13.0."""
    lock = config.find_table_files("locks", ".txt")[name].read_text(encoding="utf-8")
    pins = dict(line.split(" ")[0].split("==") for line in lock.splitlines() if line.startswith("nvidia-"))
    parts = ("nvidia-cuda-runtime", "nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-cuda-cccl", "nvidia-nvvm")
    versions = {pins[part].rpartition(".")[0] for part in parts if part in pins}
    assert versions == ({"13.0"} if has_compiler else set())
    assert has_matching_nvcc(name) is has_compiler
