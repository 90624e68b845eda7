"""Name the package of the CUDA toolkit that has a header or library."""

import re

_FILE = re.compile(r"fatal error: (?P<header>[\w./-]{3,80})|cannot find -l(?P<library>[\w.+-]{2,40})")
_PACKAGES = (
    (r"nvrtc", "cuda-nvrtc-dev"),
    (r"curand", "libcurand-dev"),
    (r"cublas", "libcublas-dev"),
    (r"cusparse", "libcusparse-dev"),
    (r"cusolver", "libcusolver-dev"),
    (r"cufft", "libcufft-dev"),
    (r"cufile", "libcufile-dev"),
    (r"npp", "libnpp-dev"),
    (r"nvjpeg", "libnvjpeg-dev"),
    (r"nvjitlink", "libnvjitlink-dev"),
    (r"cupti|generated_cuda", "cuda-cupti-dev"),
    (r"nvml", "cuda-nvml-dev"),
    (r"nvtx|nvToolsExt", "cuda-nvtx"),
    (r"cuda_profiler|cudaProfiler", "cuda-profiler-api"),
    (r"crt/", "cuda-crt"),
    (r"cub/|thrust/|cuda/std|cuda/|nv/target|cccl", "cuda-cccl"),
    (r"cuda_runtime|cuda_fp|cuda_bf16|cudart|cuda\.h|driver_types|vector_types", "cuda-cudart-dev"),
)
"""Names in Debian's form; NVIDIA's packages end with the version of CUDA, such as -13-0."""


def find_toolkit_package(text: str) -> str | None:
    """Return the package of the header or library that the compiler or linker does not find."""
    match = _FILE.search(text)
    if match is None:
        return None
    name = match["header"] or match["library"]
    return next((package for pattern, package in _PACKAGES if re.match(pattern, name)), None)
