"""Libraries that need each other, loaded by full path by a Python that would find none of them."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from medley.inside.preload import MORE, Drivers, load
from medley.preload import MODULE, Preload
from medley.tables import Driver
from tests.driver_trees import begin


def missing(name: str) -> OSError:
    return OSError(f"{name}: cannot open shared object file: No such file or directory")


class Loader:
    """Loads a file when those it needs are loaded, as the dynamic loader does without folders to look in."""

    def __init__(self, needs: dict[str, list[str]]) -> None:
        self.needs, self.loaded = needs, list[str]()

    def __call__(self, path: str) -> None:
        name = Path(path).name
        for need in self.needs.get(name, []):
            if need not in self.loaded:
                raise missing(need)
        if name not in self.needs:
            raise OSError(f"{path}: file too short")
        self.loaded.append(name)


LIBRARY = begin(os.uname().machine)
CUDA, ML, JIT = "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"


@pytest.mark.parametrize(
    ("own", "shared", "needs", "loaded"),
    [
        pytest.param([], [], {}, [], id="no driver"),
        pytest.param([CUDA, ML, JIT], [], {CUDA: [], ML: [], JIT: []}, [CUDA, ML, JIT], id="all"),
        pytest.param(
            [CUDA, "libnvrm_gpu.so", "libnvos.so"],
            [],
            {CUDA: ["libnvrm_gpu.so"], "libnvrm_gpu.so": ["libnvos.so"], "libnvos.so": []},
            ["libnvos.so", "libnvrm_gpu.so", CUDA],
            id="what it misses, deepest first",
        ),
        pytest.param([], [CUDA, ML], {CUDA: [], ML: []}, [CUDA, ML], id="from a system's folder"),
        pytest.param(
            [],
            [CUDA, "libX11.so.6"],
            {CUDA: ["libX11.so.6"], "libX11.so.6": []},
            [],
            id="nothing else from it",
        ),
        pytest.param(
            [],
            [CUDA, "libcudart.so.13"],
            {CUDA: ["libcudart.so.13"], "libcudart.so.13": []},
            [],
            id="no toolkit's",
        ),
        pytest.param(
            [ML],
            [CUDA, "libnvidia-gpucomp.so.580"],
            {ML: [], CUDA: ["libnvidia-gpucomp.so.580"], "libnvidia-gpucomp.so.580": []},
            ["libnvidia-gpucomp.so.580", CUDA, ML],
            id="from both",
        ),
        pytest.param([CUDA, ML], [], {ML: []}, [ML], id="a broken one hinders no other"),
        pytest.param(
            [CUDA, "libnva.so"], [], {CUDA: ["libnva.so"], "libnva.so": [CUDA]}, [], id="a circle ends"
        ),
        pytest.param([CUDA], [], {CUDA: ["gone.so"]}, [], id="what nobody has"),
        pytest.param(
            [CUDA, "libstdc++.so.6"],
            [],
            {CUDA: ["libstdc++.so.6"], "libstdc++.so.6": []},
            [],
            id="no runtime of the host's, not even from its own folder",
        ),
        pytest.param(
            [CUDA, "libnvcucompat.so", "libdxcore.so"],
            [JIT],
            {CUDA: [], "libnvcucompat.so": [], "libdxcore.so": [], JIT: []},
            [CUDA, "libnvcucompat.so", "libdxcore.so"],
            id="what libcuda opens by name, and nothing of another driver",
        ),
    ],
)
def test_the_driver(
    own: list[str], shared: list[str], needs: dict[str, list[str]], loaded: list[str], tmp_path: Path
) -> None:
    for folder, names in (("own", own), ("shared", shared)):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_bytes(LIBRARY)
    loader = Loader(needs)
    drivers = Drivers((str(tmp_path / "none"), str(tmp_path / "own")), (str(tmp_path / "shared"),))
    said = load((), drivers, loader)
    assert [Path(path).name for path in said] == loaded == loader.loaded


def test_the_libraries_come_first(tmp_path: Path) -> None:
    (tmp_path / CUDA).write_bytes(LIBRARY)
    loader = Loader({"libz.so.1": [], CUDA: ["libz.so.1"]})
    load(("/nix/store/z/lib/libz.so.1",), Drivers((str(tmp_path),), ()), loader)
    assert loader.loaded == ["libz.so.1", CUDA]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, to make two libraries")
def test_real_libraries_in_a_real_python(tmp_path: Path) -> None:
    driver = tmp_path / "driver"
    driver.mkdir()
    for name, code, more in (
        ("libnvos.so", "int nvos(void) { return 42; }", ()),
        (CUDA, "int nvos(void); int cuda(void) { return nvos(); }", (f"-L{driver}", "-l:libnvos.so")),
    ):
        source = tmp_path / "source.c"
        source.write_text(code)
        build = [
            "gcc",
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{name}",
            "-o",
            str(driver / name),
            str(source),
            *more,
        ]
        subprocess.run(build, check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True)
    [site] = (tmp_path / "v").glob("lib/python3*/site-packages")
    Preload(("/no/such/library.so",), (str(driver),), ()).write(site)
    code = f"import ctypes, json; print(json.dumps(ctypes.CDLL('{CUDA}').cuda()))"
    said = subprocess.run([tmp_path / "v/bin/python", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == 42, "found by name, although its folder is in no search path"
    assert said.stderr == ""
    assert (site / f"{MODULE}.pth").read_text() == f"import {MODULE}\n"


def test_what_a_process_names_besides(tmp_path: Path) -> None:
    python = tmp_path / "v/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True)
    [site] = (tmp_path / "v").glob("lib/python3*/site-packages")
    Preload().write(site)
    known = (importlib.util.find_spec(name) for name in ("_lsprof", "_ctypes_test", "_testbuffer", "_ssl"))
    library = next(Path(spec.origin) for spec in known if spec and spec.origin and ".so" in spec.origin)
    code = "print(open('/proc/self/maps').read())"
    for named, there in ((f"/no/such.so:{library}", True), ("", False)):
        said = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, env={MORE: named}, check=True
        )
        assert (str(library.resolve()) in said.stdout) is there
        assert said.stderr == ""


def test_what_a_host_gives() -> None:
    assert not Preload()
    assert not Preload.of(None, None)
    found = Preload.of(None, Driver(directories=("/opt/nvidia",), shared_directories=("/usr/lib",)))
    assert found == Preload((), ("/opt/nvidia",), ("/usr/lib",))
    assert found.table()["directories"] == ["/opt/nvidia"]


def test_another_way_to_load_is_another_environment() -> None:
    """Its code is in the digest of every environment that has it, and of no other."""
    assert set(Preload(("/l",)).table()) == {"libraries", "directories", "shared_directories", "code"}
    assert Preload().table() == {"libraries": [], "directories": [], "shared_directories": []}
