"""A CUDA toolkit out of NVIDIA's wheels, in parts as nixpkgs cuts it: FOLDER/PART/{bin,include,lib,nvvm}.

    python tests/nix/cuda_wheels.py VERSION DIR      DIR/13.0/cuda_nvcc/bin/nvcc …

wheels/cuda-VERSION.txt pins them with their hashes. uv's cache keeps them, so that the second time nothing is
fetched. Those of CUDA 12 have ptxas, libnvvm and nvrtc, but no nvcc: the wheels have it from 13.0 on.
"""

import csv
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from uv import find_uv_bin

from medley.environment import uv

PINS = Path(__file__).with_name("wheels")
LIMIT_S = 300
# libnvvm is a package of its own from 13.0 on, and nixpkgs copies it into cuda_nvcc.
PARTS = {
    "nvidia_cuda_cccl": "cuda_cccl",
    "nvidia_cuda_crt": "cuda_crt",
    "nvidia_cuda_cuobjdump": "cuda_cuobjdump",
    "nvidia_cuda_nvcc": "cuda_nvcc",
    "nvidia_cuda_nvdisasm": "cuda_nvdisasm",
    "nvidia_cuda_nvrtc": "cuda_nvrtc",
    "nvidia_cuda_profiler_api": "cuda_profiler_api",
    "nvidia_cuda_runtime": "cuda_cudart",
    "nvidia_nvtx": "cuda_nvtx",
    "nvidia_nvvm": "cuda_nvcc",
}


def parts(version: str, folder: Path) -> Path:
    """Fetch a version's wheels and lay them out under folder; returns where."""
    target = folder / version
    source = target / "wheels"  # under it, so that one folder is all that a sandbox must see
    fetch(version, source)
    for part, inside, file in files(source):
        place = target / part / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(file)
    return target


def fetch(version: str, target: Path) -> None:
    command = [find_uv_bin(), "pip", "install", "--quiet", "--target", str(target)]
    command += [
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
        "-r",
        str(PINS / f"cuda-{version}.txt"),
    ]
    told = uv.convert_options(uv.read_pip_config(os.environ, Path.home(), Path(sys.prefix)), os.environ)
    said = subprocess.run(
        command, env=os.environ | told, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert said.returncode == 0, said.stderr


def files(source: Path) -> Iterator[tuple[str, Path, Path]]:
    """Each file of the wheels: its part, its path in it as nixpkgs has it, and where it is."""
    for record in source.glob("*.dist-info/RECORD"):
        part = PARTS[record.parent.name.partition("-")[0].removesuffix("_cu12")]
        for row in csv.reader(record.read_text(encoding="utf-8").splitlines()):
            root, *inside = Path(row[0]).parts
            match inside:  # nvidia/cu13/bin/nvcc; in those of CUDA 12 nvidia/cuda_nvcc/bin/ptxas
                case ["cu13", "include", "cccl", *rest] if root == "nvidia":
                    yield part, Path("include", *rest), source / row[0]
                case ["cu13", "include", "nv", *_]:
                    pass  # packages/cccl.nix drops it for the one in include/cccl, which it moves up
                case [_, "bin" | "include" | "lib" | "nvvm" as top, *rest] if root == "nvidia" and rest:
                    yield part, Path(top, *rest), source / row[0]


if __name__ == "__main__":
    print(parts(sys.argv[1], Path(sys.argv[2]).resolve()))
