"""Prepare an engine's programs for one launch: its environment, and the host's toolchain."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import field

from medley import config, storage, user
from medley.command import Variable, prefer_user_value
from medley.environment import cuda_folder, driver, interpreter, toolkit, virtualenv
from medley.environment.cuda_folder import CUDA_HOME
from medley.environment.engine_source import (
    NCCL_PATH_VARIABLE,
    build_missing_nccl_problem,
    has_matching_nvcc,
    needs_nccl,
)
from medley.environment.patches import Preload
from medley.environment.toolkit import list_toolkit_variables
from medley.environment.user_nccl import UserNccl, read_user_nccl
from medley.errors import Problem
from medley.host.driver_libraries import EXTRA_LIBRARIES_VARIABLE as PRELOAD
from medley.host.kind import Kind
from medley.progress import SILENT, Progress
from medley.schema import (
    DEFAULT_ENGINE,
    TITLES,
    EngineName,
)
from medley.values import Value


class Tools(Value):
    """The programs of an engine's environment, with the variables and programs of the host's toolchain."""

    program_folder: Path
    toolchain_variables: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    """More folders of programs, in the order of the search path."""
    user_nccl: UserNccl | None = None
    """The user's own NCCL, which replaces the environment's."""
    has_preload: bool = True
    """Whether the environment's Python loads what MEDLEY_PRELOAD names; a user's virtualenv does not."""
    host_variables: Mapping[str, str] = field(default_factory=dict)
    """The variables that cluster.toml has for this host."""
    cuda_home: Path | None = None
    """The CUDA toolkit in the environment's wheels, where neither Nix nor the host's table names another."""

    def list_variables(self, inherited_path: str) -> Iterator[Variable]:
        """Yield the variables of every process of the engine; `inherited_path` is the PATH before."""
        yield from list_toolkit_variables(self.toolchain_variables, self.programs, inherited_path)
        if self.cuda_home and CUDA_HOME not in {**self.toolchain_variables, **self.host_variables}:
            why = "the compiler and headers of the environment's own CUDA version"
            yield prefer_user_value(Variable(CUDA_HOME, str(self.cuda_home), why), os.environ)
        if self.program_folder.parts and os.environ.get("PYTHONDONTWRITEBYTECODE"):
            why = "the first start keeps the bytecode of all it imports"
            yield Variable("PYTHONDONTWRITEBYTECODE", "", why)
        if self.user_nccl:
            yield from self.user_nccl.list_variables(has_preload=self.has_preload)

    @property
    def programs(self) -> tuple[str, ...]:
        return (str(self.program_folder), *self.path) if self.program_folder.parts else self.path


NO_TOOLS = Tools(Path())
"""Programs without a folder, for a host whose environment is not known."""


def prepare_tools(
    kind: Kind,
    environment_name: str | None = None,
    *,
    engine: EngineName = DEFAULT_ENGINE,
    is_multi_host: bool = False,
    nccl: str | None = None,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> Tools:
    """Return the programs that serve on this kind of host, built if need be.

    `environment_name`: the value of --env. `is_multi_host`: ranks talk to other hosts. `dry_run`: build
    nothing, and note what would be built. Raise a Problem if the driver or an NCCL is missing.
    """
    user_virtualenv = _find_user_virtualenv(environment_name, engine)
    user_nccl = read_user_nccl(nccl, kind.table) if nccl else None
    host_toolkit = toolkit.find_toolkit(kind.name, can_build=not dry_run, progress=progress)
    host_toolkit = toolkit.add_libcuda(host_toolkit, kind.table, can_write=not dry_run)
    if host_toolkit and host_toolkit.kind != kind.name and not dry_run:
        progress.note(f"this shell's toolchain is for {host_toolkit.kind}, and the host is {kind.name}")
    if host_toolkit is None and os.environ.get("MEDLEY_FLAKE"):
        progress.note(f"Nix would realize toolkit-{kind.name} first, and its variables would be added")
    cuda_home = None
    if user_virtualenv:
        binary = user_virtualenv / "bin"
        loader = interpreter.read_elf_loader(user_virtualenv / "bin" / "python")
    else:
        name = choose_environment(kind, environment_name, engine)
        blueprint = virtualenv.plan_environment(name, host_toolkit, driver=kind.table.driver)
        binary, loader = blueprint.path / "bin", blueprint.interpreter.loader
        cuda_home = blueprint.site_packages / cuda_folder.FOLDER if has_matching_nvcc(name) else None
        named_nccl = user_nccl or os.environ.get(NCCL_PATH_VARIABLE)
        if is_multi_host and needs_nccl(kind) and interpreter.is_host_loader(loader) and not named_nccl:
            raise build_missing_nccl_problem(kind)
        require_driver(kind, blueprint.preload)
        if not dry_run:
            virtualenv.prepare_environment(name, host_toolkit, driver=kind.table.driver, progress=progress)
        elif virtualenv.read_environment(blueprint.path) is None:
            progress.note(f"the engine environment would be built first: medley env build {name}")
    settings = dict(host_toolkit.variables) if host_toolkit else {}
    # Nix's NCCL is on Nix's libc, as the Python has to be that loads it.
    can_load_flake_nccl = loader is not None and not interpreter.is_host_loader(loader)
    if is_multi_host and needs_nccl(kind) and can_load_flake_nccl and user_nccl is None:
        settings |= _list_flake_nccl_variables(kind.name, can_build=not dry_run, progress=progress)
    path = host_toolkit.path if host_toolkit else ()
    return Tools(binary, settings, path, user_nccl, user_virtualenv is None, cuda_home=cuda_home)


def _list_flake_nccl_variables(kind: str, *, can_build: bool, progress: Progress) -> dict[str, str]:
    """Return the variables of the NCCL that the flake compiles for such a host; empty without one."""
    library = toolkit.find_nccl(kind, can_build=can_build, progress=progress)
    if library is None:
        if os.environ.get("MEDLEY_FLAKE"):
            progress.note(f"Nix would compile nccl-{kind} first, and its variables would be added")
        return {}
    # vLLM opens the first; torch is linked to NCCL by name, and takes the one loaded already.
    return {NCCL_PATH_VARIABLE: str(library), PRELOAD: str(library)}


def require_driver(kind: Kind, preload: Preload) -> None:
    """Raise a Problem without a usable driver before a build; ldconfig finds it for a host's own Python."""
    if kind.table.device != "cpu" and preload:
        problem = driver.find_problem(
            driver.find_libraries(kind.table.driver), kind.table, driver.detect_system()
        )
        if problem:
            raise problem


def choose_environment(kind: Kind, requested: str | None, engine: EngineName = DEFAULT_ENGINE) -> str:
    """Return the engine environment's name: the requested one, or that of the kind's table."""
    title, offered_lock = TITLES[engine], kind.table.environments.get(engine)
    if requested is not None:
        return _require_lock(requested, engine, offered_lock)
    if offered_lock is None:
        other_titles = " and ".join(TITLES[other_engine] for other_engine in kind.table.environments)
        container = kind.table.container
        user_command = f"medley serve MODEL --env /path/to/a/virtualenv/with/{engine}"
        if other_engine := next(iter(kind.table.environments), None):
            user_command = f"medley serve MODEL --engine {other_engine}   # or: {user_command}"
        has_image = container.image and (not container.holds or engine in container.holds)
        raise Problem(
            f"there is no engine environment with {title} for {kind.table.title}",
            cause=kind.table.no_environment
            or f"hosts/{kind.name}.toml names {f'one with {other_titles} alone' if other_titles else 'none'}",
            fix=f"medley serve MODEL --image default   # or: {user_command}" if has_image else user_command,
        )
    return offered_lock


def _require_lock(requested: str, engine: EngineName, offered_lock: str | None) -> str:
    recipes = config.load_recipes()
    if requested not in recipes:
        title = f"there is no engine environment {requested!r}"
        cause = f"it is not a virtualenv with bin/python, and locks/ has {', '.join(recipes)}"
    elif recipes[requested].engine != engine:
        title = f"{requested} cannot be served from with {TITLES[engine]}"
        cause = f"it has {TITLES[recipes[requested].engine]} in it"
    else:
        return requested
    raise Problem(title, cause=cause, fix=f"--env {offered_lock or 'PATH-OF-A-VIRTUALENV'}")


def _find_user_virtualenv(requested: str | None, engine: EngineName) -> Path | None:
    """Return the user's virtualenv if the request is its path; raise a Problem if it lacks the engine."""
    if requested is None or requested in config.load_recipes():
        return None
    folder = user.expand_home(requested).absolute()
    if not storage.exists(folder / "bin" / "python"):
        return None
    if not storage.exists(folder / "bin" / engine):
        raise Problem(
            f"{folder} cannot serve",
            cause=f"it has no bin/{engine}",
            fix=f"install {TITLES[engine]} in it, or leave --env out",
        )
    return folder
