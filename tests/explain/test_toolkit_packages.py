"""The package of the CUDA toolkit is named for a header or a library of it, and for no other file."""

import pytest

from medley.explain.toolkit_packages import find_toolkit_package


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("x.cpp:3:10: fatal error: nvrtc.h: No such file or directory", "cuda-nvrtc-dev"),
        ("/usr/bin/ld: cannot find -lnvrtc", "cuda-nvrtc-dev"),
        ("fatal error: curand_kernel.h: No such file or directory", "libcurand-dev"),
        ("fatal error: cuda/std/optional: No such file or directory", "cuda-cccl"),
        ("fatal error: stddef.h: No such file or directory", None),
        ("/usr/bin/ld: cannot find -lcuda", None),
    ],
)
def test_it_is_named(line: str, package: str | None) -> None:
    assert find_toolkit_package(line) == package
