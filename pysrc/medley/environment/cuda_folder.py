"""Complete the CUDA folder of an engine environment, so that engines compile kernels without a CUDA toolkit.

The wheels of NVIDIA's compiler, headers and libraries share `nvidia/cu13`. FlashInfer, DeepGEMM, SGLang and
extensions of torch look for CUDA_HOME/bin/nvcc, and link with -L$CUDA_HOME/lib64, -lcudart and -lcuda, names
that the wheels lack (flashinfer/jit/cpp_ext.py of FlashInfer 0.7.2.post1).
"""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from medley import process
from medley.command import Command
from medley.progress import Progress

CUDA_HOME = "CUDA_HOME"
FOLDER = Path("nvidia") / "cu13"
"""CUDA_HOME of an environment whose lock has a compiler, as a path in site-packages."""
_SONAME_PATTERN = re.compile(r"(lib\w+\.so)\.\d+")
_DRIVER_FUNCTION_PATTERN = re.compile(r"\bcu[A-Z]\w+\b")
_STUB_LIMIT_S = 60


def complete_cuda_folder(site_packages: Path, progress: Progress) -> None:
    """Add the file names that a toolkit has; do nothing in an environment without a compiler.

    nvcc finds its headers from its real path, so it stays where its wheel has put it.
    """
    folder = site_packages / FOLDER
    if not (folder / "bin" / "nvcc").exists():
        return
    libraries = folder / "lib"
    for name, target in _list_missing_names(libraries):
        (libraries / name).symlink_to(target)
    _write_driver_stub(folder / "include" / "cuda.h", libraries / "stubs", progress)
    (folder / "lib64").symlink_to("lib")


def _list_missing_names(libraries: Path) -> Iterator[tuple[str, str]]:
    """Yield the name for the linker of each library, and the file: libcudart.so, libcudart.so.13."""
    for path in sorted(libraries.iterdir()):
        match = _SONAME_PATTERN.fullmatch(path.name)
        if match and not (libraries / match[1]).exists():
            yield match[1], path.name


def _write_driver_stub(header: Path, folder: Path, progress: Progress) -> None:
    """Make a libcuda.so to link with, as a toolkit has it: programs load the driver's libcuda.so.1.

    It has every name of cuda.h: Ubuntu's linker drops a library of which no symbol is used (--as-needed).
    """
    folder.mkdir()
    names = sorted(set(_DRIVER_FUNCTION_PATTERN.findall(header.read_text(encoding="utf-8"))))
    with tempfile.NamedTemporaryFile("w", suffix=".c") as source:
        source.writelines(f"void {name}(void) {{}}\n" for name in names)
        source.flush()
        words = ("cc", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so"))
        finished = process.run(Command((*words, source.name)), limit_s=_STUB_LIMIT_S)
    if finished.status:
        progress.note(
            f"no stub of libcuda.so, because there is no C compiler: {' '.join(finished.lines[-1:])}"
        )
