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
from medley.values import FileTable

LIBCUDA_VARIABLE = "TRITON_LIBCUDA_PATH"
_LIBCUDA_REASON = (
    "the driver's libcuda only; its folder holds the host's libc, which Nix's compiler must not see"
)
# Triton 3.7 asks for the first, older ones and torch's inductor for the second.
_LIBCUDA_NAMES = (driver.CUDA_LIBRARY, "libcuda.so")
_NCCL_FILE = Path("lib/libnccl.so.2")
_HASH_DIGITS = 12


class Loader(FileTable):
    """The loader for other systems' programs on NixOS."""

    interpreter: str
    patchelf: str
    libraries: tuple[str, ...]


class Toolkit(FileTable):
    kind: str
    variables: Mapping[str, str]
    """Variables of the engine and its compilers by name: CUDA_HOME, CC, …"""
    path: tuple[str, ...]
    """Folders of programs, before those on PATH."""
    preload: tuple[str, ...]
    """Libraries that a Python on Nix's loader loads by full path when it starts."""
    pythons: Mapping[str, str]
    """Interpreters by version: `3.11`."""
    uv: str
    loader: Loader | None = None


def find_toolkit(kind: str, *, can_build: bool = True, progress: Progress = SILENT) -> Toolkit | None:
    """Return the toolkit: the dev shell's, else the flake's, built by Nix in minutes if `can_build`."""
    if folder := os.environ.get("MEDLEY_TOOLKIT"):
        return read_toolkit(Path(folder))
    link = _find_flake_output(f"toolkit-{kind}", Path("toolkit.json"), progress, can_build=can_build)
    return read_toolkit(link) if link else None


def find_nccl(kind: str, *, can_build: bool = True, progress: Progress = SILENT) -> Path | None:
    """Return the NCCL for this kind: MEDLEY_NCCL, else the flake's, compiled if it may be, else None."""
    if user_path := os.environ.get("MEDLEY_NCCL"):
        return Path(user_path)
    link = _find_flake_output(f"nccl-{kind}", _NCCL_FILE, progress, can_build=can_build)
    return link / _NCCL_FILE if link else None


def _find_flake_output(output: str, file: Path, progress: Progress, *, can_build: bool) -> Path | None:
    """Return the link to an output with this file, realized first if it may be; None without a flake."""
    flake = os.environ.get("MEDLEY_FLAKE")
    if not flake:
        return None
    link = get_root_link(output.removeprefix("toolkit-"), flake)
    if not storage.exists(link / file):
        if not can_build:
            return None
        _realize_output(output, flake, link, progress)
    return link


def read_toolkit(folder: Path) -> Toolkit:
    file = folder / "toolkit.json"
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise Problem(
            f"there is no toolkit in {folder}",
            cause=f"{file}: {error.strerror}",
            fix="enter the shell again (nix develop .#KIND), or: unset MEDLEY_TOOLKIT",
        ) from error
    return parse_toolkit(text, str(file))


def parse_toolkit(text: str, where: str) -> Toolkit:
    """Return the toolkit in the text of toolkit.json; a Problem names the wrong key."""
    table = json_shape.parse_object(text)
    if table is None:
        raise Problem(
            f"{where} is not a toolkit",
            cause="it holds no JSON object",
            fix="point MEDLEY_TOOLKIT at the result of `nix build .#toolkit-KIND`",
        )
    return config.build_table(table, Toolkit, where)


def get_root_link(name: str, flake: str) -> Path:
    """Return the link that keeps an output from Nix's garbage collection, named by the flake's hash."""
    return (
        storage.find_cache_folder()
        / "toolkits"
        / f"{name}-{storage.hash_bytes(flake.encode())[:_HASH_DIGITS]}"
    )


def _realize_output(output: str, flake: str, link: Path, progress: Progress) -> None:
    command = build_realize_command(flake, output, link)
    storage.make_folder(link.parent)
    with progress.stage(f"{output}, by Nix"):
        finished = process.run(command, on_line=progress.line)
    if finished.status:
        raise Problem(
            f"Nix could not make {output}",
            cause="\n".join(finished.lines[-8:]) or f"nix exited with {finished.status}",
            fix=f"run it by itself: {command}",
        )
    for link_of_flake in storage.list_folder(link.parent, link.name[:-_HASH_DIGITS] + "?" * _HASH_DIGITS):
        if link_of_flake != link:
            storage.remove_file(link_of_flake)  # otherwise Nix keeps the toolkits of older flakes


def build_realize_command(flake: str, output: str, link: Path) -> Command:
    """Return `nix build` of an output; the flake is a store path, so Nix builds it once."""
    features = ("--extra-experimental-features", "nix-command flakes")
    return Command(("nix", *features, "build", f"{flake}#{output}", "--out-link", str(link)))


def list_toolkit_variables(
    variables: Mapping[str, str], program_folders: Iterable[str], inherited_path: str
) -> Iterator[Variable]:
    """Yield the toolchain's variables, and PATH with its programs first."""
    for name, value in variables.items():
        why = (
            _LIBCUDA_REASON
            if name == LIBCUDA_VARIABLE
            else "the toolchain that Nix pins for this kind of host"
        )
        yield Variable(name, value, why)
    if folders := tuple(program_folders):
        search_path = ":".join((*folders, inherited_path))
        yield Variable("PATH", search_path, "the environment's and the toolchain's programs first")


def add_libcuda(tools: Toolkit | None, table: HostTable, *, can_write: bool = True) -> Toolkit | None:
    """Return the toolkit with libcuda's folder in its variables, unless the user has set it.

    `can_write`: write the links in that folder.
    """
    if tools is None or table.device == "cpu" or os.environ.get(LIBCUDA_VARIABLE):
        return tools
    path = driver.find_libraries(table.driver).paths.get(driver.CUDA_LIBRARY)
    if path is None:
        return tools
    # One folder per path, because hosts that share a home may have libcuda in different places. The links
    # lead to that path and not to the file behind it, so that they outlast an upgrade of the driver.
    folder = storage.find_cache_folder() / "drivers" / storage.hash_bytes(path.encode())[:12]
    if can_write:
        for name in _LIBCUDA_NAMES:
            storage.replace_link(folder / name, path)
    return tools.replace(variables={**tools.variables, LIBCUDA_VARIABLE: str(folder)})
