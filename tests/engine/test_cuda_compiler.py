"""The CUDA environments compile FlashInfer's kernels without a toolkit or a GPU on the host."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from medley import process
from medley.command import UNSET_VARIABLES, Command
from medley.environment import cuda_folder, virtualenv
from medley.environment.virtualenv import Environment

pytestmark = [pytest.mark.engine, pytest.mark.slow]
ENVIRONMENTS = ("vllm-cuda", "sglang-cuda")
# One of FlashInfer's smallest modules, which every model uses; 2 minutes on two cores.
PROGRAM = """
from flashinfer.jit import norm
module = norm.gen_norm_module()
module.build(verbose=False)
print(module.get_library_path())
"""
_INCLUDE = re.compile(
    r'^\s*#\s*include\s*[<"]((?:cu|nv)[a-zA-Z_0-9]*\.h|(?:cub|thrust)/\w+\.(?:h|cuh))[>"]', re.MULTILINE
)
# No kernel for our kinds of host includes these: NVSHMEM is for expert parallelism on 9.0, cuTile needs
# CUDA 13.1.
_OF_OTHERS = {"nvshmem.h", "nvshmemx.h", "cuda_tile.h"}


@pytest.fixture(params=ENVIRONMENTS)
def environment(request: pytest.FixtureRequest) -> Environment:
    found = virtualenv.find_environment(request.param)
    if found is None:
        pytest.skip(f"{request.param} is not built here: medley env build {request.param} (10 GB)")
    return found


def site_packages(environment: Environment) -> Path:
    return next(environment.path.glob("lib/python*/site-packages"))


def test_a_module_compiles_for_a_spark(environment: Environment, tmp_path: Path) -> None:
    """PATH and CUDA_HOME lead to the environment only, and each compiler that ninja started was its own."""
    home = site_packages(environment) / cuda_folder.FOLDER
    env = {
        "HOME": str(tmp_path),
        "PATH": f"{environment.path}/bin:/usr/bin:/bin",
        cuda_folder.CUDA_HOME: str(home),
        "MAX_JOBS": "1",
        "FLASHINFER_NVCC_THREADS": "1",
        "FLASHINFER_CUDA_ARCH_LIST": "12.1a",
    }
    finished = process.run(
        Command((str(environment.python), "-c", PROGRAM), env, UNSET_VARIABLES), limit_s=1200, on_line=None
    )
    assert finished.status == 0, finished.lines[-20:]
    assert Path(finished.lines[-1]).stat().st_size > 1 << 20
    (rules,) = tmp_path.rglob("build.ninja")
    text = rules.read_text()
    assert {f"cuda_home = {home}", "nvcc = $cuda_home/bin/nvcc"} <= set(text.splitlines())
    assert "sm_121a" in text or "compute_121a" in text
    assert "/usr/local/cuda" not in text


def test_every_header_of_cuda_that_kernels_include_is_there(environment: Environment) -> None:
    packages = site_packages(environment)
    include = packages / cuda_folder.FOLDER / "include"
    files = list(sources(packages))
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in files)
    names = {name for text in texts for name in _INCLUDE.findall(text)} - {path.name for path in files}
    folders = (include, include / "cccl")
    assert len(names) >= 20
    assert {name for name in names if not any((at / name).exists() for at in folders)} <= _OF_OTHERS


def sources(packages: Path) -> Iterator[Path]:
    for package in ("flashinfer", "sglang", "vllm", "deep_gemm", "tvm_ffi"):
        for path in (packages / package).rglob("*"):
            if path.suffix in {".cu", ".cuh", ".h", ".hpp", ".cpp"} and "cutlass/test" not in str(path):
                yield path
