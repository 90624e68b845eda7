"""Our own code in an engine: what is written, how the engine finds it, and what names its content."""

import ast
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from medley import plugin
from medley.tables import Plugin


@pytest.fixture
def written(tmp_path: Path) -> Path:
    plugin.write(tmp_path, ["cpu_ray"])
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
    plugin.write(tmp_path, [name])
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
    text = (written / f"{module.replace('.', '/')}.py").read_text()
    assert name in {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}


def test_the_stand_in_is_of_no_use_beside_cuda(tmp_path: Path) -> None:
    """With a torch that says what it is built for, and is nothing else."""
    plugin.write(tmp_path, ["sgl_kernel_standin"])
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
    plugin.write(tmp_path, ["sgl_kernel_standin"])
    [found] = importlib.metadata.distributions(path=[str(tmp_path)])
    assert f'__version__ = "{found.version}"' in (tmp_path / "sgl_kernel" / "__init__.py").read_text()


def test_none(tmp_path: Path) -> None:
    plugin.write(tmp_path, [])
    assert list(tmp_path.iterdir()) == []
    assert plugin.contents([]) == {}


def test_the_hash_is_of_all_that_is_written(written: Path) -> None:
    hashes = plugin.contents(["cpu_ray"])
    assert hashes == plugin.contents(["cpu_ray"])
    assert len(hashes["cpu_ray"]) == 64
    for path, text in plugin.files("cpu_ray").items():
        assert (written / path).read_text(encoding="utf-8") == text
