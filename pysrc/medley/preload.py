"""A preload is what a Python on another loader than the host's loads at its start, each library by full path.

Such a loader has no default folders and no ld.so.cache, so it finds neither what wheels expect of a system
nor the driver. What is loaded by full path is then found by its name. LD_LIBRARY_PATH would do the same, and
break every program of the host that inherits it.
"""

import hashlib
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from medley.tables import Driver
from medley.toolkit import Toolkit

MODULE = "_medley_preload"


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
        """What a Python that is not on the host's libc needs."""
        found = driver or Driver()
        return cls(toolkit.preload if toolkit else (), found.directories, found.shared_directories)

    def __bool__(self) -> bool:
        return bool(self.libraries or self.directories or self.shared_directories)

    def table(self) -> dict[str, Any]:
        """What shapes an environment; nothing of it where nothing is loaded."""
        code = {"code": hashlib.sha256(_code().encode()).hexdigest()} if self else {}
        return {**{name: list(value) for name, value in asdict(self).items()}, **code}

    def write(self, site_packages: Path) -> None:
        """Make the Python of these site-packages do it at every start.

        The .pth imports a module: what a line of a .pth binds cannot be seen from a comprehension in it.
        """
        drivers = f"Drivers({self.directories!r}, {self.shared_directories!r})"
        call = f"\n\nload({self.libraries!r} + more(), {drivers})\n"
        (site_packages / f"{MODULE}.py").write_text(_code() + call, encoding="utf-8")
        (site_packages / f"{MODULE}.pth").write_text(f"import {MODULE}\n", encoding="utf-8")


def _code() -> str:
    return (files("medley") / "inside" / "preload.py").read_text(encoding="utf-8")
