"""Scripts that make the engine themselves: the page's own, literally, by arguments that the classes take."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from medley.command import Command
from medley.engine.launch import ENGINES
from medley.environment import virtualenv
from medley.schema import EngineName
from tests.engine.plans import KINDS, PLANS, offered
from tests.servers import READY_LIMIT_S, Start
from tests.waiting import wait_for
from tools.documents import programs

pytestmark = pytest.mark.engine

TAKES: dict[EngineName, str] = {
    "vllm": """
import dataclasses, inspect, json
from vllm import LLM, EngineArgs
names = {*inspect.signature(LLM.__init__).parameters, *(each.name for each in dataclasses.fields(EngineArgs))}
print(json.dumps(sorted(names)))
""",
    "sglang": """
import inspect, json
from sglang.srt.server_args import ServerArgs
print(json.dumps(sorted(inspect.signature(ServerArgs).parameters)))
""",
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_argument_is_one_of_its_class(engine: EngineName) -> None:
    """Of every model in models/, on a CPU and on GPUs."""
    found = virtualenv.find_environment(f"{engine}-cpu")
    assert found, f"medley env build {engine}-cpu"
    command = [str(found.python), "-c", TAKES[engine]]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    takes = json.loads(said.stdout.splitlines()[-1])
    for plan in PLANS:
        for kind in KINDS:
            assert set(offered(engine, plan, kind)) <= set(takes), plan


@pytest.mark.parametrize("engine", ["vllm", pytest.param("sglang", marks=pytest.mark.slow)])
def test_the_page_itself(engine: EngineName, tmp_path: Path) -> None:
    (text,) = (
        each
        for each in programs("how-to/python-scripts.md")
        if f"\nfrom {engine} " in each or f"\nimport {engine}\n" in each
    )
    (tmp_path / "answers.py").write_text(text)
    run = subprocess.run(
        [sys.executable, "-m", "medley", "run", "--engine", engine, "smollm2", str(tmp_path / "answers.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert [each["prompt"] for each in answers][:2] == ["The capital of France is", "Water boils at"]
    assert answers[0]["text"].startswith(" Paris")
    assert all(len(each["text"]) > 16 for each in answers), "sixteen tokens of more than a letter each"


@pytest.mark.slow
def test_ctrl_c_ends_an_engine_that_a_script_made(start: Start, tmp_path: Path) -> None:
    waits = '    print("made", flush=True)\n    __import__("time").sleep(600)\n    mine = '
    (tmp_path / "waits.py").write_text(programs("how-to/python-scripts.md")[0].replace("    mine = ", waits))
    run = start(Command((sys.executable, "-m", "medley", "run", "demo", str(tmp_path / "waits.py"))))
    wait_for(
        "the script has made its engine, or ends",
        lambda: "made" in run.lines or run.process.poll() is not None,
        READY_LIMIT_S,
        state=run.tail,
    )
    assert run.process.poll() is None, run.tail()
    assert run.interrupt() == 130
