"""Update a lock to another release of its engine, tested on this host (`medley env raise`)."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from medley import config, json_shape, process, storage
from medley.command import UNSET, Command
from medley.engine import Serving
from medley.engine.launch import ENGINES
from medley.environment import lock, relock, toolkit, verify, virtualenv
from medley.environment.payload import FOLDER
from medley.environment.relock import Release
from medley.environment.toolkit import add_libcuda
from medley.environment.virtualenv import Environment
from medley.errors import Problem
from medley.host.kind import detect_kind
from medley.host_schema import Recipe
from medley.planner.plan import Nodes, Plan
from medley.progress import Progress
from medley.schema import EngineName
from medley.serving import answer_check
from medley.serving.answers import Comparison

_PARSE_LIMIT_S = 300
# Plans of every kind: one rank, a pipeline, tensor and expert parallel, replicas.
_PLANS = (
    Plan(),
    Plan(eager=True, sequences=4, dtype="float32"),
    Plan(eager=True, stages=2, partition="1,1", launcher="ray", places=("10.0.0.1", "10.0.0.2")),
    Plan(tensor_parallel=2, launcher="ray", places=("10.0.0.1", "10.0.0.2")),
    Plan(tensor_parallel=2, expert_parallel=True, launcher="mp", nodes=Nodes(2, 1, "10.0.0.1", 24011)),
    Plan(replicas=2, launcher="mp", nodes=Nodes(2, 0, "10.0.0.1", 24011)),
    Plan(kv_cache_bytes=1 << 30, kv_type="fp8", context=8192, sequences=8, batch_tokens=2048),
    Plan(memory_utilization=0.9, static_share=0.8, kv_cache_tokens=4096),
)


@dataclass(frozen=True)
class Proof:
    """The changes of a release, and the results of its tests on this host."""

    release: Release
    environment: Path
    gone: tuple[str, ...]
    """Flags that only the old release has."""
    new: tuple[str, ...]
    commands: int
    """Number of medley's commands that the new release's parser accepts."""
    ran: str
    """The comparison of answers, or why nothing was run."""


def raise_lock(name: str, version: str | None, *, watch: Progress) -> Proof:
    """Write the lock for the release once it passes; a Problem leaves the files unchanged."""
    release = relock.resolve_release(name, version, watch=watch)
    recipe = config.recipes()[name]
    _, here = detect_kind()
    runs = recipe.device in {"cpu", here.host.device}
    chain = add_libcuda(toolkit.find_toolkit(here.name, watch=watch), here.host)
    asked = commands(recipe.engine)

    def built() -> Environment:
        return virtualenv.prepare_environment(name, chain, driver=here.host.driver, watch=watch)

    known = flag_names(parse(built(), recipe, (), watch=watch))
    with lock.write_files(release.new_texts):
        made = built()
        if runs and (wrong := verify.find_problem(verify.prove_environment(made, chain, watch), name)):
            raise wrong
        answer = parse(made, recipe, asked, watch=watch)
        knows = flag_names(answer)
        _require_parsed(release, answer["errors"], asked)
        ran = f"not run: this host has no {recipe.device} device"
        if runs:
            ran = _require_right(release, answer_check.compare_answers(name, None, watch))
        storage.write(parser_file(release, recipe.engine), parser_text(answer))
    gone, new = sorted({*known} - {*knows}), sorted({*knows} - {*known})
    return Proof(release, made.path, tuple(gone), tuple(new), len(asked), ran)


def commands(engine: EngineName) -> list[list[str]]:
    """Return the words after `serve` for every model, kind of host and kind of plan."""
    speaks = ENGINES[engine]
    kinds = [host for host in config.hosts().values() if engine in host.environments]
    found = []
    for (name, model), plan, host in product(config.models().items(), _PLANS, kinds):
        serving = Serving("/m", name)
        flags = speaks.list_flags(serving, plan, host, model)
        words = [word for flag in flags for word in flag.argv()]
        found.append([*speaks.PARSER_MODEL_FLAGS, "/m", *words])
    return [list(words) for words in dict.fromkeys(map(tuple, found))]


def parse(
    environment: Environment, recipe: Recipe, asked: Sequence[Sequence[str]], *, watch: Progress
) -> dict[str, Any]:
    """Return what `parse_flags` prints: the engine's flags and variables, and its error for each command."""
    with (
        tempfile.TemporaryDirectory(prefix="medley-raise-") as scratch,
        watch.stage(f"run the parser of {environment.path.name}"),
    ):
        file = Path(scratch) / "commands.json"
        file.write_text(json.dumps([list(words) for words in asked]), encoding="utf-8")
        env = {"SGLANG_USE_CPU_ENGINE": "1"} if (recipe.engine, recipe.device) == ("sglang", "cpu") else {}
        argv = (str(environment.python), str(FOLDER / "parse_flags.py"), recipe.engine, str(file))
        lines: list[str] = []  # all lines, because the answer is a long one
        finished = process.run(Command(argv, env, UNSET), limit_s=_PARSE_LIMIT_S, on_line=lines.append)
    table = json_shape.last_table(lines)
    if finished.status or table is None:
        raise Problem(
            f"the parser of {environment.path.name} does not run",
            cause="\n".join(lines[-6:]) or f"its Python exited with {finished.status}",
            fix="the release moved it: adapt pysrc/medley/environment/payload/parse_flags.py",
        )
    return table


def flag_names(answer: Mapping[str, Any]) -> list[str]:
    return [name for rule in answer["flags"] for name in rule["names"]]


def parser_file(release: Release, engine: EngineName) -> Path:
    lock = next(path for path in release.new_texts if path.suffix == ".txt")
    return lock.parent / "parsers" / f"{engine}-{release.new_version.partition('+')[0]}.json"


def parser_text(answer: Mapping[str, Any]) -> str:
    """Return the text of a release's file in locks/parsers: one flag a line, so that a change is readable."""
    flags = ",\n".join(json.dumps(rule) for rule in sorted(answer["flags"], key=lambda rule: rule["names"]))
    names = ",\n".join(json.dumps(name) for name in answer["variables"])
    version = json.dumps(answer["version"].partition("+")[0])
    return f'{{"version": {version},\n"flags": [\n{flags}\n],\n"variables": [\n{names}\n]}}\n'


def _require_parsed(release: Release, errors: Sequence[str | None], asked: Sequence[Sequence[str]]) -> None:
    wrong = {error: words for error, words in zip(errors, asked, strict=True) if error}
    if wrong:
        shown = [f"{error}   # {' '.join(words)}" for error, words in list(wrong.items())[:4]]
        raise Problem(
            f"{release.distribution} {release.new_version} rejects medley's flags; "
            f"{release.name} is unchanged",
            cause="\n".join(shown),
            fix="adapt pysrc/medley/engine/ or models/, then: "
            f"medley env raise {release.name} {release.new_version}",
        )


def _require_right(release: Release, found: Sequence[Comparison]) -> str:
    """Say what was compared; raise a Problem where an answer is not the reference's."""
    title = f"{release.distribution} {release.new_version}"
    answer_check.require_right(
        found,
        f"{title} answers differently; {release.name} is unchanged",
        fix=f"compare the two releases by hand; then change locks/ by: python locks/remake.py {release.name}",
    )
    tokens = sum(each.equal for each in found)
    return f"the answers of transformers: {len(found)} conversations, {tokens} tokens in float32"
