"""Made-up drivers in real Pythons: one on a loader like Nix's, and one with the real Triton."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from medley import config, storage
from medley.environment import tools, virtualenv
from medley.environment.patches import Preload
from medley.environment.toolkit import LIBCUDA_VARIABLE, Toolkit, add_libcuda
from medley.host.kind import Kind
from medley.host_schema import Driver
from tests.engine import foreign
from tests.environment.driver_trees import begin
from tests.problems import raises_problem

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
    environment = virtualenv.find_environment("sglang-cpu")
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
    host = config.load_hosts()["cuda"].replace(driver=Driver(shared_directories=(str(system),)))
    chain = Toolkit(kind="cuda", variables={}, path=(), preload=(), pythons={}, uv="uv")
    given = add_libcuda(chain, host)
    assert given
    command = (str(environment.python), "-c", PROGRAM, str(library), str(source), str(tmp_path))
    told = {**os.environ, **given.variables}
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, env=told, check=False)
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == [[given.variables[LIBCUDA_VARIABLE]], 42]


# As of a Jetson: it needs one library, opens another by its name alone, and lies among the host's own.
JETSON = {
    "libnvrm_gpu.so": "int gpu(void) { return 40; }",
    "libnvcucompat.so": "int compat(void) { return 2; }",
    "libcuda.so.1": """\
#include <dlfcn.h>
int gpu(void);
int cuda(void) {
    void *compat = dlopen("libnvcucompat.so", RTLD_LAZY);
    return compat ? gpu() + ((int (*)(void))dlsym(compat, "compat"))() : gpu();
}
""",
}
ASKED = """\
import ctypes, json
said = ctypes.CDLL("libcuda.so.1").cuda()
maps = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
print(json.dumps([said, sorted(maps)]))
"""


@pytest.fixture
def toolkit() -> Path:
    """One whose Python is on a newer libc than the host's, with a loader that knows no folder."""
    if not foreign.PATCHELF.exists():
        pytest.skip("there is no /opt/nix-deb: .ci/install-nix makes it")
    host = virtualenv.find_environment("vllm-cpu")
    if host is None:
        pytest.skip("medley env build vllm-cpu, whose Python is copied")
    folder = storage.make_folder(storage.find_cache_folder().parent / "medley-tests" / "newer-libc")
    return foreign.toolkit(folder, host.python)


@pytest.fixture
def nix(toolkit: Path, tmp_path: Path) -> Path:
    """A virtualenv of that Python."""
    python = toolkit / "python" / "bin" / "python3.11"
    subprocess.run([python, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    return tmp_path / "venv"


def test_nothing_is_built_on_it_without_a_driver(
    toolkit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_TOOLKIT", str(toolkit))
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    there = config.load_hosts()["cuda"].replace(driver=Driver(directories=(str(tmp_path),)))
    for dry_run in (True, False):
        with raises_problem("this host", cause=("libcuda.so.1", str(tmp_path))):
            tools.prepare_tools(Kind("cuda", there, ""), "vllm-cpu", dry_run=dry_run)
    assert not (tmp_path / "cache").exists()
    (tmp_path / "libcuda.so.1").write_bytes(begin(os.uname().machine))
    assert (
        LIBCUDA_VARIABLE
        in tools.prepare_tools(Kind("cuda", there, ""), "vllm-cpu", dry_run=True).toolchain_variables
    )


def test_a_loader_that_knows_no_folder(nix: Path, tmp_path: Path) -> None:
    driver = tmp_path / "nvidia"
    driver.mkdir()
    for decoy in ("libc.so.6", "libm.so.6", "libdl.so.2"):
        (driver / decoy).symlink_to(foreign.HOST / decoy)
    for name, code in JETSON.items():
        (tmp_path / "a.c").write_text(code)
        needs = ("-l:libnvrm_gpu.so",) if name.startswith("libcuda") else ()
        words = (
            "gcc",
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{name}",
            "-o",
            f"{driver}/{name}",
            f"{tmp_path}/a.c",
        )
        subprocess.run([*words, f"-L{driver}", *needs], check=True)
    (driver / "libcuda.so.1").rename(driver / "libcuda.so.1.1")
    ask = (str(nix / "bin" / "python"), "-c", ASKED)
    without = subprocess.run(ask, capture_output=True, text=True, check=False)
    assert "libcuda.so.1: cannot open shared object file" in without.stderr
    [packages] = nix.glob("lib/python3*/site-packages")
    Preload((), (str(driver),), (str(foreign.HOST),)).write_module(packages)
    said = subprocess.run(ask, capture_output=True, text=True, check=True)
    value, loaded = json.loads(said.stdout)
    assert value == 42
    assert said.stderr == ""
    assert {Path(path).name for path in loaded if path.startswith(str(driver))} == {
        "libcuda.so.1.1",
        "libnvrm_gpu.so",
        "libnvcucompat.so",
    }
    assert not [path for path in loaded if path.startswith(str(foreign.HOST))]
