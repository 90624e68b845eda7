"""Record the commands that this autumn's models start on Sparks, Thors and mixed groups, with both engines.

python -m tools.dry_runs   write them all again; then review: git diff tests/engine/dry_runs.txt

Each line is the command of the first rank, less the variables of network and toolchain, or what lacks.
"""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from medley import config
from medley.environment.payload import FOLDER as PAYLOAD
from medley.errors import Problem
from medley.host_schema import ENGINE_TABLES
from medley.planner.placement import PlacementOptions
from medley.schema import EngineName
from medley.serving.typed_commands import LaunchStep
from tests.planner.imagined import launch_steps, site

TABLE = Path(__file__).parents[1] / "tests" / "engine" / "dry_runs.txt"
FAMILIES = (
    *("glm-5.3-flash", "glm-5.3", "deepseek-v4-flash", "deepseek-v4.1-flash", "qwen3.8-27b"),
    *("qwen3.8-flash-next", "qwen3-coder-next", "minimax-m2.7", "minimax-m3", "mimo-v2-flash", "kimi-k3"),
    "nemotron-3-nano",
)
CLUSTERS = ("spark", "spark:2", "thor:2", "spark:2,thor", "spark,rtx")
ENGINES: tuple[EngineName, ...] = ("vllm", "sglang")
REFUSED = "refused:"


@dataclass(frozen=True)
class DryRun:
    model: str
    cluster: str
    engine: EngineName

    def __str__(self) -> str:
        return f"{self.model} --hosts {self.cluster} --engine {self.engine}"


def models() -> list[str]:
    """Return every table of these families, quantized builds too."""
    return [name for name in config.load_models() if name.startswith(FAMILIES)]


def cases(clusters: Iterable[str] = CLUSTERS) -> Iterator[DryRun]:
    for cluster in clusters:
        yield from (DryRun(model, cluster, engine) for model in models() for engine in ENGINES)


def last_step(case: DryRun) -> LaunchStep:
    """Return what is started last, on the first host; raise the Problem of a model that cannot run there."""
    hosts = site(case.cluster, engine=case.engine)
    return launch_steps(case.model, hosts, PlacementOptions(engine=case.engine))[-1]


def line(case: DryRun) -> str:
    try:
        made = last_step(case).started_process.command
    except Problem as problem:
        lacks = " | ".join(each.strip() for each in problem.cause.splitlines()[:2])
        return f"{case} | {REFUSED} {problem.what} | {lacks}"
    cut = [
        f"{name}={made.env[name]}"
        for name in (each.partition_variable for each in ENGINE_TABLES.values())
        if name in made.env
    ]
    words = [word.removeprefix(f"{PAYLOAD}/") for word in made.argv]
    return f"{case} | {' '.join((*cut, shlex.join(words)))}"


def main() -> None:
    TABLE.write_text("".join(f"{line(case)}\n" for case in cases()), encoding="utf-8")


if __name__ == "__main__":
    main()
