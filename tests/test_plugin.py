"""Our own code in an engine: what is written, how the engine finds it, and what names its content."""

import ast
import importlib.metadata
from pathlib import Path

import pytest

from medley import plugin


@pytest.fixture
def written(tmp_path: Path) -> Path:
    plugin.write(tmp_path, ["cpu_ray"])
    return tmp_path


def test_the_engine_finds_it_by_its_group(written: Path) -> None:
    [found] = importlib.metadata.distributions(path=[str(written)])
    assert found.name == "medley-cpu-ray"
    [entry] = found.entry_points
    assert (entry.group, entry.name, entry.value) == (
        "vllm.platform_plugins",
        "cpu_ray",
        "medley_cpu_ray:register",
    )


def test_every_file_is_on_its_record(written: Path) -> None:
    [found] = importlib.metadata.distributions(path=[str(written)])
    recorded = {str(file) for file in found.files or ()}
    assert recorded == {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}


def test_what_the_entry_point_names_is_there(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(written))
    from importlib import import_module

    named = import_module("medley_cpu_ray").register()
    module, _, name = named.rpartition(".")
    text = (written / f"{module.replace('.', '/')}.py").read_text()
    assert name in {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}


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
