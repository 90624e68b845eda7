"""Find or realize the toolchain that Nix pins (`toolkit.json`), and the folder with libcuda.

Triton asks /sbin/ldconfig for that folder: NixOS has none, and Ubuntu's holds the host's libc, which Nix's
compiler must not link (TRITON_LIBCUDA_PATH in Triton's nvidia/driver.py).
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from medley import config, json_shape, process, storage
from medley.command import Command, Variable
from medley.environment import driver
from medley.errors import Problem
from medley.host_schema import HostTable
from medley.progress import SILENT, Progress
from medley.schema import StrictTable

LIBCUDA = "TRITON_LIBCUDA_PATH"
_LIBCUDA_WHY = (
    "the driver's libcuda only; its folder holds the host's libc, which Nix's compiler must not see"
)
# Triton 3.7 asks for the first, older ones and torch's inductor for the second.
_LIBCUDA_NAMES = (driver.CUDA, "libcuda.so")
_NCCL = Path("lib/libnccl.so.2")
_DIGITS = 12


class Loader(StrictTable):
    """The loader for other systems' programs on NixOS."""

    interpreter: str
    patchelf: str
    libraries: tuple[str, ...]


class Toolkit(StrictTable):
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


def find(kind: str, *, make: bool = True, watch: Progress = SILENT) -> Toolkit | None:
    """Find the toolkit: the dev shell's, else the flake's, which a first use builds in minutes if `make`."""
    if named := os.environ.get("MEDLEY_TOOLKIT"):
        return read(Path(named))
    link = _of_flake(f"toolkit-{kind}", Path("toolkit.json"), watch, make=make)
    return read(link) if link else None


def nccl(kind: str, *, make: bool = True, watch: Progress = SILENT) -> Path | None:
    """The NCCL for this kind of host: MEDLEY_NCCL, else the flake's, compiled at first use, else None."""
    if named := os.environ.get("MEDLEY_NCCL"):
        return Path(named)
    link = _of_flake(f"nccl-{kind}", _NCCL, watch, make=make)
    return link / _NCCL if link else None


def _of_flake(output: str, file: Path, watch: Progress, *, make: bool) -> Path | None:
    """The link to an output that has this file; realised first if need be, and if it may be."""
    flake = os.environ.get("MEDLEY_FLAKE")
    if not flake:
        return None
    link = root(output.removeprefix("toolkit-"), flake)
    if not storage.exists(link / file):
        if not make:
            return None
        _realise(output, flake, link, watch)
    return link


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


def parse(text: str, where: str) -> Toolkit:
    """Parse toolkit.json; the Problem names the key."""
    table = json_shape.table(text)
    if table is None:
        raise Problem(
            f"{where} is not a toolkit",
            cause="it holds no JSON object",
            fix="point MEDLEY_TOOLKIT at the result of `nix build .#toolkit-KIND`",
        )
    return config.build(table, Toolkit, where)


def root(name: str, flake: str) -> Path:
    """The link that keeps an output from Nix's garbage collection; a flake's store path names its content."""
    return storage.cache() / "toolkits" / f"{name}-{storage.hash_bytes(flake.encode())[:_DIGITS]}"


def _realise(output: str, flake: str, link: Path, watch: Progress) -> None:
    command = realise(flake, output, link)
    storage.make(link.parent)
    with watch.stage(f"{output}, by Nix"):
        finished = process.run(command, on_line=watch.line)
    if finished.status:
        raise Problem(
            f"Nix could not make {output}",
            cause="\n".join(finished.lines[-8:]) or f"nix exited with {finished.status}",
            fix=f"run it by itself: {command}",
        )
    for old in storage.list_folder(link.parent, link.name[:-_DIGITS] + "?" * _DIGITS):
        if old != link:
            storage.remove_file(old)  # else Nix keeps the toolkits of flakes long gone


def realise(flake: str, output: str, link: Path) -> Command:
    """`nix build` of an output; the flake is a store path, so it is pure and made once."""
    features = ("--extra-experimental-features", "nix-command flakes")
    return Command(("nix", *features, "build", f"{flake}#{output}", "--out-link", str(link)))


def of_toolkit(settings: Mapping[str, str], path: Iterable[str], inherited: str) -> Iterator[Variable]:
    """Yield the toolchain's variables, and PATH with its programs first."""
    for name, value in settings.items():
        why = _LIBCUDA_WHY if name == LIBCUDA else "the toolchain that Nix pins for this kind of host"
        yield Variable(name, value, why)
    if folders := tuple(path):
        joined = ":".join((*folders, inherited))
        yield Variable("PATH", joined, "the environment's and the toolchain's programs first")


def with_libcuda(chain: Toolkit | None, host: HostTable, *, make: bool = True) -> Toolkit | None:
    """Add the folder of libcuda to the variables, unless the user has set it; `make` writes its links."""
    if chain is None or host.device == "cpu" or os.environ.get(LIBCUDA):
        return chain
    path = driver.libraries(host.driver).paths.get(driver.CUDA)
    if path is None:
        return chain
    # By path: hosts that share a home may have theirs in different places. The links lead to that path
    # and not to the file behind it, so that they outlast an upgrade of the driver.
    folder = storage.cache() / "drivers" / storage.hash_bytes(path.encode())[:12]
    if make:
        for name in _LIBCUDA_NAMES:
            storage.link(folder / name, path)
    return chain.model_copy(update={"variables": {**chain.variables, LIBCUDA: str(folder)}})
