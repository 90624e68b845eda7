"""The tools of a launch: an engine environment, and the toolchain that Nix pins for this kind of host."""

import os
from pathlib import Path

from medley import config, toolkit, venv
from medley.kind import Kind
from medley.launch import Tools
from medley.problem import Problem
from medley.toolkit import Toolkit
from medley.watch import SILENT, Watch


def ready(kind: Kind, named: str | None = None, *, watch: Watch = SILENT) -> Tools:
    """What `kind` is served with, built and realised where need be; `named` is what --env said."""
    own = _own(named)
    chain = toolkit.find(kind.name, watch=watch)
    if chain and chain.kind != kind.name:
        watch.note(f"this shell's toolchain is for {chain.kind}, and the host is {kind.name}")
    if own:
        return _tools(own / "bin", chain)
    name = environment(kind, named)
    return _tools(venv.ready(name, chain, driver=kind.host.driver, watch=watch).programs, chain)


def expected(kind: Kind, named: str | None = None, *, watch: Watch = SILENT) -> Tools:
    """The same tools as far as they are there; builds nothing, and notes what would be built."""
    chain = toolkit.present(kind.name)
    if chain is None and os.environ.get("MEDLEY_FLAKE"):
        watch.note(f"Nix would realise toolkit-{kind.name} first, and its variables would be added")
    own = _own(named)
    if own:
        return _tools(own / "bin", chain)
    name = environment(kind, named)
    wanted = venv.blueprint(name, chain, driver=kind.host.driver)
    if venv.read(wanted.path) is None:
        watch.note(f"the engine environment would be built first: medley env build {name}")
    return _tools(wanted.path / "bin", chain)


def environment(kind: Kind, named: str | None) -> str:
    """The name of the engine environment: as named, or as the kind's table says."""
    if named in config.recipes():
        return str(named)
    if named is not None:
        raise Problem(
            f"there is no engine environment {named!r}",
            cause=f"it is no virtualenv with bin/python, and locks/ has {', '.join(config.recipes())}",
            fix=f"--env {next(iter(kind.host.environments.values()), 'PATH-OF-A-VIRTUALENV')}",
        )
    if "vllm" not in kind.host.environments:
        raise Problem(
            f"there is no engine environment for {kind.host.title}",
            cause=kind.host.no_environment or f"hosts/{kind.name}.toml names none",
            fix="medley serve MODEL --env /path/to/a/virtualenv/with/vllm",
        )
    return kind.host.environments["vllm"]


def _own(named: str | None) -> Path | None:
    """A virtualenv of the user's own, by its path."""
    if named is None or named in config.recipes():
        return None
    folder = Path(named).expanduser().absolute()
    if not (folder / "bin" / "python").exists():
        return None
    if not (folder / "bin" / "vllm").exists():
        raise Problem(
            f"{folder} cannot serve", cause="it has no bin/vllm", fix="install vLLM in it, or leave --env out"
        )
    return folder


def _tools(binary: Path, chain: Toolkit | None) -> Tools:
    if chain is None:
        return Tools(binary)
    return Tools(binary, chain.variables, chain.path)
