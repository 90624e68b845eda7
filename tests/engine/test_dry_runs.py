"""The recorded commands of this autumn's models are those of today, and the engines' parsers take them."""

from collections.abc import Mapping

import pytest

from medley import config
from medley.environment import virtualenv
from medley.environment.virtualenv import Environment
from medley.errors import Problem
from medley.progress import SILENT
from medley.schema import EngineName
from medley.serving.engine_release import run_parser
from tools.dry_runs import CLUSTERS, FAMILIES, REFUSED, TABLE, cases, last_step, line, models

AGAIN = "python -m tools.dry_runs, then review git diff tests/engine/dry_runs.txt"
ENVIRONMENTS: Mapping[str, EngineName] = {"vllm-cuda": "vllm", "vllm-cpu": "vllm", "sglang-cpu": "sglang"}


@pytest.mark.parametrize(
    "cluster",
    [
        each if each in {"spark:2", "spark,rtx"} else pytest.param(each, marks=pytest.mark.slow)
        for each in CLUSTERS
    ],
)
def test_a_command_is_as_recorded(cluster: str) -> None:
    known = [each for each in TABLE.read_text().splitlines() if f" --hosts {cluster} --engine " in each]
    assert [line(case) for case in cases((cluster,))] == known, AGAIN


def test_every_family_has_commands_or_what_lacks() -> None:
    lines = TABLE.read_text().splitlines()
    assert [each.partition(" | ")[0] for each in lines] == [str(case) for case in cases()], AGAIN
    assert all(any(name.startswith(family) for name in models()) for family in FAMILIES)
    refused = [each for each in lines if f" | {REFUSED} " in each]
    lacks = (
        "GiB short",
        "no attention backend",
        "no shape",
        "cooperative_topk",
        "no proven MXFP4 kernel",
        "sparse attention",
    )
    assert not [each for each in refused if not any(word in each for word in lacks)]
    assert len(lines) - len(refused) >= 90


@pytest.mark.engine
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_engines_parser_takes_every_command(name: str) -> None:
    words = [list(argv) for argv in commands(ENVIRONMENTS[name])]
    assert len(words) >= 25
    wrong = [["--model-path"] * (name == "sglang-cpu") + ["/m", "--tensor-parallel-size", "two"]]
    answer = run_parser(environment(name), config.load_recipes()[name], [*words, *wrong], progress=SILENT)
    *errors, refused = answer["errors"]
    assert refused is not None, "a parser that takes anything shows nothing"
    assert not {error: " ".join(each) for error, each in zip(errors, words, strict=True) if error}


def environment(name: str) -> Environment:
    """Return it; an environment for GPUs is used only where somebody has built it, for it takes 10 GB."""
    found = (
        virtualenv.find_environment(name) if name.endswith("-cuda") else virtualenv.prepare_environment(name)
    )
    if found is None:
        pytest.skip(f"{name} is not built here: medley env build {name}")
    return found


def commands(engine: EngineName) -> set[tuple[str, ...]]:
    """The words after the program, and after `serve`, of all that is not refused."""
    found = set()
    for case in cases():
        if case.engine == engine:
            try:
                argv = last_step(case).started_process.command.argv
            except Problem:
                continue
            over_ray = argv[1].endswith("sglang_ray.py")
            found.add((*(("--model-path",) if engine == "sglang" else ()), *argv[2:]))
            assert over_ray or argv[1] == "serve", argv
    return found
