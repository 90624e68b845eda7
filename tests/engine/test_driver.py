"""The real Triton links what it compiles against the driver's libcuda alone, which a Python then runs."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from medley import config, libcuda, venv
from medley.tables import Driver
from medley.toolkit import Toolkit
from medley.variables import LIBCUDA

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, to make a libcuda"),
]
# As the driver's own module is made when a kernel first runs, less what needs a GPU.
PROGRAM = """\
import ctypes, json, sys
from triton.backends.nvidia.driver import libcuda_dirs, libraries, library_dirs
from triton.runtime.build import _build
ctypes.CDLL(sys.argv[1])
made = _build("made", sys.argv[2], sys.argv[3], library_dirs(), [], libraries, [])
print(json.dumps([libcuda_dirs(), ctypes.CDLL(made).go()]))
"""


def test_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = venv.find("sglang-cpu")
    if environment is None:
        pytest.skip("medley env build sglang-cpu, which has Triton's NVIDIA part")
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    system = tmp_path / "lib"
    system.mkdir()
    (system / "libc.so.6").write_text("what nobody may link against")
    source = tmp_path / "a.c"
    source.write_text("int cuInit(void) { return 42; }\n")
    library = system / "libcuda.so.1"
    build = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source)]
    subprocess.run(build, check=True)
    source.write_text("int cuInit(void);\nint go(void) { return cuInit(); }\n")
    host = config.hosts()["cuda"].model_copy(update={"driver": Driver(shared_directories=(str(system),))})
    chain = Toolkit(kind="cuda", variables={}, path=(), preload=(), pythons={}, uv="uv")
    given = libcuda.given(chain, host)
    assert given
    command = (str(environment.python), "-c", PROGRAM, str(library), str(source), str(tmp_path))
    told = {**os.environ, **given.variables}
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, env=told, check=False)
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == [[given.variables[LIBCUDA]], 42]
