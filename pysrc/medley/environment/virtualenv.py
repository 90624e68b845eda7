"""Name, find, make and remove engine environments.

Hosts whose environments have the same parts can join one Ray cluster; where one differs, its name says which.
"""

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from medley import config, json_shape, storage
from medley.command import Command
from medley.environment import build, interpreter, patches, uv
from medley.environment.build import MANIFEST, Blueprint
from medley.environment.engine_source import numbers
from medley.environment.interpreter import Interpreter
from medley.environment.patches import Preload
from medley.environment.toolkit import Toolkit
from medley.errors import Problem
from medley.host_schema import Driver, Recipe
from medley.progress import SILENT, Progress
from medley.schema import TITLES, EngineName
from medley.unusable_file import optional

# Raised when medley itself builds the same parts into something else.
_FORMAT = 2


class _Parts(TypedDict):
    """What every medley has written of an environment; there are more."""

    python: str
    machine: str


class _Manifest(TypedDict):
    """The file of a finished environment."""

    name: str
    digest: str
    parts: _Parts
    built: str


@dataclass(frozen=True)
class Environment:
    """A finished engine environment."""

    name: str
    digest: str
    path: Path
    parts: Mapping[str, Any]
    """What the digest is of: lock, recipe, plugins, python, machine, libc, preload, patched."""
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
    def nccl(self) -> tuple[int, ...] | None:
        """The version of its NCCL wheel; None without one, as on a CPU."""
        found = self.versions(("nvidia_nccl_cu13", "nvidia_nccl_cu12")).values()
        return next((numbers(each) for each in found if each), None)

    def versions(self, names: tuple[str, ...]) -> dict[str, str]:
        return versions(self.path, names)

    def started(self, command: Command, *reads: Path) -> Command:
        """The command as it is: that of an image would run in a container."""
        del reads
        return command


def ready(
    name: str, toolkit: Toolkit | None = None, *, driver: Driver | None = None, watch: Progress = SILENT
) -> Environment:
    """The environment `name`, built if need be; `driver` is where this kind of host keeps its driver."""
    wanted = blueprint(name, toolkit, driver=driver)
    if found := read(wanted.path):
        return found
    sweep()
    busy = f"another medley builds {name}: waiting"
    with storage.lock(lock_file(wanted.path), waits=lambda: watch.note(busy)):
        if read(wanted.path) is None:
            build.run(wanted, watch=watch)
        found = read(wanted.path)
    if found is None:
        raise AssertionError(wanted.path)  # build.run raises, or leaves a manifest
    return found


def find(name: str, toolkit: Toolkit | None = None, *, driver: Driver | None = None) -> Environment | None:
    """The environment `name` as it would be built now, if it is finished."""
    return read(blueprint(name, toolkit, driver=driver).path)


def blueprint(
    name: str, toolkit: Toolkit | None = None, *, driver: Driver | None = None, root: Path = Path("/")
) -> Blueprint:
    """All that shapes the environment `name` on this host; builds nothing."""
    recipe, lock = _recipe(name)
    given = toolkit.pythons if toolkit else {}
    tool = uv.binary(toolkit.uv if toolkit else None)
    python = interpreter.find(recipe.python, pythons=given, uv=tool)
    loads = Preload() if interpreter.is_hosts(python.loader) else Preload.of(toolkit, driver)
    loader = toolkit.loader if toolkit and patches.lacks_loader(root) else None
    text = lock.read_text(encoding="utf-8")
    made_of = parts(text, recipe, python, loads, loader.interpreter if loader else None)
    name_digest = digest(made_of)
    path = folder() / f"{name}-{name_digest}"
    return Blueprint(name, recipe, lock, python, loads, loader, tool, made_of, name_digest, path)


def parts(
    lock: str, recipe: Recipe, python: Interpreter, preload: Preload, patched: str | None
) -> dict[str, Any]:
    """What makes an environment what it is, each by its name, so that two hosts can say what differs."""
    return {
        **_written(lock, recipe),
        "python": f"{python.implementation} {python.version}",
        "machine": python.machine,
        "libc": python.libc,
        "preload": preload.table(),
        "patched": patched,
    }


def _written(lock: str, recipe: Recipe) -> dict[str, Any]:
    """The parts that come from locks/; a title or a note shapes nothing."""
    return {
        "format": _FORMAT,
        "lock": storage.hash_bytes(lock.encode()),
        "recipe": {
            "alias": dict(recipe.alias),
            "device": recipe.device,
            "torch_backend": recipe.torch_backend,
        },
        "plugins": patches.plugin_hashes(recipe.plugins),
    }


def digest(parts: Mapping[str, Any]) -> str:
    """12 hex digits: enough for a folder's name."""
    return storage.hash_bytes(json.dumps(parts, sort_keys=True).encode())[:12]


def folder() -> Path:
    """The folder of all environments."""
    return storage.cache() / "envs"


def every() -> Iterator[Environment]:
    """Every finished environment on this host."""
    for path in _folders():
        with optional():
            if found := read(path):
                yield found


def read(path: Path) -> Environment | None:
    """The environment in a folder; None where it is unfinished or its interpreter is gone."""
    table = storage.read_table(path / MANIFEST) or {}
    if not json_shape.fits(table, _Manifest) or not storage.exists(path / "bin/python"):
        return None
    return Environment(table["name"], table["digest"], path, table["parts"], table["built"])


def at(path: Path) -> Environment | None:
    """The environment in a folder, or the user's own virtualenv there; None where neither is."""
    found = read(path)
    if found or not storage.exists(path / "bin/python"):
        return found
    python = interpreter.of(path / "bin/python")
    known = {"python": f"{python.implementation} {python.version}", "machine": python.machine}
    return Environment(path.name, "its owner's", path, known, "")


def is_current(environment: Environment) -> bool:
    """Whether its lock and its recipe are still what they were."""
    recipes, locks, name = config.recipes(), config.files("locks", ".txt"), environment.name
    if name not in recipes or name not in locks:
        return False
    written = _written(locks[name].read_text(encoding="utf-8"), recipes[name])
    return written.items() <= environment.parts.items()


def unfinished() -> Iterator[Path]:
    """What a killed build left, or one that goes on now."""
    for path in _folders():
        with optional():
            if read(path) is None:
                yield path


def sweep() -> list[Path]:
    """Remove the leftovers of killed builds; those of running ones stay."""
    return [path for path in unfinished() if remove(path)]


def removable(name: str, *, everything: bool) -> Iterator[Path]:
    """The folders to remove: all there are, else all of `name`, else those of no use any more."""
    for path in _folders():
        found = read(path)
        useless = path.name.rpartition("-")[0] == name if name else not (found and is_current(found))
        if everything or useless:
            yield path


def is_held(path: Path) -> bool:
    """Whether a build of it goes on."""
    with storage.lock(lock_file(path)) as free:
        return not free


def remove(path: Path) -> bool:
    """Remove an environment's folder, unless a build holds it."""
    held = lock_file(path)
    with storage.lock(held) as free:
        if free:
            storage.remove_file(path / MANIFEST)  # first, so that nothing half-removed looks finished
            storage.remove(path)
            storage.remove_file(held)
    return free


def _folders() -> list[Path]:
    return [path for path in storage.list_folder(folder(), "[!.]*") if path.is_dir()]


def lock_file(path: Path) -> Path:
    """What a build of an environment holds while it goes on."""
    return path.parent / ".locks" / path.name


def _recipe(name: str) -> tuple[Recipe, Path]:
    recipes, locks = config.recipes(), config.files("locks", ".txt")
    if name in recipes and name in locks:
        return recipes[name], locks[name]
    known = sorted(set(recipes) & set(locks))
    near = difflib.get_close_matches(name, known, n=1)
    raise Problem(
        f"there is no engine environment {name!r}",
        cause=f"locks/ has {', '.join(known) or 'none'}",
        fix=f"medley env build {near[0]}" if near else "medley env list",
    )


def versions(path: Path, names: tuple[str, ...]) -> dict[str, str]:
    """The versions of distributions in an environment's folder, by name; empty where one is not installed."""
    folders = path.glob("lib/python*/site-packages/*.dist-info")
    known = dict(each.name.removesuffix(".dist-info").partition("-")[::2] for each in folders)
    return {name: known.get(name, "") for name in names}
