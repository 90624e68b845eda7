"""The driver's libraries on a host: whether they are where its kind has them, whole, and of one version."""

from collections.abc import Iterator

from medley import driver
from medley.condition.driver_files import FOLDERS, DriverFiles
from medley.doctor.shapes import Check, Host, ok, told, unknown


def libraries(host: Host, files: DriverFiles) -> Iterator[Check]:
    if host.kind is None or host.kind.host.device == "cpu":
        return
    kept = host.kind.host.driver
    found = driver.libraries(kept, host.facts.system.partition("-")[0], files.look)
    problem = driver.unfit(found, host.kind.host, host.name, _system(host))
    own = {*kept.directories, *kept.shared_directories}.difference(FOLDERS)
    if problem is None:
        version = f"{found.version}, " if found.version else ""
        yield ok(host.name, f"{version}libcuda is {found.paths[driver.CUDA]}")
    elif own:
        yield unknown(host.name, f"known folders alone are asked about, and not {', '.join(sorted(own))}")
    elif driver.CUDA in found.paths or found.refused or _pinned(host):
        yield told(host.name, "wrong", problem)
    else:
        yield unknown(host.name, "libcuda is in no folder that medley knows; the host's own loader may know")


def _pinned(host: Host) -> bool:
    """Whether its engines run on Nix's loader, for which medley alone finds the driver."""
    return bool(host.condition.compilers and host.condition.compilers.pinned)


def _system(host: Host) -> driver.System | None:
    if host.facts.software.nixos:
        return "NixOS"
    return "WSL" if "microsoft" in (host.facts.software.kernel or "").lower() else None
