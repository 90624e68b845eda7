"""Prepare an engine's programs for one launch: its environment, and the host's toolchain."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from medley import config, storage, user
from medley.command import Variable, prefer_user_value
from medley.environment import cuda_folder, driver, interpreter, own_nccl, toolkit, virtualenv
from medley.environment.cuda_folder import CUDA_HOME
from medley.environment.engine_source import OWN_NCCL, brings_nvcc, needs_nccl, no_nccl
from medley.environment.own_nccl import OwnNccl
from medley.environment.patches import Preload
from medley.environment.toolkit import of_toolkit
from medley.errors import Problem
from medley.host.driver_libraries import MORE as PRELOAD
from medley.host.kind import Kind
from medley.progress import SILENT, Progress
from medley.schema import (
    DEFAULT_ENGINE,
    TITLES,
    EngineName,
)


@dataclass(frozen=True)
class Tools:
    """The programs of an engine's environment, and what the host's toolchain adds."""

    binary: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    """More folders of programs, first to last."""
    nccl: OwnNccl | None = None
    """The user's own, in place of the environment's."""
    preloads: bool = True
    """The environment's Python loads what MEDLEY_PRELOAD names; another virtualenv's does not."""
    table: Mapping[str, str] = field(default_factory=dict)
    """This host's variables of cluster.toml."""
    cuda_home: Path | None = None
    """The CUDA toolkit in the environment's wheels, where neither Nix nor the host's table names another."""

    def variables(self, inherited: str) -> Iterator[Variable]:
        """Yield what every process of the engine needs; `inherited` is the PATH before."""
        yield from of_toolkit(self.settings, self.programs, inherited)
        if self.cuda_home and CUDA_HOME not in {**self.settings, **self.table}:
            why = "the compiler and headers of the environment's own CUDA version"
            yield prefer_user_value(Variable(CUDA_HOME, str(self.cuda_home), why), os.environ)
        if self.binary.parts and os.environ.get("PYTHONDONTWRITEBYTECODE"):
            why = "the first start keeps the bytecode of all it imports"
            yield Variable("PYTHONDONTWRITEBYTECODE", "", why)
        if self.nccl:
            yield from self.nccl.variables(preloads=self.preloads)

    @property
    def programs(self) -> tuple[str, ...]:
        return (str(self.binary), *self.path) if self.binary.parts else self.path


BARE = Tools(Path())
"""Programs by their names alone, as on a host whose environment is not known."""


def ready(
    kind: Kind,
    named: str | None = None,
    *,
    engine: EngineName = DEFAULT_ENGINE,
    joins: bool = False,
    nccl: str | None = None,
    dry_run: bool = False,
    watch: Progress = SILENT,
) -> Tools:
    """Return what `kind` is served with, built where need be; `named` is the value of --env.

    `joins`: ranks talk to other hosts. `dry_run`: build nothing, and note what would be built.
    """
    own, chosen = _own(named, engine), own_nccl.read(nccl, kind.host) if nccl else None
    chain = toolkit.find(kind.name, make=not dry_run, watch=watch)
    chain = toolkit.with_libcuda(chain, kind.host, make=not dry_run)
    if chain and chain.kind != kind.name and not dry_run:
        watch.note(f"this shell's toolchain is for {chain.kind}, and the host is {kind.name}")
    if chain is None and os.environ.get("MEDLEY_FLAKE"):
        watch.note(f"Nix would realize toolkit-{kind.name} first, and its variables would be added")
    cuda_home = None
    if own:
        binary, loader = own / "bin", interpreter.elf_loader(own / "bin" / "python")
    else:
        name = environment(kind, named, engine)
        wanted = virtualenv.blueprint(name, chain, driver=kind.host.driver)
        binary, loader = wanted.path / "bin", wanted.interpreter.loader
        cuda_home = wanted.site_packages / cuda_folder.FOLDER if brings_nvcc(name) else None
        brought = chosen or os.environ.get(OWN_NCCL)
        if joins and needs_nccl(kind) and interpreter.is_hosts(loader) and not brought:
            raise no_nccl(kind)
        require_driver(kind, wanted.preload)
        if not dry_run:
            virtualenv.ready(name, chain, driver=kind.host.driver, watch=watch)
        elif virtualenv.read(wanted.path) is None:
            watch.note(f"the engine environment would be built first: medley env build {name}")
    settings = dict(chain.variables) if chain else {}
    # Nix's NCCL is on Nix's libc, as the Python has to be that loads it.
    flake_can = loader is not None and not interpreter.is_hosts(loader)
    if joins and needs_nccl(kind) and flake_can and chosen is None:
        settings |= _flake_nccl(kind.name, make=not dry_run, watch=watch)
    path = chain.path if chain else ()
    return Tools(binary, settings, path, chosen, own is None, cuda_home=cuda_home)


def _flake_nccl(kind: str, *, make: bool, watch: Progress) -> dict[str, str]:
    """Return the variables of the NCCL that the flake compiles for such a host."""
    found = toolkit.nccl(kind, make=make, watch=watch)
    if found is None:
        if os.environ.get("MEDLEY_FLAKE"):
            watch.note(f"Nix would compile nccl-{kind} first, and its variables would be added")
        return {}
    # vLLM opens the first; torch is linked to NCCL by name, and takes the one loaded already.
    return {OWN_NCCL: str(found), PRELOAD: str(found)}


def require_driver(kind: Kind, loads: Preload) -> None:
    """Require the driver before a long build, unless ldconfig finds it for the host's own Python."""
    if kind.host.device != "cpu" and loads:
        problem = driver.trouble(driver.libraries(kind.host.driver), kind.host, driver.system())
        if problem:
            raise problem


def environment(kind: Kind, named: str | None, engine: EngineName = DEFAULT_ENGINE) -> str:
    """Return the engine environment's name: as named, or by the kind's table."""
    title, offered = TITLES[engine], kind.host.environments.get(engine)
    if named is not None:
        return _require_lock(named, engine, offered)
    if offered is None:
        known, held = " and ".join(TITLES[other] for other in kind.host.environments), kind.host.container
        own = f"medley serve MODEL --env /path/to/a/virtualenv/with/{engine}"
        if other := next(iter(kind.host.environments), None):
            own = f"medley serve MODEL --engine {other}   # or: {own}"
        has_image = held.image and (not held.holds or engine in held.holds)
        raise Problem(
            f"there is no engine environment with {title} for {kind.host.title}",
            cause=kind.host.no_environment
            or f"hosts/{kind.name}.toml names {f'one with {known} alone' if known else 'none'}",
            fix=f"medley serve MODEL --image default   # or: {own}" if has_image else own,
        )
    return offered


def _require_lock(named: str, engine: EngineName, offered: str | None) -> str:
    recipes = config.recipes()
    if named not in recipes:
        what = f"there is no engine environment {named!r}"
        cause = f"it is not a virtualenv with bin/python, and locks/ has {', '.join(recipes)}"
    elif recipes[named].engine != engine:
        what = f"{named} cannot be served from with {TITLES[engine]}"
        cause = f"it has {TITLES[recipes[named].engine]} in it"
    else:
        return named
    raise Problem(what, cause=cause, fix=f"--env {offered or 'PATH-OF-A-VIRTUALENV'}")


def _own(named: str | None, engine: EngineName) -> Path | None:
    """Find a user's virtualenv by its path."""
    if named is None or named in config.recipes():
        return None
    folder = user.expand(named).absolute()
    if not storage.exists(folder / "bin" / "python"):
        return None
    if not storage.exists(folder / "bin" / engine):
        raise Problem(
            f"{folder} cannot serve",
            cause=f"it has no bin/{engine}",
            fix=f"install {TITLES[engine]} in it, or leave --env out",
        )
    return folder
