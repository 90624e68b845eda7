"""Check the host's NVIDIA driver libraries: present, complete, new enough."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from medley.errors import Problem
from medley.host.driver_libraries import DRIVER, OPENED, Drivers, Seen, look, objection
from medley.host_schema import Driver, HostTable

System = Literal["NixOS", "WSL"]
CUDA = DRIVER[0]
# Of each major of CUDA, the oldest driver that runs it, by the table in NVIDIA's guide
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_OLDEST = {"11": 450, "12": 525, "13": 580}
CUDA_OF_L4T = {"35": "11.4", "36": "12.6", "38": "13.0", "39": "13.2"}
"""The CUDA that a Jetson's driver runs, which its nvidia-smi may not print, by the major of its L4T.

source: jetson-containers' map of L4T's releases (r36.4 and r36.5, r38, r39)"""
_INSTALLED = {
    "NixOS": "hardware.graphics.enable = true and the driver in its configuration; sudo nixos-rebuild switch",
    "WSL": "install the driver in Windows, and none in here; then in Windows: wsl --update",
    "Jetson": "sudo apt-get install --reinstall nvidia-l4t-cuda nvidia-l4t-core; sudo reboot",
    None: "sudo ubuntu-drivers install; sudo reboot  # or as the system's own documents say",
}
# A Jetson's libcuda.so.1.1 has none; what lies beside it has: libnvidia-ptxjitcompiler.so.540.4.0.
_VERSION = re.compile(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)$")


@dataclass(frozen=True)
class Libraries:
    paths: Mapping[str, str]
    """By the name that programs open, in the order in which they are loaded."""
    versions: Mapping[str, str]
    """Of files with a version in the name."""
    refused: tuple[str, ...] = ()
    """What has the name of libcuda and is not the driver's, and why."""

    @property
    def version(self) -> str | None:
        return next(iter(self.versions.values()), None)


def libraries(
    driver: Driver, machine: str = os.uname().machine, look: Callable[[str], Seen | None] = look
) -> Libraries:
    """Find the driver's libraries in the folders of `driver`."""
    kept = Drivers(driver.directories, driver.shared_directories, machine, look)
    found = {name: path for name in (*DRIVER, *OPENED) if (path := kept.find(name))}
    reals = {name: seen[0] for name, path in found.items() if (seen := look(path))}
    versions = {name: match[1] for name, real in reals.items() if (match := _VERSION.search(real))}
    refused = (f"{path}: {why}" for path, seen in kept.seen(CUDA) if (why := objection(CUDA, seen, machine)))
    return Libraries(found, versions, tuple(refused))


def trouble(found: Libraries, host: HostTable, system: System | None) -> Problem | None:
    """Why the engines of this kind of host cannot run on these; None where they can."""
    return unfit(found, host, "this host", system) or too_old("this host", found.version, None, host)


def unfit(found: Libraries, host: HostTable, where: str, system: System | None) -> Problem | None:
    """Return the Problem of a missing or half-upgraded driver."""
    if CUDA not in found.paths:
        looked = ", ".join((*host.driver.directories, *host.driver.shared_directories)) or "no folder"
        return Problem(
            f"the NVIDIA driver of {where} is not found",
            cause="\n".join(found.refused) or f"there is no {CUDA} in {looked}",
            fix=_INSTALLED["Jetson" if host.recognise.soc and system is None else system],
        )
    if len(set(found.versions.values())) > 1:
        listed = ", ".join(f"{name} is of {version}" for name, version in found.versions.items())
        return Problem(
            f"the NVIDIA driver of {where} is half upgraded",
            cause=listed,
            fix="end the upgrade (sudo apt-get -f install; sudo apt-get upgrade), then: sudo reboot",
        )
    return None


def system(root: Path = Path("/")) -> System | None:
    """Detect systems that bring the driver in another way."""
    if (root / "etc/NIXOS").exists():
        return "NixOS"
    return "WSL" if (root / "usr/lib/wsl").exists() else None


def too_old(where: str, version: str | None, cuda: str | None, host: HostTable) -> Problem | None:
    """Compare major versions with the CUDA of this kind's engines: any driver of one major runs it."""
    needs = host.toolkit and host.toolkit.cuda
    if not needs:
        return None
    major, runs, has = (each.partition(".")[0] for each in (needs, cuda or "", version or ""))
    if cuda and int(runs) < int(major):
        why = f"driver{f' {version}' if version else ''} runs CUDA {cuda} at most"
    elif not cuda and version and int(has) < _OLDEST.get(major, 0):
        why = f"it is {version}, CUDA {major} needs {_OLDEST[major]} or newer"
    else:
        return None
    return Problem(
        f"the NVIDIA driver of {where} is too old",
        cause=f"{why}, and the engines for it have CUDA {needs}",
        fix=f"on {where}: a newer driver (sudo ubuntu-drivers install), or on a Jetson a newer JetPack",
    )
