"""A build turns a lock into a finished environment: in its own folder, step by step, and marked at the end.

It is made where it stays, because a virtualenv holds its own path; so a manifest, written last, tells a
finished one from a half-made one, and whatever goes wrong removes the folder.
"""

import datetime as dt
import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import alias, machine, nixos, pip_config, plugin, store, uv
from medley.command import Command
from medley.interpreter import Interpreter
from medley.machine import Finished
from medley.preload import Preload
from medley.problem import Problem, in_words
from medley.tables import Recipe
from medley.toolkit import Loader
from medley.watch import Watch

MANIFEST = "medley.json"
# So that a network that swallows everything is a Problem in seconds; for the look-up alone: downloads falter.
IMPATIENT = {"UV_HTTP_CONNECT_TIMEOUT": "2", "UV_HTTP_RETRIES": "2"}
_LOAD_LIMIT_S = 20
_UNSET = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")


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
    """The empty virtualenv."""
    prompt = ("--prompt", plan.name)
    return Command(
        (plan.uv, "venv", "--no-project", *prompt, "--python", str(plan.interpreter.path), str(plan.path))
    )


def install(plan: Blueprint, told: Mapping[str, str], *, backend: bool, look: bool = False) -> Command:
    """Everything in the lock, each file checked against its hash; `look` only asks whether it can be had.

    `backend`: torch comes from the index that uv knows for the recipe's kind of build, and from no other.
    """
    torch = ("--torch-backend", plan.recipe.torch_backend) if backend and plan.recipe.torch_backend else ()
    sync = (plan.uv, "pip", "sync", "--require-hashes", "--no-build", "--python", str(plan.python), *torch)
    dry = ("--dry-run",) if look else ()
    return Command((*sync, *dry, str(plan.lock)), dict(told), _UNSET)


def compile_all(plan: Blueprint) -> Command:
    """Bytecode, once: where PYTHONDONTWRITEBYTECODE is set, every process of every start would make it."""
    return Command(
        (str(plan.python), "-m", "compileall", "-q", "-j", "0", str(plan.site_packages)), {}, _UNSET
    )


def commands(plan: Blueprint, environ: Mapping[str, str] = os.environ) -> list[Command]:
    """What a build starts, in order; `run` asks first whether all of the lock can be had."""
    told = told_uv(plan, environ)
    backend = plan.recipe.torch_backend is not None and not pip_config.offers_wheels(told, environ)
    return [create(plan), install(plan, told, backend=backend), compile_all(plan)]


def told_uv(plan: Blueprint, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What this machine's pip configuration has to say to uv."""
    told = pip_config.variables(pip_config.read(environ, Path.home(), plan.interpreter.prefix), environ)
    return pip_config.first(told, plan.recipe.indexes, environ)


def run(plan: Blueprint, *, watch: Watch) -> None:
    """Build it; when this returns, the folder has its manifest, and when it raises, there is no folder."""
    check_system(plan)
    check_libraries(plan)
    check_room(plan, store.free_bytes(plan.path))
    store.make(plan.path.parent)
    store.remove(plan.path)
    try:
        _steps(plan, watch)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            watch.note(f"{plan.name}: stopped; what is half made is removed")
        store.remove(plan.path)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise uv.full(_failed(plan), in_words(error)) from error
        if isinstance(error, Exception | KeyboardInterrupt):
            raise
        raise Problem(
            f"the build of {plan.name} was stopped",
            cause="medley was told to end; nothing half-made is left",
            fix=f"medley env build {plan.name}",
        ) from error


def check_system(plan: Blueprint) -> None:
    system = f"{plan.interpreter.machine}-linux"
    if system not in plan.recipe.systems:
        raise Problem(
            f"{plan.name} cannot be built on {system}",
            cause=f"its lock is for {', '.join(plan.recipe.systems)}",
            fix="medley env list shows the environments that there are",
        )


def check_libraries(plan: Blueprint) -> None:
    """What the wheels expect of the system must be found by the interpreter that loads them."""
    given = {Path(path).name for path in plan.preload.libraries}
    for name, package in plan.recipe.libraries.items():
        load = Command((str(plan.interpreter.path), "-I", "-c", f"import ctypes; ctypes.CDLL({name!r})"))
        if name not in given and machine.run(load, limit_s=_LOAD_LIMIT_S).status:
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


def _steps(plan: Blueprint, watch: Watch) -> None:
    if plan.recipe.note:
        watch.note(plan.recipe.note)
    with watch.stage(f"{plan.name}: virtualenv of {plan.interpreter}"):
        _must(plan, create(plan), watch)
    backend = _look_up(plan, watch)
    with watch.stage(f"{plan.name}: download and install"):
        _must(plan, install(plan, told_uv(plan), backend=backend), watch)
    alias.write(plan.site_packages, plan.recipe.alias, plan.recipe.device)
    plugin.write(plan.site_packages, plan.recipe.plugins)
    if plan.preload:
        plan.preload.write(plan.site_packages)
    if plan.loader:
        with watch.stage(f"{plan.name}: patch programs for NixOS"):
            nixos.patch(plan.path, plan.loader)
    with watch.stage(f"{plan.name}: compile to bytecode"):
        _compiled(plan, watch)
    store.write(plan.path / MANIFEST, json.dumps(_manifest(plan), indent=1) + "\n")


def _look_up(plan: Blueprint, watch: Watch) -> bool:
    """Whether torch must come from PyTorch's own index, because this machine's indexes lack the build."""
    told = told_uv(plan)
    patience = {name: value for name, value in IMPATIENT.items() if name not in os.environ}
    first = plan.recipe.torch_backend is not None and not pip_config.offers_wheels(told, os.environ)
    for backend in (first, True):
        with watch.stage(f"{plan.name}: look up every package of the lock"):
            command = install(plan, {**patience, **told}, backend=backend, look=True)
            finished = machine.run(command, on_line=watch.line)
        if finished.status == 0:
            return backend
        if backend or not plan.recipe.torch_backend or not uv.lacks(finished.lines):
            raise uv.failure(plan.name, finished.status, finished.lines)
    raise AssertionError(plan)


def _must(plan: Blueprint, command: Command, watch: Watch) -> Finished:
    finished = machine.run(command, on_line=watch.line)
    if finished.status:
        raise uv.failure(plan.name, finished.status, finished.lines)
    return finished


def _compiled(plan: Blueprint, watch: Watch) -> None:
    """Some packages carry files that are no Python of this version, so only a full disk is a failure."""
    finished = machine.run(compile_all(plan), on_line=watch.line)
    if any(uv.NO_SPACE in line for line in finished.lines):
        raise uv.full(_failed(plan), "while compiling to bytecode")


def _failed(plan: Blueprint) -> str:
    return f"{plan.name} cannot be built"


def _manifest(plan: Blueprint) -> dict[str, Any]:
    now = dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds")
    return {
        "name": plan.name,
        "digest": plan.digest,
        "parts": plan.parts,
        "interpreter": str(plan.interpreter.path),
        "built": now,
    }
