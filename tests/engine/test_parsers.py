"""What is printed for a model is what the engine's own parser takes: no flag that is gone or ambiguous."""

import json
from pathlib import Path

import pytest

from medley import config, process
from medley.command import UNSET, Command
from medley.environment import virtualenv
from medley.errors import Problem
from medley.planner.candidates import Sizes
from medley.planner.placement import PlacementOptions
from medley.schema import EngineName
from tests.planner.test_placement import site
from tests.serving.test_steps import recipe

pytestmark = pytest.mark.engine
SCRIPT = Path(__file__).parent / "parse.py"
ENVIRONMENTS: dict[EngineName, str] = {"vllm": "vllm-cpu", "sglang": "sglang-cpu"}
ON = (
    ("spark", PlacementOptions(concurrency=4, context=8192, kv_type="fp8")),
    ("spark:2", PlacementOptions(sizes=Sizes(tensor=2))),
    ("spark,thor", PlacementOptions(sizes=Sizes(stages=2))),
    ("spark:2", PlacementOptions(sizes=Sizes(stages=2), launcher="mp", one_server=True)),
    ("spark:2", PlacementOptions(sizes=Sizes(replicas=2), launcher="mp", one_server=True)),
    ("cpu:2", PlacementOptions(sizes=Sizes(stages=2))),
)


def commands(engine: EngineName) -> list[list[str]]:
    """The words after the program and `serve` of all that a model starts, on all of these hosts."""
    found = []
    for name in config.models():
        for spec, wanted in ON:
            try:
                made = recipe(name, site(spec), wanted_by(wanted, engine))
            except Problem:  # it does not fit there, or this engine has no such launcher
                continue
            programs = [each.starts.command.argv for each in made]
            found += [argv[2:] for argv in programs if argv[1] == "serve"]
            found += [argv[2:] for argv in programs if argv[1].endswith("sglang_ray.py")]
    return [list(words) for words in found]


def wanted_by(wanted: PlacementOptions, engine: EngineName) -> PlacementOptions:
    from dataclasses import replace

    return replace(wanted, engine=engine)


@pytest.mark.parametrize("engine", ENVIRONMENTS)
def test_every_command_parses(engine: EngineName, tmp_path: Path) -> None:
    made = commands(engine)
    assert len(made) >= 40
    said = parsed(engine, [*made, ["/m", "--swap-space", "0"], ["/m", "--kv-cache-dtype", "fp7"]], tmp_path)
    *errors, gone, invalid = said
    assert gone is not None, "a parser that takes anything says nothing"
    assert invalid is not None
    wrong = {error: " ".join(words) for error, words in zip(errors, made, strict=True) if error}
    assert not wrong


def parsed(engine: EngineName, made: list[list[str]], folder: Path) -> list[str | None]:
    file = folder / "commands.json"
    if engine == "sglang":
        made = [["--model-path", *words] for words in made]
    file.write_text(json.dumps(made))
    environment = virtualenv.ready(ENVIRONMENTS[engine])
    env = {"SGLANG_USE_CPU_ENGINE": "1"} if engine == "sglang" else {}
    command = Command((str(environment.python), str(SCRIPT), engine, str(file)), env, UNSET)
    lines: list[str] = []
    finished = process.run(command, limit_s=180, on_line=lines.append)
    assert finished.status == 0, lines[-20:]
    answers: list[str | None] = json.loads(next(line for line in reversed(lines) if line.startswith("[")))
    return answers
