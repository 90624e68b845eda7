"""Whether the engines' own parsers take the command for every table on every kind of host.

    .venv/bin/medley env build vllm-cuda                  # 10 GB; it needs no GPU
    .venv/bin/python -m benchmarks.dry_runs --write       # writes benchmarks/results/dry_runs.txt

Of each kind 1, 2 and 4 hosts are tried, and the first number that fits is shown. The commands are parsed,
not run: by vLLM's parser of the environment for GPUs, and by SGLang's of that for CPUs, the same release.
"""

import argparse
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from medley import config
from medley.environment import virtualenv
from medley.errors import Problem
from medley.planner.placement import PlacementOptions
from medley.progress import SILENT
from medley.schema import EngineName
from medley.serving.engine_release import run_parser
from tests.planner.imagined import launch_steps, site

KINDS = ("spark", "thor", "orin-r39", "rtx")
COUNTS = (1, 2, 4)
PARSERS: Mapping[EngineName, str] = {"vllm": "vllm-cuda", "sglang": "sglang-cpu"}
RESULT = Path(__file__).parent / "results" / "dry_runs.txt"


@dataclass(frozen=True)
class Cell:
    model: str
    kind: str
    engine: EngineName
    hosts: int = 0
    """0: refused on every number of hosts."""
    words: tuple[str, ...] = ()
    """The engine's own, as its parser gets them."""
    variables: tuple[tuple[str, str], ...] = ()
    """Those of the command."""


def cells(engines: Collection[EngineName] = tuple(PARSERS), kinds: Collection[str] = KINDS) -> Iterator[Cell]:
    for model, table in config.load_models().items():
        if table.shape:
            yield from (_cell(model, kind, engine) for kind in kinds for engine in engines)


def _cell(model: str, kind: str, engine: EngineName) -> Cell:
    for count in COUNTS:
        try:
            hosts = site(f"{kind}:{count}", engine=engine)
            command = launch_steps(model, hosts, PlacementOptions(engine=engine))[-1].started_process.command
        except Problem:
            continue
        prefix = ("--model-path",) if engine == "sglang" else ()
        return Cell(model, kind, engine, count, (*prefix, *command.argv[2:]), tuple(command.env.items()))
    return Cell(model, kind, engine)


def errors(every: list[Cell], engine: EngineName) -> dict[Cell, str]:
    """Return the parser's error for each command that it refuses."""
    environment = virtualenv.find_environment(PARSERS[engine])
    if environment is None:
        sys.exit(f"{PARSERS[engine]} is not built here: medley env build {PARSERS[engine]}")
    commands = [each for each in every if each.engine == engine and each.words]
    found = run_parser(
        environment,
        config.load_recipes()[PARSERS[engine]],
        [each.words for each in commands],
        progress=SILENT,
    )["errors"]
    return {each: error for each, error in zip(commands, found, strict=True) if error}


def lines(every: list[Cell]) -> Iterator[str]:
    refused = {cell: error for engine in PARSERS for cell, error in errors(every, engine).items()}
    columns = [(kind, engine) for kind in KINDS for engine in PARSERS]
    yield "Number of hosts of the first command that fits; - : refused by the plan. Parsed, not run."
    yield ""
    yield f"{'':36}" + "".join(f"{kind + ' ' + engine:>18}" for kind, engine in columns)
    by_place = {(each.model, each.kind, each.engine): each for each in every}
    for model in dict.fromkeys(each.model for each in every):
        row = [by_place[model, kind, engine] for kind, engine in columns]
        shown = ["ERROR" if each in refused else str(each.hosts or "-") for each in row]
        yield f"{model:36}" + "".join(f"{each:>18}" for each in shown)
    yield ""
    taken = sum(bool(each.words) for each in every) - len(refused)
    yield f"{taken} commands are taken by their engine's parser, {len(refused)} are not."
    yield from (f"{cell.model} on {cell.kind} with {cell.engine}: {error}" for cell, error in refused.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    asked = parser.parse_args()
    text = "\n".join(lines(list(cells()))) + "\n"
    print(text, end="")
    if asked.write:
        RESULT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
