"""Decide whether the host's NVIDIA driver libraries are present, complete and new enough."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from medley.errors import Problem
from medley.host.driver_libraries import (
    DRIVER_LIBRARIES,
    OPTIONAL_LIBRARIES,
    DriverLibraries,
    LibraryFile,
    find_objection,
    read_library_file,
)
from medley.host_schema import Driver, HostTable
from medley.values import Value

System = Literal["NixOS", "WSL"]
CUDA_LIBRARY = DRIVER_LIBRARIES[0]
# The oldest driver for each major version of CUDA, from the table in NVIDIA's guide
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_MIN_DRIVERS = {"11": 450, "12": 525, "13": 580}
CUDA_OF_L4T = {"35": "11.4", "36": "12.6", "38": "13.0", "39": "13.2"}
"""The CUDA that a Jetson's driver runs, which its nvidia-smi may not print, by the major of its L4T.

source: jetson-containers' map of L4T's releases (r36.4 and r36.5, r38, r39)"""
_INSTALL_FIXES = {
    "NixOS": "hardware.graphics.enable = true and the driver in its configuration; sudo nixos-rebuild switch",
    "WSL": "install the driver in Windows, and none in here; then in Windows: wsl --update",
    "Jetson": "sudo apt-get install --reinstall nvidia-l4t-cuda nvidia-l4t-core; sudo reboot",
    None: "sudo ubuntu-drivers install; sudo reboot  # or as the system's own documents say",
}
# A Jetson's libcuda.so.1.1 has no version; files next to it have: libnvidia-ptxjitcompiler.so.540.4.0.
_VERSION_PATTERN = re.compile(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)$")


class Libraries(Value):
    paths: Mapping[str, str]
    """Paths by the name that programs open, in the order in which programs load them."""
    versions: Mapping[str, str]
    """Driver versions by library name, of files with a version in their name."""
    refusals: tuple[str, ...] = ()
    """Files that have libcuda's name but are not the driver's, each with the reason."""

    @property
    def version(self) -> str | None:
        return next(iter(self.versions.values()), None)


def find_libraries(
    driver: Driver,
    machine: str = os.uname().machine,
    read_file: Callable[[str], LibraryFile | None] = read_library_file,
) -> Libraries:
    """Find the driver's libraries in the folders of `driver`."""
    drivers = DriverLibraries(driver.directories, driver.shared_directories, machine, read_file)
    paths = {name: path for name in (*DRIVER_LIBRARIES, *OPTIONAL_LIBRARIES) if (path := drivers.find(name))}
    real_paths = {name: file_facts[0] for name, path in paths.items() if (file_facts := read_file(path))}
    versions = {
        name: match[1] for name, real in real_paths.items() if (match := _VERSION_PATTERN.search(real))
    }
    refusals = (
        f"{path}: {why}"
        for path, file_facts in drivers.list_library_files(CUDA_LIBRARY)
        if (why := find_objection(CUDA_LIBRARY, file_facts, machine))
    )
    return Libraries(paths, versions, tuple(refusals))


def find_problem(libraries: Libraries, table: HostTable, system: System | None) -> Problem | None:
    """Return the Problem of this kind's engines with these libraries; None without one."""
    return find_install_problem(libraries, table, "this host", system) or find_version_problem(
        "this host", libraries.version, None, table
    )


def find_install_problem(
    libraries: Libraries, table: HostTable, where: str, system: System | None
) -> Problem | None:
    """Return the Problem of a missing or half-upgraded driver."""
    if CUDA_LIBRARY not in libraries.paths:
        folders = ", ".join((*table.driver.directories, *table.driver.shared_directories)) or "no folder"
        return Problem(
            f"the NVIDIA driver of {where} is not found",
            cause="\n".join(libraries.refusals) or f"there is no {CUDA_LIBRARY} in {folders}",
            fix=_INSTALL_FIXES["Jetson" if table.recognise.soc and system is None else system],
        )
    if len(set(libraries.versions.values())) > 1:
        versions = ", ".join(f"{name} is of {version}" for name, version in libraries.versions.items())
        return Problem(
            f"the NVIDIA driver of {where} is half upgraded",
            cause=versions,
            fix="end the upgrade (sudo apt-get -f install; sudo apt-get upgrade), then: sudo reboot",
        )
    return None


def detect_system(root: Path = Path("/")) -> System | None:
    """Return the system if the driver is installed there in another way than with packages; else None."""
    if (root / "etc/NIXOS").exists():
        return "NixOS"
    return "WSL" if (root / "usr/lib/wsl").exists() else None


def find_version_problem(
    where: str, version: str | None, cuda: str | None, table: HostTable
) -> Problem | None:
    """Return the Problem of a driver that is too old for the CUDA of this kind's engines.

    Only major versions count: any driver of one major version runs that CUDA.
    """
    needed_cuda = table.toolkit and table.toolkit.cuda
    if not needed_cuda:
        return None
    needed_major, driver_cuda_major, driver_major = (
        version_text.partition(".")[0] for version_text in (needed_cuda, cuda or "", version or "")
    )
    if cuda and int(driver_cuda_major) < int(needed_major):
        why = f"driver{f' {version}' if version else ''} runs CUDA {cuda} at most"
    elif not cuda and version and int(driver_major) < _MIN_DRIVERS.get(needed_major, 0):
        why = f"it is {version}, CUDA {needed_major} needs {_MIN_DRIVERS[needed_major]} or newer"
    else:
        return None
    return Problem(
        f"the NVIDIA driver of {where} is too old",
        cause=f"{why}, and the engines for it have CUDA {needed_cuda}",
        fix=f"on {where}: a newer driver (sudo ubuntu-drivers install), or on a Jetson a newer JetPack",
    )
