"""vLLM's own configuration classes take the recorded commands, and refuse wrong ones; no GPU is needed.

The environment is that for GPUs, whose release the commands are for; a declared GPU stands in for a real one.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks import kernel_choice, model_configs
from medley import config, process
from medley.command import UNSET_VARIABLES, Command
from medley.environment import virtualenv
from medley.environment.virtualenv import Environment
from medley.errors import Problem
from medley.host_schema import ENGINE_TABLES
from tools.dry_runs import DryRun, cases, last_step

pytestmark = [pytest.mark.engine, pytest.mark.slow]
PROGRAM = Path(kernel_choice.__file__).with_name("declared_vllm.py")
LIMIT_S = 1500
_RAY = ("--distributed-executor-backend", "ray")


@dataclass(frozen=True)
class Asked:
    """A command for a model on a GPU; `says` is of its refusal, where it is wrong."""

    model: str
    words: tuple[str, ...]
    capability: str = "12.1"
    variables: tuple[tuple[str, str], ...] = ()
    says: str | None = None

    def table(self, folder: Path) -> dict[str, Any]:
        at = model_configs.write(self.model, folder)
        variables = dict.fromkeys((table.partition_variable for table in ENGINE_TABLES.values()), "") | dict(
            self.variables
        )
        return {"words": [str(at), *self.words], "variables": variables}


WRONG = (
    Asked("deepseek-v4-flash", (*_RAY, "--tensor-parallel-size", "3"), says="divisible"),
    Asked("qwen3.8-flash-next-fp8", (*_RAY, "--pipeline-parallel-size", "2"), says="ipeline"),
    Asked(
        "qwen3-coder-next", ("--tensor-parallel-size", "2"), says="larger than the number of available GPUs"
    ),
    Asked("qwen3.8-27b", ("--max-model-len", "524288"), says="max_model_len"),
    Asked("minimax-m2.7", ("--enable-eplb",), says="expert"),
)


def recorded() -> dict[Asked, DryRun]:
    """Return vLLM's commands in the table, each with the first case that has it."""
    found: dict[Asked, DryRun] = {}
    for case in (each for each in cases() if each.engine == "vllm"):
        try:
            step = last_step(case)
        except Problem:
            continue
        made = step.started_process.command
        cut = tuple(
            (name, made.env[name])
            for name in (each.partition_variable for each in ENGINE_TABLES.values())
            if name in made.env
        )
        at = config.load_hosts()[step.host.rpartition("-")[0]].capability or "12.0"
        found.setdefault(Asked(case.model, tuple(made.argv[3:]), at, cut), case)
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Environment, Path]:
    """Return the environment, and a folder with a libcuda.so.1 without a function."""
    found = virtualenv.find_environment("vllm-cuda")
    if found is None:
        pytest.skip("vllm-cuda is not built here: medley env build vllm-cuda (10 GB)")
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler, for a libcuda.so.1 where there is no driver")
    return found, tmp_path_factory.mktemp("configured")


def answers(asked: Sequence[Asked], built: tuple[Environment, Path]) -> list[dict[str, Any]]:
    """Return the answers in the order of the commands; a process declares one capability."""
    environment, folder = built
    found: dict[Asked, dict[str, Any]] = {}
    for capability in dict.fromkeys(each.capability for each in asked):
        cases = [each for each in asked if each.capability == capability]
        file = folder / "cases.json"
        file.write_text(json.dumps([each.table(folder) for each in cases]))
        argv = (str(environment.python), str(PROGRAM), capability, str(file))
        lines: list[str] = []
        command = Command(argv, kernel_choice.variables(environment, folder), UNSET_VARIABLES)
        finished = process.run(command, limit_s=LIMIT_S, on_line=lines.append)
        printed = [json.loads(line) for line in lines if line.startswith('{"')]
        assert finished.status == 0, lines[-20:]
        found |= zip(cases, printed, strict=True)
    return [found[each] for each in asked]


def test_vllm_is_configured_by_every_recorded_command_and_by_no_wrong_one(
    built: tuple[Environment, Path],
) -> None:
    made = recorded()
    assert len(made) >= 30
    asked = [*made, *WRONG]
    wrong = {}
    for one, answer in zip(asked, answers(asked, built), strict=True):
        error = answer["error"]
        if one.says is not None:
            right = one.says in (error or "")
        else:
            over_ray = "--distributed-executor-backend" in one.words
            longest = config.load_models()[one.model].shape
            at = (answer.get("ranks"), answer.get("launcher") == "ray", answer.get("context"))
            right = at == (ranks(one.words), over_ray, longest and longest.context)
            # DeepSeek V4's layers choose theirs by themselves.
            right = right and bool(answer["attention"] or one.model.startswith("deepseek-v4"))
        if not right:
            wrong[str(made.get(one, one))] = answer
    assert not wrong


def test_a_table_names_the_capabilities_that_have_an_attention_backend(
    built: tuple[Environment, Path],
) -> None:
    """Of an Orin, a Thor, an RTX and a Spark; other GPUs' backends want to see one when they are imported."""
    gpus = ("8.7", "11.0", "12.0", "12.1")
    kv_types = {"glm-5.3": "fp8", "glm-5.3-flash-nvfp4": "auto"}
    asked = [
        Asked(model, (*_RAY, "--tensor-parallel-size", "2", "--kv-cache-dtype", kv_type), gpu)
        for model, kv_type in kv_types.items()
        for gpu in gpus
    ]
    for one, answer in zip(asked, answers(asked, built), strict=True):
        shape = config.load_models()[one.model].shape
        assert shape
        known = one.capability.partition(".")[0] in shape.capabilities.vllm
        assert bool(answer["attention"]) == known, (one, answer)


def ranks(words: Sequence[str]) -> int:
    sizes = dict(pairwise(words))
    return int(sizes.get("--tensor-parallel-size", 1)) * int(sizes.get("--pipeline-parallel-size", 1))
