"""Find the driver's libraries of this host, and load them by full path when an engine's Python starts.

environment/driver.py and host/health/gpu.py import it to find them. An engine environment has a copy, which
calls `load`: it imports nothing of medley. Whatever fails there, Python starts: what is missing shows itself
where it is needed.
"""

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

# The driver's libraries that CUDA programs open by name, or libcuda does; the rest they need themselves.
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4")
# What libcuda opens by name where it has a folder of its own: on a Jetson, whose first allocation crashes
# without (jetpack-nixos names libnvcucompat as needed for it), and under WSL.
OPENED = ("libnvcucompat.so", "libnvcuextend.so", "libdxcore.so")
# All that is ever taken from a folder of the driver's own, and from one that it shares with the system:
# the host's libc must not meet another one's.
_OWN = ("libcuda.so", "libcuda_", "libnv", "libdxcore.so")
_SHARED = ("libcuda.so", "libnvidia-")
# Folders of a CUDA toolkit with a libcuda that is not the host's: to link against, or of another driver.
_TOOLKITS = frozenset({"stubs", "compat"})
# Where ldconfig did not make the link; its soname is the short one all the same.
_ALSO = {"libcuda.so.1": "libcuda.so.1.1"}
_MACHINES = {"x86_64": 62, "aarch64": 183}
_ELF_64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
BEGIN_BYTES = 20
# Further libraries, as PATH is written: an engine's process names what it alone needs.
MORE = "MEDLEY_PRELOAD"
_MISSING = re.compile(r"^([^/:\s]+\.so[^/:\s]*): cannot open shared object file")

Seen = tuple[str, bytes]
"""The file that a path leads to, and its first BEGIN_BYTES."""


def look(path: str) -> Seen | None:
    """What is at a path; None where nothing is, no bytes where a link leads nowhere."""
    there, real = Path(path), os.path.realpath(path)  # Path.resolve raises where links go round
    try:
        with there.open("rb") as file:
            return real, file.read(BEGIN_BYTES)
    except OSError:
        return (real, b"") if there.is_symlink() else None


def objection(name: str, seen: Seen, machine: str) -> str | None:
    """Why what was seen is not the driver's library of this name; None where it is."""
    real, begin = seen
    *folders, last = real.split("/")
    if last.partition(".so")[0] != name.partition(".so")[0]:
        return f"it leads to {real}"
    if _TOOLKITS.intersection(folders):
        return f"it leads to a CUDA toolkit's own, {real}"
    if not begin:
        return f"{real} is empty, or not there"
    of_machine = int.from_bytes(begin[18:20], "little") == _MACHINES.get(machine)
    if not begin.startswith(_ELF_64_LITTLE_ENDIAN) or not of_machine:
        return f"{real} is not a library for {machine}"
    return None


class Drivers:
    """Where the driver's libraries are: folders of its own, and folders it shares with the system."""

    def __init__(
        self,
        directories: tuple[str, ...],
        shared_directories: tuple[str, ...],
        machine: str = os.uname().machine,
        look: Callable[[str], Seen | None] = look,
    ) -> None:
        self.directories, self.shared_directories = directories, shared_directories
        self.machine, self._look = machine, look
        # Libraries of two drivers crash: WSL's libcuda, and Ubuntu's ptxjitcompiler that a package brought.
        if self.find(DRIVER[0], directories):
            self.shared_directories = ()

    def find(self, name: str, folders: tuple[str, ...] | None = None) -> str | None:
        """Where a library is, or None."""
        for path, seen in self.seen(name, folders):
            if objection(name, seen, self.machine) is None:
                return path
        return None

    def seen(self, name: str, folders: tuple[str, ...] | None = None) -> Iterator[tuple[str, Seen]]:
        """What has this name in each folder that it may be taken from."""
        if folders is None:
            own = self.directories if name.startswith(_OWN) else ()
            folders = (*own, *(self.shared_directories if name.startswith(_SHARED) else ()))
        for folder in folders:
            for each in filter(None, (name, _ALSO.get(name))):
                seen = self._look(f"{folder}/{each}")
                if seen:
                    yield f"{folder}/{each}", seen


def load(
    libraries: tuple[str, ...],
    drivers: Drivers,
    open_library: Callable[[str], object] = lambda path: ctypes.CDLL(path, ctypes.RTLD_GLOBAL),
) -> list[str]:
    """Load the libraries, then the driver's; returns what was loaded, in order."""
    loaded: list[str] = []

    def opened(path: str, waiting: frozenset[str]) -> bool:
        """Whether it was loaded, after what the loader says it misses; `waiting` are those that need it."""
        missed: set[str] = set()
        while path not in loaded:
            try:
                open_library(path)
            except OSError as error:
                missing = _MISSING.match(str(error))
                needed = drivers.find(missing[1]) if missing and missing[1] not in missed else None
                if needed is None or needed in waiting or not opened(needed, waiting | {needed}):
                    return False
                missed.add(missing[1] if missing else "")
            else:
                loaded.append(path)
        return True

    for path in (*libraries, *filter(None, map(drivers.find, (*DRIVER, *OPENED)))):
        opened(path, frozenset({path}))
    return loaded


def more() -> tuple[str, ...]:
    """What the process was told to load besides."""
    return tuple(filter(None, os.environ.get(MORE, "").split(":")))
