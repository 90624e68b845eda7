"""Build an engine environment from a hashed lock.

It is made where it stays, because a virtualenv holds its own path. A manifest, written last, distinguishes a
finished one from an unfinished one, and any failure removes the folder.
"""

import datetime as dt
import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medley import process, storage, user
from medley.command import Command
from medley.environment import cuda_folder, patches, uv
from medley.environment.interpreter import Interpreter
from medley.environment.patches import Preload
from medley.environment.toolkit import Loader
from medley.errors import Problem, describe_error
from medley.host_schema import Recipe
from medley.progress import Progress
from medley.values import Value

MANIFEST_FILE = "medley.json"
# A network that drops every packet becomes a Problem in seconds. Downloads keep uv's own limits: they falter.
_LOOK_UP_TIMEOUTS = {"UV_HTTP_CONNECT_TIMEOUT": "2", "UV_HTTP_RETRIES": "2"}
_LOAD_LIMIT_S = 20
UNSET_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")


class Blueprint(Value):
    """Everything that shapes one environment on this host."""

    name: str
    recipe: Recipe
    lock: Path
    interpreter: Interpreter
    preload: Preload
    loader: Loader | None
    """The loader that the environment's programs are patched to use, on NixOS."""
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


def build_venv_command(blueprint: Blueprint) -> Command:
    arguments = (
        "venv",
        "--no-project",
        "--prompt",
        blueprint.name,
        "--python",
        str(blueprint.interpreter.path),
    )
    return Command(
        (blueprint.uv, *arguments, str(blueprint.path)), uv.choose_configuration(os.environ, user.find_home())
    )


def build_install_command(
    blueprint: Blueprint, settings: Mapping[str, str], *, from_torch_index: bool, is_dry_run: bool = False
) -> Command:
    """Return the command that installs the lock, each file checked against its hash.

    `is_dry_run`: only look up whether every file can be downloaded. `from_torch_index`: torch comes from the
    index that uv knows for the recipe's kind of build, and from no other.
    """
    index_flags = (
        ("--torch-backend", blueprint.recipe.torch_backend)
        if from_torch_index and blueprint.recipe.torch_backend
        else ()
    )
    arguments = (
        blueprint.uv,
        "pip",
        "sync",
        "--require-hashes",
        "--no-build",
        "--python",
        str(blueprint.python),
        *index_flags,
    )
    dry_run_flags = ("--dry-run",) if is_dry_run else ()
    return Command((*arguments, *dry_run_flags, str(blueprint.lock)), dict(settings), UNSET_VARIABLES)


def list_commands(blueprint: Blueprint) -> list[Command]:
    """Return the commands of a build, in order; `build_environment` looks up all packages first."""
    settings = uv.read_settings(blueprint.interpreter.prefix, blueprint.recipe.indexes)
    return [
        build_venv_command(blueprint),
        build_install_command(blueprint, settings, from_torch_index=_needs_torch_index(blueprint, settings)),
    ]


def _needs_torch_index(blueprint: Blueprint, settings: Mapping[str, str]) -> bool:
    return blueprint.recipe.torch_backend is not None and not uv.has_other_wheels(settings, os.environ)


def list_timeout_variables() -> dict[str, str]:
    return {name: value for name, value in _LOOK_UP_TIMEOUTS.items() if name not in os.environ}


def build_environment(blueprint: Blueprint, *, progress: Progress) -> None:
    """Build the environment. The folder has its manifest on return, and is removed if this raises."""
    require_supported_system(blueprint)
    require_libraries(blueprint)
    require_free_disk(blueprint, storage.measure_free_bytes(blueprint.path))
    storage.make_folder(blueprint.path.parent)
    storage.remove_folder(blueprint.path)
    try:
        _install_all(blueprint, progress)
    except BaseException as error:
        if not isinstance(error, Exception):  # Ctrl-C, or a signal
            progress.note(f"{blueprint.name}: stopped; what is half made is removed")
        storage.remove_folder(blueprint.path)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise uv.build_disk_full_problem(_describe_failure(blueprint), describe_error(error)) from error
        raise


def require_supported_system(blueprint: Blueprint) -> None:
    system = f"{blueprint.interpreter.machine}-linux"
    if system not in blueprint.recipe.systems:
        raise Problem(
            f"{blueprint.name} cannot be built on {system}",
            cause=f"its lock is for {', '.join(blueprint.recipe.systems)}",
            fix="medley env list shows the environments that there are",
        )


def require_libraries(blueprint: Blueprint) -> None:
    """Raise a Problem if the interpreter does not find a library that the wheels expect of the system."""
    preloaded = {Path(path).name for path in blueprint.preload.libraries}
    for name, package in blueprint.recipe.libraries.items():
        command = Command(
            (str(blueprint.interpreter.path), "-I", "-c", f"import ctypes; ctypes.CDLL({name!r})")
        )
        if name not in preloaded and process.run(command, limit_s=_LOAD_LIMIT_S).status:
            raise Problem(
                f"{_describe_failure(blueprint)}: {name} is not on this host",
                cause=f"its wheels need that library, and {blueprint.interpreter.path} does not find it",
                fix=f"sudo apt install {package}   # Debian's and Ubuntu's name of it",
            )


def require_free_disk(blueprint: Blueprint, free_bytes: int) -> None:
    needed_bytes = blueprint.recipe.disk_bytes
    if free_bytes < needed_bytes:
        raise Problem(
            f"{_describe_failure(blueprint)}: the disk is too full",
            cause=f"it needs {needed_bytes / 1e9:.1f} GB, "
            f"and {blueprint.path.parent} has {free_bytes / 1e9:.1f} GB free",
            fix=uv.FREE_DISK_FIX,
        )


def _install_all(blueprint: Blueprint, progress: Progress) -> None:
    if blueprint.recipe.note:
        progress.note(blueprint.recipe.note)
    with progress.stage(f"{blueprint.name}: virtualenv of {blueprint.interpreter}"):
        _require_success(blueprint, build_venv_command(blueprint), progress.line)
    settings = uv.read_settings(blueprint.interpreter.prefix, blueprint.recipe.indexes)
    from_torch_index = _look_up_packages(blueprint, settings, progress)
    with progress.stage(f"{blueprint.name}: download and install"):
        downloads = uv.Downloads(progress)
        _require_success(
            blueprint,
            build_install_command(blueprint, settings, from_torch_index=from_torch_index),
            downloads.show_line,
        )
    patches.write_aliases(blueprint.site_packages, blueprint.recipe.alias, blueprint.recipe.device)
    patches.write_plugins(blueprint.site_packages, blueprint.recipe.plugins)
    cuda_folder.complete_cuda_folder(blueprint.site_packages, progress)
    if blueprint.preload:
        blueprint.preload.write_module(blueprint.site_packages)
    if blueprint.loader:
        with progress.stage(f"{blueprint.name}: patch programs for NixOS"):
            patches.patch_loaders(blueprint.path, blueprint.loader)
    manifest = {
        "name": blueprint.name,
        "digest": blueprint.digest,
        "parts": blueprint.parts,
        "interpreter": str(blueprint.interpreter.path),
        "built": dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
    }
    storage.write_text(blueprint.path / MANIFEST_FILE, json.dumps(manifest, indent=1) + "\n")


def _look_up_packages(blueprint: Blueprint, settings: Mapping[str, str], progress: Progress) -> bool:
    """Return whether torch must come from PyTorch's own index: this machine's indexes may lack the build."""
    quick_settings = {**list_timeout_variables(), **settings}
    for from_torch_index in (_needs_torch_index(blueprint, settings), True):
        with progress.stage(f"{blueprint.name}: look up every package of the lock"):
            command = build_install_command(
                blueprint, quick_settings, from_torch_index=from_torch_index, is_dry_run=True
            )
            finished = process.run(command, on_line=progress.line)
        if finished.status == 0:
            return from_torch_index
        if (
            from_torch_index
            or not blueprint.recipe.torch_backend
            or not uv.is_missing_package(finished.lines)
        ):
            raise uv.build_failure_problem(blueprint.name, finished.status, finished.lines)
    raise AssertionError(blueprint)


def _require_success(blueprint: Blueprint, command: Command, on_line: process.OnLine) -> None:
    finished = process.run(command, on_line=on_line)
    if finished.status:
        raise uv.build_failure_problem(blueprint.name, finished.status, finished.lines)


def _describe_failure(blueprint: Blueprint) -> str:
    return f"{blueprint.name} cannot be built"
