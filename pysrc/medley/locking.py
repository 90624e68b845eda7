"""Locking is how users make a lock of their own: uv chooses for their machine, their tables keep it."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from medley import build, config, machine, pip_config, resolved, store, uv
from medley.command import Command
from medley.interpreter import Interpreter
from medley.problem import Problem
from medley.resolved import Pin
from medley.watch import Watch

_NAME = re.compile(r"[a-z][a-z0-9.-]*")
# uv's words where an index has the package, and no file for this Python or this machine.
_TAG = re.compile(
    r"(?:Because|and|that) (?:only )?(?P<name>[\w.-]+?)(?:\[[^]]*\])?(?:[=<>!~]+\S+)? "
    r"has no wheels with a matching "
)
_ABSENT = re.compile(r"Because (?P<name>[\w.-]+) was not found in the (?:package registry|provided)")
_UNSET = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Order:
    name: str
    requirements: tuple[str, ...]
    device: str
    overrides: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    """Looked into before this machine's own: what one of them has is taken from nowhere else."""


@dataclass(frozen=True)
class Locked:
    order: Order
    python: Interpreter
    pins: tuple[Pin, ...]

    @property
    def texts(self) -> dict[str, str]:
        """Of the two files, by their suffixes."""
        return {".txt": resolved.lock(self.order.name, self.pins), ".toml": self.recipe()}

    def recipe(self, disk_bytes: int | None = None) -> str:
        return resolved.recipe(
            self.pins,
            device=self.order.device,
            python=".".join(self.python.version.split(".")[:2]),
            system=f"{self.python.machine}-linux",
            indexes=self.order.indexes,
            day=datetime.now(UTC).date().isoformat(),
            disk_bytes=disk_bytes,
        )


def order(
    name: str,
    requirements: Sequence[str],
    device: str,
    *,
    overrides: Sequence[str] = (),
    indexes: Sequence[str] = (),
) -> Order:
    """What was asked for, or a Problem with what can be seen of it."""
    path = config.files("locks").get(name)
    if not _NAME.fullmatch(name) or (path and path.parent != folder()):
        raise Problem(
            f"{name!r} cannot be the name of a lock of your own",
            cause=f"it is that of {path}" if path else "a name is of small letters, digits, - and .",
            fix=f"medley env lock own-{re.sub(r'[^a-z0-9.-]', '-', name.lower()).strip('-') or 'vllm'} …",
        )
    return Order(name, tuple(requirements), device, tuple(overrides), tuple(map(_index, indexes)))


def _index(address: str) -> str:
    """Its address as uv takes it; the user's own table will hold it, so that no secret may be in it."""
    if "://" not in address and Path(address).expanduser().is_dir():
        return Path(address).expanduser().absolute().as_uri()
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https", "file"}:
        raise Problem(
            f"--index {address} is no package index",
            cause="it is no folder and begins with no http:// or https://",
            fix="--index https://HOST/PATH, of the page that lists packages (often …/simple)",
        )
    if parts.username or parts.password:
        raise Problem(
            "--index holds a password, and it would stand in a file and in other users' sight",
            cause=f"what is before the @ of {parts.hostname}",
            fix="put it into ~/.netrc (machine HOST login NAME password WORD), where uv finds it",
        )
    return address


def folder() -> Path:
    """Where a user's own locks are."""
    return config.folders()[0] / "locks"


def command(
    asked: Order, python: Interpreter, tool: str, scratch: Path, environ: Mapping[str, str] = os.environ
) -> Command:
    """That which resolves; wheels alone, for nothing of a stranger's is run to build one."""
    told = pip_config.variables(pip_config.read(environ, Path.home(), python.prefix), environ)
    told = pip_config.first(told, asked.indexes, environ)
    patience = {name: value for name, value in build.IMPATIENT.items() if name not in environ}
    overrides = ("--override", str(scratch / "overrides.txt")) if asked.overrides else ()
    compile_ = (tool, "pip", "compile", str(scratch / "requirements.in"), "--python", str(python.path))
    shape = ("--only-binary", ":all:", "--no-header", "--no-annotate", "--quiet")
    out = ("--output-file", str(scratch / "pylock.toml"))
    return Command((*compile_, *overrides, *shape, *out), {**patience, **told}, _UNSET)


def locked(asked: Order, python: Interpreter, tool: str, *, watch: Watch) -> Locked:
    """What uv chooses, now and here."""
    with tempfile.TemporaryDirectory(prefix="medley-lock-") as name:
        scratch = Path(name)
        (scratch / "requirements.in").write_text("\n".join(asked.requirements) + "\n", encoding="utf-8")
        (scratch / "overrides.txt").write_text("\n".join(asked.overrides) + "\n", encoding="utf-8")
        with watch.stage(f"choose versions for {python}"):
            finished = machine.run(command(asked, python, tool, scratch), on_line=watch.line)
        if finished.status:
            raise failure(asked.name, finished.status, finished.lines)
        found = resolved.pins((scratch / "pylock.toml").read_text(encoding="utf-8"))
    resolved.engine(found)
    return Locked(asked, python, found)


def failure(name: str, status: int, lines: Sequence[str]) -> Problem:
    """Why uv found no set of versions."""
    what, said = f"{name} cannot be locked", " ".join(line.strip() for line in lines)
    usual = uv.failure(name, status, lines, verb="lock")
    if "error: No solution" not in said and "No solution found" not in said:
        return usual
    if match := _TAG.search(said):
        return Problem(
            f"{what}: {match['name']} has no file for this Python and this machine",
            cause=usual.cause,
            fix="--python with one of the tags above (cp310 is 3.10), or --index of one that has such files",
        )
    if match := _ABSENT.search(said):
        return Problem(
            f"{what}: {match['name']} is on none of the indexes that were asked",
            cause=usual.cause,
            fix="mend its name, or name the index that has it: --index https://HOST/PATH",
        )
    return Problem(
        f"{what}: no versions fit together",
        cause=usual.cause,
        fix="--requirement with other versions, or --override NAME==VERSION of what packages disagree on;\n"
        "versions of several indexes mixed: export UV_INDEX_STRATEGY=unsafe-best-match",
    )


@contextmanager
def kept(found: Locked) -> Iterator[Path]:
    """The two files among the user's own tables; what was there comes back if what follows fails."""
    paths = {suffix: folder() / f"{found.order.name}{suffix}" for suffix in found.texts}
    before = {path: path.read_text(encoding="utf-8") for path in paths.values() if path.exists()}
    try:
        for suffix, text in found.texts.items():
            store.write(paths[suffix], text)
        yield paths[".txt"]
    except BaseException:
        for path in paths.values():
            if path in before:
                store.write(path, before[path])
            else:
                path.unlink(missing_ok=True)
        raise


def measured(found: Locked, environment: Path) -> None:
    """Its recipe says what it took of the disk."""
    taken = store.size_bytes(environment)
    store.write(folder() / f"{found.order.name}.toml", found.recipe(taken + taken // 10))
