"""Update a lock to another release of its engine, tested on this host (`medley env raise`)."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from medley import config, json_shape, process, storage
from medley.command import UNSET_VARIABLES, Command
from medley.engine.launch import ENGINES
from medley.engine.server_spec import ServerSpec
from medley.environment import lock, relock, toolkit, verify, virtualenv
from medley.environment.payload import FOLDER
from medley.environment.relock import LockRelease
from medley.environment.toolkit import add_libcuda
from medley.environment.virtualenv import Environment
from medley.errors import Problem
from medley.host.kind import detect_host
from medley.host_schema import Recipe
from medley.planner.plan import NodeProcess, Plan
from medley.progress import Progress
from medley.schema import EngineName
from medley.serving import answer_check
from medley.serving.answers import Comparison
from medley.values import Value

_PARSE_LIMIT_S = 300
# One plan of each kind: one rank, a pipeline, tensor and expert parallel, replicas.
_PLANS = (
    Plan(),
    Plan(is_eager=True, sequences=4, dtype="float32"),
    Plan(
        is_eager=True,
        stages=2,
        layer_partition="1,1",
        launcher="ray",
        rank_addresses=("10.0.0.1", "10.0.0.2"),
    ),
    Plan(tensor_parallel=2, launcher="ray", rank_addresses=("10.0.0.1", "10.0.0.2")),
    Plan(
        tensor_parallel=2,
        expert_parallel=True,
        launcher="mp",
        node_process=NodeProcess(2, 1, "10.0.0.1", 24011),
    ),
    Plan(replicas=2, launcher="mp", node_process=NodeProcess(2, 0, "10.0.0.1", 24011)),
    Plan(kv_cache_bytes=1 << 30, kv_type="fp8", context=8192, sequences=8, batch_tokens=2048),
    Plan(memory_utilization=0.9, static_share=0.8, kv_cache_tokens=4096),
)


class UpgradeResult(Value):
    """The changes of an engine release, and the results of its tests on this host."""

    release: LockRelease
    environment: Path
    removed_flags: tuple[str, ...]
    """Flags that only the old release has."""
    added_flags: tuple[str, ...]
    command_count: int
    """Number of medley's commands that the new release's parser accepts."""
    answers_result: str
    """The result of comparing answers, or the reason why no model was run."""


def upgrade_lock(name: str, version: str | None, *, progress: Progress) -> UpgradeResult:
    """Write the lock for the release once its tests pass; a Problem leaves the files unchanged."""
    release = relock.resolve_release(name, version, progress=progress)
    recipe = config.load_recipes()[name]
    kind = detect_host().kind
    can_run = recipe.device in {"cpu", kind.table.device}
    host_toolkit = add_libcuda(toolkit.find_toolkit(kind.name, progress=progress), kind.table)
    parser_commands = list_parser_commands(recipe.engine)

    def build_environment() -> Environment:
        return virtualenv.prepare_environment(name, host_toolkit, driver=kind.table.driver, progress=progress)

    old_flags = list_flag_names(run_parser(build_environment(), recipe, (), progress=progress))
    with lock.write_files(release.new_texts):
        environment = build_environment()
        if can_run and (
            problem := verify.find_problem(
                verify.prove_environment(environment, host_toolkit, progress), name
            )
        ):
            raise problem
        parser_output = run_parser(environment, recipe, parser_commands, progress=progress)
        new_flags = list_flag_names(parser_output)
        _require_accepted_flags(release, parser_output["errors"], parser_commands)
        answers_result = f"not run: this host has no {recipe.device} device"
        if can_run:
            answers_result = _summarize_answers(release, answer_check.compare_answers(name, None, progress))
        storage.write_text(find_parser_file(release, recipe.engine), format_parser(parser_output))
    removed_flags, added_flags = sorted({*old_flags} - {*new_flags}), sorted({*new_flags} - {*old_flags})
    return UpgradeResult(
        release,
        environment.path,
        tuple(removed_flags),
        tuple(added_flags),
        len(parser_commands),
        answers_result,
    )


def list_parser_commands(engine: EngineName) -> list[list[str]]:
    """Return the words after `serve` for every model, kind of host and kind of plan."""
    engine_module = ENGINES[engine]
    kinds = [host for host in config.load_hosts().values() if engine in host.environments]
    parser_commands = []
    for (name, model), plan, host in product(config.load_models().items(), _PLANS, kinds):
        serving = ServerSpec("/m", name)
        flags = engine_module.list_flags(serving, plan, host, model)
        words = [word for flag in flags for word in flag.build_argv()]
        parser_commands.append([*engine_module.PARSER_MODEL_FLAGS, "/m", *words])
    return [list(words) for words in dict.fromkeys(map(tuple, parser_commands))]


def run_parser(
    environment: Environment, recipe: Recipe, parser_commands: Sequence[Sequence[str]], *, progress: Progress
) -> dict[str, Any]:
    """Return what `parse_flags` prints: the engine's flags and variables, and its error for each command."""
    with (
        tempfile.TemporaryDirectory(prefix="medley-raise-") as scratch,
        progress.stage(f"run the parser of {environment.path.name}"),
    ):
        file = Path(scratch) / "commands.json"
        file.write_text(json.dumps([list(words) for words in parser_commands]), encoding="utf-8")
        variables = (
            {"SGLANG_USE_CPU_ENGINE": "1"} if (recipe.engine, recipe.device) == ("sglang", "cpu") else {}
        )
        argv = (str(environment.python), str(FOLDER / "parse_flags.py"), recipe.engine, str(file))
        lines: list[str] = []  # all lines, because the answer is a long one
        finished = process.run(
            Command(argv, variables, UNSET_VARIABLES), limit_s=_PARSE_LIMIT_S, on_line=lines.append
        )
    table = json_shape.parse_last_object(lines)
    if finished.status or table is None:
        raise Problem(
            f"the parser of {environment.path.name} does not run",
            cause="\n".join(lines[-6:]) or f"its Python exited with {finished.status}",
            fix="the release moved it: adapt pysrc/medley/environment/payload/parse_flags.py",
        )
    return table


def list_flag_names(parser_output: Mapping[str, Any]) -> list[str]:
    return [name for rule in parser_output["flags"] for name in rule["names"]]


def find_parser_file(release: LockRelease, engine: EngineName) -> Path:
    lock_file = next(path for path in release.new_texts if path.suffix == ".txt")
    return lock_file.parent / "parsers" / f"{engine}-{release.new_version.partition('+')[0]}.json"


def format_parser(parser_output: Mapping[str, Any]) -> str:
    """Return the text of a release's file in locks/parsers: one flag a line, so that a change is readable."""
    flags = ",\n".join(
        json.dumps(rule) for rule in sorted(parser_output["flags"], key=lambda rule: rule["names"])
    )
    names = ",\n".join(json.dumps(name) for name in parser_output["variables"])
    version = json.dumps(parser_output["version"].partition("+")[0])
    return f'{{"version": {version},\n"flags": [\n{flags}\n],\n"variables": [\n{names}\n]}}\n'


def _require_accepted_flags(
    release: LockRelease, errors: Sequence[str | None], parser_commands: Sequence[Sequence[str]]
) -> None:
    words_by_error = {error: words for error, words in zip(errors, parser_commands, strict=True) if error}
    if words_by_error:
        lines = [f"{error}   # {' '.join(words)}" for error, words in list(words_by_error.items())[:4]]
        raise Problem(
            f"{release.distribution} {release.new_version} rejects medley's flags; "
            f"{release.name} is unchanged",
            cause="\n".join(lines),
            fix="adapt pysrc/medley/engine/ or models/, then: "
            f"medley env raise {release.name} {release.new_version}",
        )


def _summarize_answers(release: LockRelease, comparisons: Sequence[Comparison]) -> str:
    """Return a sentence on the compared answers; raise a Problem if one differs from the reference."""
    title = f"{release.distribution} {release.new_version}"
    answer_check.require_correct_answers(
        comparisons,
        f"{title} answers differently; {release.name} is unchanged",
        fix=f"compare the two releases by hand; then change locks/ by: python locks/remake.py {release.name}",
    )
    tokens = sum(comparison.equal_tokens for comparison in comparisons)
    return f"the answers of transformers: {len(comparisons)} conversations, {tokens} tokens in float32"
