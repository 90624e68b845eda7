"""Name, find, make and remove engine environments.

Hosts whose environments have the same parts can join one Ray cluster; where one differs, its name says which.
"""

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from medley import config, json_shape, storage
from medley.command import Command
from medley.environment import build, interpreter, patches, uv
from medley.environment.build import MANIFEST_FILE, Blueprint
from medley.environment.engine_source import parse_version
from medley.environment.interpreter import Interpreter
from medley.environment.patches import Preload
from medley.environment.toolkit import Toolkit
from medley.errors import Problem
from medley.host_schema import Driver, Recipe
from medley.progress import SILENT, Progress
from medley.schema import TITLES, EngineName
from medley.unusable_file import skip_unusable_file
from medley.values import Value

# A number to increase when medley builds another environment from the same parts.
_FORMAT = 2


class _CommonParts(TypedDict):
    """The parts that every version of medley has written; newer ones write more."""

    python: str
    machine: str


class _Manifest(TypedDict):
    """The file of a finished environment."""

    name: str
    digest: str
    parts: _CommonParts
    built: str


class Environment(Value):
    """A finished engine environment."""

    name: str
    digest: str
    path: Path
    parts: Mapping[str, Any]
    """The parts that the digest hashes: lock, recipe, plugins, python, machine, libc, preload, patched."""
    built: str

    @property
    def programs(self) -> Path:
        return self.path / "bin"

    @property
    def python(self) -> Path:
        return self.programs / "python"

    @property
    def engines(self) -> list[EngineName]:
        return [name for name in TITLES if storage.exists(self.programs / name)]

    @property
    def nccl_version(self) -> tuple[int, ...] | None:
        """The version of its NCCL wheel; None without one, as for CPUs."""
        versions = self.find_versions(("nvidia_nccl_cu13", "nvidia_nccl_cu12")).values()
        return next((parse_version(version) for version in versions if version), None)

    def find_versions(self, names: tuple[str, ...]) -> dict[str, str]:
        return read_versions(self.path, names)

    def wrap_command(self, command: Command, *read_paths: Path) -> Command:
        """Return the command unchanged: an image's environment wraps it into a container."""
        del read_paths
        return command


def prepare_environment(
    name: str, toolkit: Toolkit | None = None, *, driver: Driver | None = None, progress: Progress = SILENT
) -> Environment:
    """Return the environment `name`, built if need be; `driver`: the folders of this kind's driver."""
    blueprint = plan_environment(name, toolkit, driver=driver)
    if environment := read_environment(blueprint.path):
        return environment
    remove_leftovers()
    waiting_note = f"another medley builds {name}: waiting"
    with storage.lock_file(get_lock_file(blueprint.path), on_wait=lambda: progress.note(waiting_note)):
        if read_environment(blueprint.path) is None:
            build.build_environment(blueprint, progress=progress)
        environment = read_environment(blueprint.path)
    if environment is None:
        raise AssertionError(blueprint.path)  # build_environment raises, or leaves a manifest
    return environment


def find_environment(
    name: str, toolkit: Toolkit | None = None, *, driver: Driver | None = None
) -> Environment | None:
    """Return the environment `name` as it would be built now; None if it is not finished."""
    return read_environment(plan_environment(name, toolkit, driver=driver).path)


def plan_environment(
    name: str, toolkit: Toolkit | None = None, *, driver: Driver | None = None, root: Path = Path("/")
) -> Blueprint:
    """Return everything that shapes the environment `name` on this host; build nothing."""
    recipe, lock = _find_recipe(name)
    toolkit_pythons = toolkit.pythons if toolkit else {}
    uv_program = uv.find_uv(toolkit.uv if toolkit else None)
    python = interpreter.find_interpreter(recipe.python, pythons=toolkit_pythons, uv=uv_program)
    preload = Preload() if interpreter.is_host_loader(python.loader) else Preload.collect(toolkit, driver)
    loader = toolkit.loader if toolkit and patches.is_without_loader(root) else None
    lock_text = lock.read_text(encoding="utf-8")
    parts = list_environment_parts(lock_text, recipe, python, preload, loader.interpreter if loader else None)
    digest = hash_parts(parts)
    path = get_environments_folder() / f"{name}-{digest}"
    return Blueprint(name, recipe, lock, python, preload, loader, uv_program, parts, digest, path)


def list_environment_parts(
    lock: str, recipe: Recipe, python: Interpreter, preload: Preload, loader: str | None
) -> dict[str, Any]:
    """Return the parts of an environment by name, so that two hosts can name the part that differs."""
    return {
        **_list_lock_parts(lock, recipe),
        "python": f"{python.implementation} {python.version}",
        "machine": python.machine,
        "libc": python.libc,
        "preload": preload.build_table(),
        "patched": loader,
    }


def _list_lock_parts(lock: str, recipe: Recipe) -> dict[str, Any]:
    """Return the parts that come from locks/, without titles and notes."""
    return {
        "format": _FORMAT,
        "lock": storage.hash_bytes(lock.encode()),
        "recipe": {
            "alias": dict(recipe.alias),
            "device": recipe.device,
            "torch_backend": recipe.torch_backend,
        },
        "plugins": patches.hash_plugins(recipe.plugins),
    }


def hash_parts(parts: Mapping[str, Any]) -> str:
    """Return 12 hex digits, which a folder's name ends with."""
    return storage.hash_bytes(json.dumps(parts, sort_keys=True).encode())[:12]


def get_environments_folder() -> Path:
    """Return the folder of all environments."""
    return storage.find_cache_folder() / "envs"


def list_environments() -> Iterator[Environment]:
    """Yield every finished environment on this host."""
    for path in _list_folders():
        with skip_unusable_file():
            if environment := read_environment(path):
                yield environment


def read_environment(path: Path) -> Environment | None:
    """Return the environment in a folder; None if it is unfinished or its interpreter is gone."""
    table = storage.read_table(path / MANIFEST_FILE) or {}
    if not json_shape.has_type(table, _Manifest) or not storage.exists(path / "bin/python"):
        return None
    return Environment(table["name"], table["digest"], path, table["parts"], table["built"])


def open_environment(path: Path) -> Environment | None:
    """Return the environment or the user's own virtualenv in a folder; None if there is neither."""
    environment = read_environment(path)
    if environment or not storage.exists(path / "bin/python"):
        return environment
    python = interpreter.probe_interpreter(path / "bin/python")
    parts = {"python": f"{python.implementation} {python.version}", "machine": python.machine}
    return Environment(path.name, "its owner's", path, parts, "")


def is_current(environment: Environment) -> bool:
    """Return whether its lock and its recipe are unchanged since it was built."""
    recipes, locks, name = config.load_recipes(), config.find_table_files("locks", ".txt"), environment.name
    if name not in recipes or name not in locks:
        return False
    lock_parts = _list_lock_parts(locks[name].read_text(encoding="utf-8"), recipes[name])
    return lock_parts.items() <= environment.parts.items()


def list_unfinished() -> Iterator[Path]:
    """Yield the folders of killed builds, and of builds that still run."""
    for path in _list_folders():
        with skip_unusable_file():
            if read_environment(path) is None:
                yield path


def remove_leftovers() -> list[Path]:
    """Remove the folders of killed builds, not of running ones; return the removed folders."""
    return [path for path in list_unfinished() if remove_environment(path)]


def list_removable(name: str, *, is_all: bool) -> Iterator[Path]:
    """Yield the folders to remove: all, else all of `name`, else unfinished and outdated ones."""
    for path in _list_folders():
        environment = read_environment(path)
        is_useless = (
            path.name.rpartition("-")[0] == name if name else not (environment and is_current(environment))
        )
        if is_all or is_useless:
            yield path


def is_being_built(path: Path) -> bool:
    """Return whether a build of it is running."""
    with storage.lock_file(get_lock_file(path)) as is_free:
        return not is_free


def remove_environment(path: Path) -> bool:
    """Remove an environment's folder unless a build holds it; return whether it was removed."""
    lock_path = get_lock_file(path)
    with storage.lock_file(lock_path) as is_free:
        if is_free:
            storage.remove_file(path / MANIFEST_FILE)  # first, so that nothing half-removed looks finished
            storage.remove_folder(path)
            storage.remove_file(lock_path)
    return is_free


def _list_folders() -> list[Path]:
    return [path for path in storage.list_folder(get_environments_folder(), "[!.]*") if path.is_dir()]


def get_lock_file(path: Path) -> Path:
    """Return the lock file that a build of an environment holds while it runs."""
    return path.parent / ".locks" / path.name


def _find_recipe(name: str) -> tuple[Recipe, Path]:
    recipes, locks = config.load_recipes(), config.find_table_files("locks", ".txt")
    if name in recipes and name in locks:
        return recipes[name], locks[name]
    known_names = sorted(set(recipes) & set(locks))
    close_names = difflib.get_close_matches(name, known_names, n=1)
    raise Problem(
        f"there is no engine environment {name!r}",
        cause=f"locks/ has {', '.join(known_names) or 'none'}",
        fix=f"medley env build {close_names[0]}" if close_names else "medley env list",
    )


def read_versions(path: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of distributions in an environment's folder by name, empty if not installed."""
    folders = path.glob("lib/python*/site-packages/*.dist-info")
    versions = dict(
        info_folder.name.removesuffix(".dist-info").partition("-")[::2] for info_folder in folders
    )
    return {name: versions.get(name, "") for name in names}
