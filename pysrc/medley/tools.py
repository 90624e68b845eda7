"""The tools of a launch: an engine environment, and the toolchain that Nix pins for this kind of host."""

import os
from pathlib import Path

from medley import config, driver, elf, libcuda, toolkit, venv
from medley.inside.preload import MORE as PRELOAD
from medley.kind import Kind
from medley.launch import Tools
from medley.origin import OWN_NCCL, needs_nccl, no_nccl
from medley.preload import Preload
from medley.problem import Problem
from medley.tables import TITLES, Engine
from medley.toolkit import Toolkit
from medley.watch import SILENT, Watch


def ready(
    kind: Kind,
    named: str | None = None,
    *,
    engine: Engine = "vllm",
    joins: bool = False,
    watch: Watch = SILENT,
) -> Tools:
    """What `kind` is served with, built and realised where need be; `named` is what --env said.

    `joins`: its ranks talk to those of other hosts.
    """
    own = _own(named, engine)
    chain = libcuda.given(toolkit.find(kind.name, watch=watch), kind.host)
    if chain and chain.kind != kind.name:
        watch.note(f"this shell's toolchain is for {chain.kind}, and the host is {kind.name}")
    if own:
        binary = own / "bin"
    else:
        name = environment(kind, named, engine)
        wanted = venv.blueprint(name, chain, driver=kind.host.driver)
        _require_nccl(kind, wanted.interpreter.loader if joins else None)
        require_driver(kind, wanted.preload)
        binary = venv.ready(name, chain, driver=kind.host.driver, watch=watch).programs
    nccl = (
        toolkit.nccl(kind.name, watch=watch)
        if joins and _needs_nccl(kind, elf.loader(binary / "python"))
        else None
    )
    return _tools(binary, chain, nccl)


def expected(
    kind: Kind,
    named: str | None = None,
    *,
    engine: Engine = "vllm",
    joins: bool = False,
    watch: Watch = SILENT,
) -> Tools:
    """The same tools as far as they are there; builds nothing, and notes what would be built."""
    chain = libcuda.given(toolkit.present(kind.name), kind.host, make=False)
    if chain is None and os.environ.get("MEDLEY_FLAKE"):
        watch.note(f"Nix would realise toolkit-{kind.name} first, and its variables would be added")
    own = _own(named, engine)
    if own:
        binary, loader = own / "bin", elf.loader(own / "bin" / "python")
    else:
        name = environment(kind, named, engine)
        wanted = venv.blueprint(name, chain, driver=kind.host.driver)
        _require_nccl(kind, wanted.interpreter.loader if joins else None)
        require_driver(kind, wanted.preload)
        if venv.read(wanted.path) is None:
            watch.note(f"the engine environment would be built first: medley env build {name}")
        binary, loader = wanted.path / "bin", wanted.interpreter.loader
    nccl = None
    if joins and _needs_nccl(kind, loader):
        nccl = toolkit.nccl_present(kind.name)
        if nccl is None and os.environ.get("MEDLEY_FLAKE"):
            watch.note(f"Nix would compile nccl-{kind.name} first, and its variables would be added")
    return _tools(binary, chain, nccl)


def require_driver(kind: Kind, loads: Preload) -> None:
    """A Problem before minutes of building, where nobody else would find the driver.

    A Python on the host's own loader loads nothing so: it finds what ldconfig lists, which may be elsewhere.
    """
    if kind.host.device != "cpu" and loads:
        problem = driver.trouble(driver.libraries(kind.host.driver), kind.host, system=driver.system())
        if problem:
            raise problem


def environment(kind: Kind, named: str | None, engine: Engine = "vllm") -> str:
    """The name of the engine environment: as named, or as the kind's table says."""
    title, offered = TITLES[engine], kind.host.environments.get(engine)
    if named is not None:
        return _named(named, engine, offered)
    if offered is None:
        known = " and ".join(TITLES[other] for other in kind.host.environments)
        raise Problem(
            f"there is no engine environment with {title} for {kind.host.title}",
            cause=kind.host.no_environment
            or f"hosts/{kind.name}.toml names {f'one with {known} alone' if known else 'none'}",
            fix=_way(kind, engine),
        )
    return offered


def _way(kind: Kind, engine: Engine) -> str:
    own = f"medley serve MODEL --env /path/to/a/virtualenv/with/{engine}"
    held = kind.host.container
    if held.image and (not held.holds or engine in held.holds):
        return f"medley serve MODEL --image default   # or: {own}"
    return own


def _named(named: str, engine: Engine, offered: str | None) -> str:
    """A lock of ours by its name, if it is one with this engine."""
    recipes = config.recipes()
    fix = f"--env {offered or 'PATH-OF-A-VIRTUALENV'}"
    if named not in recipes:
        raise Problem(
            f"there is no engine environment {named!r}",
            cause=f"it is no virtualenv with bin/python, and locks/ has {', '.join(recipes)}",
            fix=fix,
        )
    if recipes[named].engine != engine:
        raise Problem(
            f"{named} cannot be served from with {TITLES[engine]}",
            cause=f"it has {TITLES[recipes[named].engine]} in it",
            fix=fix,
        )
    return named


def _own(named: str | None, engine: Engine) -> Path | None:
    """A virtualenv of the user's own, by its path."""
    if named is None or named in config.recipes():
        return None
    folder = Path(named).expanduser().absolute()
    if not (folder / "bin" / "python").exists():
        return None
    if not (folder / "bin" / engine).exists():
        raise Problem(
            f"{folder} cannot serve",
            cause=f"it has no bin/{engine}",
            fix=f"install {TITLES[engine]} in it, or leave --env out",
        )
    return folder


def _needs_nccl(kind: Kind, loader: str | None) -> bool:
    """Where that of the wheels does not start; Nix's own is on Nix's libc, as its Python has to be."""
    return needs_nccl(kind) and loader is not None and not elf.is_hosts(loader)


def _require_nccl(kind: Kind, loader: str | None) -> None:
    """A Problem where that of the wheels does not start, and a Python on this loader has no other."""
    if needs_nccl(kind) and loader is not None and elf.is_hosts(loader) and not os.environ.get(OWN_NCCL):
        raise no_nccl(kind)


def _tools(binary: Path, chain: Toolkit | None, nccl: Path | None) -> Tools:
    settings = dict(chain.variables) if chain else {}
    if nccl:
        # vLLM opens the first; torch is linked to NCCL by its name, and takes the one that is loaded already.
        settings |= {"VLLM_NCCL_SO_PATH": str(nccl), PRELOAD: str(nccl)}
    return Tools(binary, settings, chain.path if chain else ())
