"""NixOS, and images out of Nix, have no loader where programs of others look for it: they are patched."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from medley import elf, machine
from medley.command import Command
from medley.problem import Problem
from medley.toolkit import Loader


def lacks_loader(root: Path = Path("/")) -> bool:
    """NixOS has at most one that refuses (stub-ld); an image out of Nix has none."""
    return (root / "etc/NIXOS").exists() or not any((root / each).exists() for each in elf.LOADERS)


def patch(environment: Path, loader: Loader) -> list[Path]:
    """Give every program of the environment that asks for a host's loader this one; returns them."""
    patched = list(programs(environment))
    for program in patched:
        # A copy, because uv's files may be links into its cache, and a patched cache would serve all hosts.
        copy = program.with_name(f".{program.name}.patched")
        shutil.copy2(program, copy)
        command = set_loader(loader, copy)
        finished = machine.run(command)
        if finished.status:
            raise Problem(
                f"{program.name} cannot be patched for NixOS",
                cause="\n".join(finished.lines[-4:]),
                fix=f"run it by itself: {command}",
            )
        copy.replace(program)
    return patched


def set_loader(loader: Loader, program: Path) -> Command:
    libraries = ":".join(loader.libraries)
    return Command(
        (loader.patchelf, "--set-interpreter", loader.interpreter, "--add-rpath", libraries, str(program))
    )


def programs(environment: Path) -> Iterator[Path]:
    """Raylet, gcs_server and their like: executables that name a loader which NixOS does not have."""
    for where, _, names in os.walk(environment):
        for name in names:
            path = Path(where) / name
            if path.is_symlink() or not os.access(path, os.X_OK):
                continue
            if elf.is_hosts(elf.loader(path)):
                yield path
