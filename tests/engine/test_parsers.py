"""What is printed for a model is what the engine's own parser takes: no flag that is gone or ambiguous."""

import pytest

from medley import config
from medley.environment import virtualenv
from medley.errors import Problem
from medley.planner.candidates import ForcedSizes
from medley.planner.placement import PlacementOptions
from medley.progress import SILENT
from medley.schema import EngineName
from medley.serving.engine_release import run_parser
from tests.planner.imagined import launch_steps, site

pytestmark = pytest.mark.engine
ENVIRONMENTS: dict[EngineName, str] = {"vllm": "vllm-cpu", "sglang": "sglang-cpu"}
ON = (
    ("spark", PlacementOptions(concurrency=4, context=8192, kv_type="fp8")),
    ("spark:2", PlacementOptions(sizes=ForcedSizes(tensor_parallel=2))),
    ("spark,thor", PlacementOptions(sizes=ForcedSizes(stages=2))),
    ("spark:2", PlacementOptions(sizes=ForcedSizes(stages=2), launcher="mp", needs_one_server=True)),
    ("spark:2", PlacementOptions(sizes=ForcedSizes(replicas=2), launcher="mp", needs_one_server=True)),
    ("cpu:2", PlacementOptions(sizes=ForcedSizes(stages=2))),
)


def commands(engine: EngineName) -> list[list[str]]:
    """The words after the program and `serve` of all that a model starts, on all of these hosts."""
    found = []
    for name, model in config.load_models().items():
        if model.shape is None and model.made is None:  # planned once its files are there
            continue
        for spec, wanted in ON:
            try:
                made = launch_steps(name, site(spec), wanted_by(wanted, engine))
            except Problem:  # it does not fit there, or this engine has no such launcher
                continue
            programs = [each.started_process.command.argv for each in made]
            found += [argv[2:] for argv in programs if argv[1] == "serve"]
            found += [argv[2:] for argv in programs if argv[1].endswith("sglang_ray.py")]
    return [list(words) for words in found]


def wanted_by(wanted: PlacementOptions, engine: EngineName) -> PlacementOptions:

    return wanted.replace(engine=engine)


@pytest.mark.parametrize("engine", ENVIRONMENTS)
def test_every_command_parses(engine: EngineName) -> None:
    made = commands(engine)
    assert len(made) >= 40
    said = parsed(engine, [*made, ["/m", "--swap-space", "0"], ["/m", "--kv-cache-dtype", "fp7"]])
    *errors, gone, invalid = said
    assert gone is not None, "a parser that takes anything says nothing"
    assert invalid is not None
    wrong = {error: " ".join(words) for error, words in zip(errors, made, strict=True) if error}
    assert not wrong


def parsed(engine: EngineName, made: list[list[str]]) -> list[str | None]:
    if engine == "sglang":
        made = [["--model-path", *words] for words in made]
    name = ENVIRONMENTS[engine]
    return list(
        run_parser(virtualenv.prepare_environment(name), config.load_recipes()[name], made, progress=SILENT)[
            "errors"
        ]
    )
