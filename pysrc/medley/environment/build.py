"""Build an engine environment from a hashed lock.

It is made where it stays, because a virtualenv holds its own path. A manifest, written last, distinguishes a
finished one from an unfinished one, and any failure removes the folder.
"""

import datetime as dt
import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import process, storage, user
from medley.command import Command
from medley.environment import cuda_folder, patches, uv
from medley.environment.interpreter import Interpreter
from medley.environment.patches import Preload
from medley.environment.toolkit import Loader
from medley.errors import Problem, in_words
from medley.host_schema import Recipe
from medley.progress import Progress

MANIFEST = "medley.json"
# So that a network that drops everything is a Problem in seconds; only for the look-up: downloads falter.
_IMPATIENT = {"UV_HTTP_CONNECT_TIMEOUT": "2", "UV_HTTP_RETRIES": "2"}
_LOAD_LIMIT_S = 20
UNSET = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True)
class Blueprint:
    """Everything that shapes one environment on this host."""

    name: str
    recipe: Recipe
    lock: Path
    interpreter: Interpreter
    preload: Preload
    loader: Loader | None
    """What programs are patched to, on NixOS."""
    uv: str
    parts: Mapping[str, Any]
    digest: str
    path: Path

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return self.path / "lib" / f"python{self.recipe.python}" / "site-packages"


def create(plan: Blueprint) -> Command:
    words = ("venv", "--no-project", "--prompt", plan.name, "--python", str(plan.interpreter.path))
    return Command((plan.uv, *words, str(plan.path)), uv.own_configuration(os.environ, user.home()))


def install(plan: Blueprint, settings: Mapping[str, str], *, backend: bool, look: bool = False) -> Command:
    """Everything in the lock, each file checked against its hash; `look` only asks whether it can be had.

    `backend`: torch comes from the index that uv knows for the recipe's kind of build, and from no other.
    """
    torch = ("--torch-backend", plan.recipe.torch_backend) if backend and plan.recipe.torch_backend else ()
    sync = (plan.uv, "pip", "sync", "--require-hashes", "--no-build", "--python", str(plan.python), *torch)
    dry = ("--dry-run",) if look else ()
    return Command((*sync, *dry, str(plan.lock)), dict(settings), UNSET)


def commands(plan: Blueprint) -> list[Command]:
    """What a build starts, in order; `run` asks first whether all of the lock can be had."""
    settings = uv.settings(plan.interpreter.prefix, plan.recipe.indexes)
    return [create(plan), install(plan, settings, backend=_backend(plan, settings))]


def _backend(plan: Blueprint, settings: Mapping[str, str]) -> bool:
    return plan.recipe.torch_backend is not None and not uv.offers_wheels(settings, os.environ)


def patience() -> dict[str, str]:
    return {name: value for name, value in _IMPATIENT.items() if name not in os.environ}


def run(plan: Blueprint, *, watch: Progress) -> None:
    """Build it; when this returns, the folder has its manifest, and when it raises, there is no folder."""
    check_system(plan)
    check_libraries(plan)
    check_room(plan, storage.free_bytes(plan.path))
    storage.make(plan.path.parent)
    storage.remove(plan.path)
    try:
        _install_all(plan, watch)
    except BaseException as error:
        if not isinstance(error, Exception):  # Ctrl-C, or a signal
            watch.note(f"{plan.name}: stopped; what is half made is removed")
        storage.remove(plan.path)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise uv.full(_failed(plan), in_words(error)) from error
        raise


def check_system(plan: Blueprint) -> None:
    system = f"{plan.interpreter.machine}-linux"
    if system not in plan.recipe.systems:
        raise Problem(
            f"{plan.name} cannot be built on {system}",
            cause=f"its lock is for {', '.join(plan.recipe.systems)}",
            fix="medley env list shows the environments that there are",
        )


def check_libraries(plan: Blueprint) -> None:
    """Check that the interpreter finds the libraries that the wheels expect of the system."""
    given = {Path(path).name for path in plan.preload.libraries}
    for name, package in plan.recipe.libraries.items():
        load = Command((str(plan.interpreter.path), "-I", "-c", f"import ctypes; ctypes.CDLL({name!r})"))
        if name not in given and process.run(load, limit_s=_LOAD_LIMIT_S).status:
            raise Problem(
                f"{_failed(plan)}: {name} is not on this host",
                cause=f"its wheels need that library, and {plan.interpreter.path} does not find it",
                fix=f"sudo apt install {package}   # Debian's and Ubuntu's name of it",
            )


def check_room(plan: Blueprint, free: int) -> None:
    needed = plan.recipe.disk_bytes
    if free < needed:
        raise Problem(
            f"{_failed(plan)}: the disk is too full",
            cause=f"it needs {needed / 1e9:.1f} GB, and {plan.path.parent} has {free / 1e9:.1f} GB free",
            fix=uv.MAKE_ROOM,
        )


def _install_all(plan: Blueprint, watch: Progress) -> None:
    if plan.recipe.note:
        watch.note(plan.recipe.note)
    with watch.stage(f"{plan.name}: virtualenv of {plan.interpreter}"):
        _require_success(plan, create(plan), watch.line)
    settings = uv.settings(plan.interpreter.prefix, plan.recipe.indexes)
    backend = _look_up(plan, settings, watch)
    with watch.stage(f"{plan.name}: download and install"):
        shown = uv.Downloads(watch)
        _require_success(plan, install(plan, settings, backend=backend), shown.line)
    patches.write_aliases(plan.site_packages, plan.recipe.alias, plan.recipe.device)
    patches.write_plugins(plan.site_packages, plan.recipe.plugins)
    cuda_folder.complete(plan.site_packages, watch)
    if plan.preload:
        plan.preload.write(plan.site_packages)
    if plan.loader:
        with watch.stage(f"{plan.name}: patch programs for NixOS"):
            patches.patch_loader(plan.path, plan.loader)
    manifest = {
        "name": plan.name,
        "digest": plan.digest,
        "parts": plan.parts,
        "interpreter": str(plan.interpreter.path),
        "built": dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
    }
    storage.write(plan.path / MANIFEST, json.dumps(manifest, indent=1) + "\n")


def _look_up(plan: Blueprint, settings: Mapping[str, str], watch: Progress) -> bool:
    """Whether torch must come from PyTorch's own index, because this machine's indexes lack the build."""
    hasty = {**patience(), **settings}
    for backend in (_backend(plan, settings), True):
        with watch.stage(f"{plan.name}: look up every package of the lock"):
            command = install(plan, hasty, backend=backend, look=True)
            finished = process.run(command, on_line=watch.line)
        if finished.status == 0:
            return backend
        if backend or not plan.recipe.torch_backend or not uv.lacks(finished.lines):
            raise uv.failure(plan.name, finished.status, finished.lines)
    raise AssertionError(plan)


def _require_success(plan: Blueprint, command: Command, on_line: process.OnLine) -> None:
    finished = process.run(command, on_line=on_line)
    if finished.status:
        raise uv.failure(plan.name, finished.status, finished.lines)


def _failed(plan: Blueprint) -> str:
    return f"{plan.name} cannot be built"
