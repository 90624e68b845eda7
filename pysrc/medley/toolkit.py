"""A toolkit is what Nix pins for a kind of host: compiler, CUDA, Pythons, uv, libraries that wheels expect.

It is one file, `toolkit.json`, that names store paths. Without one everything runs on the host's own tools.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from medley import config, machine, shaped, store
from medley.command import Command
from medley.problem import Problem
from medley.tables import Table
from medley.watch import SILENT, Watch

_NCCL = Path("lib/libnccl.so.2")
_DIGITS = 12


class Loader(Table):
    """What a program from elsewhere is patched to where the host has no loader: on NixOS."""

    interpreter: str
    patchelf: str
    libraries: tuple[str, ...]


class Toolkit(Table):
    kind: str
    variables: Mapping[str, str]
    """For the engine and what it compiles: CUDA_HOME, CC, …"""
    path: tuple[str, ...]
    """Folders of programs, before those on PATH."""
    preload: tuple[str, ...]
    """Libraries that a Python on Nix's loader loads by full path when it starts."""
    pythons: Mapping[str, str]
    """Interpreters by version: `3.11`."""
    uv: str
    loader: Loader | None = None


def parse(text: str, where: str) -> Toolkit:
    """A toolkit.json, or a Problem that names the key."""
    table = shaped.table(text)
    if table is None:
        raise Problem(
            f"{where} is no toolkit",
            cause="it holds no JSON object",
            fix="point MEDLEY_TOOLKIT at what `nix build .#toolkit-KIND` made",
        )
    return config.build(table, Toolkit, where)


def read(folder: Path) -> Toolkit:
    file = folder / "toolkit.json"
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise Problem(
            f"there is no toolkit in {folder}",
            cause=f"{file}: {error.strerror}",
            fix="enter the shell again (nix develop .#KIND), or: unset MEDLEY_TOOLKIT",
        ) from error
    return parse(text, str(file))


def find(kind: str, *, environ: Mapping[str, str] = os.environ, watch: Watch = SILENT) -> Toolkit | None:
    """The toolkit of this host: the dev shell's, else the flake's for this kind of host, else None.

    The flake's is built at first use, which can take minutes, and is kept by a link beside the environments.
    """
    found = present(kind, environ=environ)
    if found or not environ.get("MEDLEY_FLAKE"):
        return found
    flake = environ["MEDLEY_FLAKE"]
    link = root(kind, flake)
    _realise(f"toolkit-{kind}", flake, link, watch)
    return read(link)


def present(kind: str, *, environ: Mapping[str, str] = os.environ) -> Toolkit | None:
    """The toolkit of this host as far as it is there; None also where Nix has yet to make it."""
    if environ.get("MEDLEY_TOOLKIT"):
        return read(Path(environ["MEDLEY_TOOLKIT"]))
    if not environ.get("MEDLEY_FLAKE"):
        return None
    link = root(kind, environ["MEDLEY_FLAKE"])
    return read(link) if (link / "toolkit.json").exists() else None


def nccl(kind: str, *, environ: Mapping[str, str] = os.environ, watch: Watch = SILENT) -> Path | None:
    """The NCCL for this kind of host: MEDLEY_NCCL, else the flake's, compiled at first use, else None."""
    link = _nccl_root(kind, environ)
    if link and not (link / _NCCL).exists():
        _realise(f"nccl-{kind}", environ["MEDLEY_FLAKE"], link, watch)
    return nccl_present(kind, environ=environ)


def nccl_present(kind: str, *, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The same as far as it is there."""
    if environ.get("MEDLEY_NCCL"):
        return Path(environ["MEDLEY_NCCL"])
    link = _nccl_root(kind, environ)
    return link / _NCCL if link and (link / _NCCL).exists() else None


def _nccl_root(kind: str, environ: Mapping[str, str]) -> Path | None:
    given, flake = environ.get("MEDLEY_NCCL"), environ.get("MEDLEY_FLAKE")
    return root(f"nccl-{kind}", flake) if flake and not given else None


def root(name: str, flake: str) -> Path:
    """The link that keeps an output from Nix's garbage collection; a flake's store path names its content."""
    return store.cache() / "toolkits" / f"{name}-{hashlib.sha256(flake.encode()).hexdigest()[:_DIGITS]}"


def _realise(output: str, flake: str, link: Path, watch: Watch) -> None:
    command = realise(flake, output, link)
    store.make(link.parent)
    with watch.stage(f"{output}, by Nix"):
        finished = machine.run(command, on_line=watch.line)
    if finished.status:
        raise Problem(
            f"Nix could not make {output}",
            cause="\n".join(finished.lines[-8:]) or f"nix exited with {finished.status}",
            fix=f"run it by itself: {command}",
        )
    for old in link.parent.glob(link.name[:-_DIGITS] + "?" * _DIGITS):
        if old != link:
            old.unlink()  # else Nix keeps the toolkits of flakes long gone


def realise(flake: str, output: str, link: Path) -> Command:
    """`nix build` of an output; the flake is a store path, so it is pure and made once."""
    features = ("--extra-experimental-features", "nix-command flakes")
    return Command(("nix", *features, "build", f"{flake}#{output}", "--out-link", str(link)))
