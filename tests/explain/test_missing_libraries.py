"""Usual causes of a missing library are left out where the log refutes them."""

import pytest

from tests.explain.test_explain import names, of

MISSING = "ImportError: {file}: cannot open shared object file: No such file or directory\n"
NVDLA = MISSING.format(file="libnvdla_compiler.so")
RELEASE = "# R39 (release), REVISION: 2.0, GCID: 45750727, BOARD: generic, EABI: aarch64\n"
LISTED = "lib, /usr/lib/aarch64-linux-gnu/nvidia/libnvdla_compiler.so\n"


def test_a_library_of_jetson_linux_comes_from_the_host() -> None:
    (report,) = of(f"{NVDLA}\n{RELEASE}{LISTED}").problems
    assert report.match.failure.name == "jetson-host-library"
    problem = report.problem()
    assert "L4T R39.2.0 (JetPack 7)" in problem.cause
    assert "/nvidia/libnvdla_compiler.so" in problem.cause
    assert "LD_LIBRARY_PATH" not in f"{problem.cause} {problem.fix}"
    assert "apt" not in problem.fix


@pytest.mark.parametrize(
    "file", ["libnvbufsurface.so.1.0.0", "libnvrm_mem.so", "libnvos.so", "libnvmm_utils.so"]
)
def test_other_libraries_of_jetson_linux(file: str) -> None:
    assert names(of(MISSING.format(file=file))) == ["jetson-host-library"]


def test_only_a_library_of_cuda_is_of_another_cuda() -> None:
    (report,) = of(MISSING.format(file="libmagma.so.2")).problems
    assert "CUDA" not in report.problem().cause
    assert "not installed" in report.problem().cause


def test_a_search_that_finds_nothing_excludes_the_path() -> None:
    search = "$ find / -name 'libmagma.so.2' 2>/dev/null\n"
    (absent,) = of(MISSING.format(file="libmagma.so.2") + search).problems
    assert "LD_LIBRARY_PATH" not in f"{absent.problem().cause} {absent.problem().fix}"
    (present,) = of(MISSING.format(file="libmagma.so.2") + search + "/opt/magma/lib/libmagma.so.2\n").problems
    assert "is at /opt/magma/lib/libmagma.so.2" in present.problem().cause
    assert "not installed" not in present.problem().cause
    assert "LD_LIBRARY_PATH" in present.problem().fix


def test_a_listing_of_the_host_decides_between_image_and_runtime() -> None:
    folder = "/usr/lib/aarch64-linux-gnu/nvidia"
    (lacks,) = of(f"{NVDLA}$ ls {folder}/ | grep nvdla\nlibnvdla_runtime.so\n").problems
    assert "host does not have libnvdla_compiler.so" in lacks.problem().cause
    (has,) = of(f"{NVDLA}$ ls {folder}/ | grep nvdla\nlibnvdla_compiler.so\n").problems
    assert "does not have libnvdla_compiler.so" not in has.problem().cause
