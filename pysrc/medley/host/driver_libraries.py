"""Find the driver's libraries of this host, and load them by full path when an engine's Python starts.

environment/driver.py and host/health/gpu.py import it to find them. An engine environment has a copy, which
calls `load_libraries`, so this module imports nothing of medley. Python starts even if a library cannot be
loaded, because the error then shows where the library is needed.
"""

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

# The driver's libraries that CUDA programs open by name, or libcuda does; the rest they need themselves.
DRIVER_LIBRARIES = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
)
# Libraries that libcuda opens by name on a Jetson and under WSL. Without them the first allocation of a
# Jetson crashes (jetpack-nixos lists libnvcucompat as a requirement of libcuda).
OPTIONAL_LIBRARIES = ("libnvcucompat.so", "libnvcuextend.so", "libdxcore.so")
# The name prefixes of libraries to load from a folder of the driver's own, and from one that it shares with
# the system. No others, because the host's libc must not be loaded beside Nix's.
_OWN_FOLDER_PREFIXES = ("libcuda.so", "libcuda_", "libnv", "libdxcore.so")
_SHARED_FOLDER_PREFIXES = ("libcuda.so", "libnvidia-")
# Folders of a CUDA toolkit whose libcuda is not the host's: a stub for linkers, or of another driver.
_TOOLKIT_FOLDERS = frozenset({"stubs", "compat"})
# The file to try if ldconfig did not make the link: its soname is the short name, too.
_OTHER_NAMES = {"libcuda.so.1": "libcuda.so.1.1"}
_MACHINES = {"x86_64": 62, "aarch64": 183}
_ELF_64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
BEGIN_BYTES = 20
# The variable with the paths of further libraries for one process, separated by colons.
EXTRA_LIBRARIES_VARIABLE = "MEDLEY_PRELOAD"
_MISSING = re.compile(r"^([^/:\s]+\.so[^/:\s]*): cannot open shared object file")

LibraryFile = tuple[str, bytes]
"""The file that a path leads to, and its first BEGIN_BYTES."""


def read_library_file(path: str) -> LibraryFile | None:
    """Return the file at a path; None without one, and no bytes for a broken link."""
    file_path, real_path = Path(path), os.path.realpath(path)  # Path.resolve raises where links go round
    try:
        with file_path.open("rb") as file:
            return real_path, file.read(BEGIN_BYTES)
    except OSError:
        return (real_path, b"") if file_path.is_symlink() else None


def find_objection(name: str, seen: LibraryFile, machine: str) -> str | None:
    """Return why a file is not the driver's library of this name; None if it is."""
    real, begin = seen
    *folders, last = real.split("/")
    if last.partition(".so")[0] != name.partition(".so")[0]:
        return f"it leads to {real}"
    if _TOOLKIT_FOLDERS.intersection(folders):
        return f"it leads to a CUDA toolkit's own, {real}"
    if not begin:
        return f"{real} is empty, or not there"
    of_machine = int.from_bytes(begin[18:20], "little") == _MACHINES.get(machine)
    if not begin.startswith(_ELF_64_LITTLE_ENDIAN) or not of_machine:
        return f"{real} is not a library for {machine}"
    return None


class DriverLibraries:
    """The folders with the driver's libraries: its own, and those that it shares with the system."""

    def __init__(
        self,
        directories: tuple[str, ...],
        shared_directories: tuple[str, ...],
        machine: str = os.uname().machine,
        read_file: Callable[[str], LibraryFile | None] = read_library_file,
    ) -> None:
        self.directories, self.shared_directories = directories, shared_directories
        self.machine, self._read_file = machine, read_file
        # Libraries of two drivers crash: WSL's libcuda, and Ubuntu's ptxjitcompiler that a package brought.
        if self.find(DRIVER_LIBRARIES[0], directories):
            self.shared_directories = ()

    def find(self, name: str, folders: tuple[str, ...] | None = None) -> str | None:
        """Return the path of a library; None if no folder has it."""
        for path, seen in self.list_library_files(name, folders):
            if find_objection(name, seen, self.machine) is None:
                return path
        return None

    def list_library_files(
        self, name: str, folders: tuple[str, ...] | None = None
    ) -> Iterator[tuple[str, LibraryFile]]:
        """Yield the path and file of this name in each folder from which it may be loaded."""
        if folders is None:
            own = self.directories if name.startswith(_OWN_FOLDER_PREFIXES) else ()
            folders = (*own, *(self.shared_directories if name.startswith(_SHARED_FOLDER_PREFIXES) else ()))
        for folder in folders:
            for file_name in filter(None, (name, _OTHER_NAMES.get(name))):
                seen = self._read_file(f"{folder}/{file_name}")
                if seen:
                    yield f"{folder}/{file_name}", seen


def load_libraries(
    libraries: tuple[str, ...],
    drivers: DriverLibraries,
    open_library: Callable[[str], object] = lambda path: ctypes.CDLL(path, ctypes.RTLD_GLOBAL),
) -> list[str]:
    """Load the libraries, then the driver's; return the paths that were loaded, in order."""
    loaded: list[str] = []

    def load_one(path: str, waiting: frozenset[str]) -> bool:
        """Load a library after those that the loader misses, and return whether it worked.

        `waiting`: the libraries that need this one.
        """
        missed: set[str] = set()
        while path not in loaded:
            try:
                open_library(path)
            except OSError as error:
                missing = _MISSING.match(str(error))
                needed = drivers.find(missing[1]) if missing and missing[1] not in missed else None
                if needed is None or needed in waiting or not load_one(needed, waiting | {needed}):
                    return False
                missed.add(missing[1] if missing else "")
            else:
                loaded.append(path)
        return True

    for path in (*libraries, *filter(None, map(drivers.find, (*DRIVER_LIBRARIES, *OPTIONAL_LIBRARIES)))):
        load_one(path, frozenset({path}))
    return loaded


def list_extra_libraries() -> tuple[str, ...]:
    """Return the paths in the variable that names further libraries."""
    return tuple(filter(None, os.environ.get(EXTRA_LIBRARIES_VARIABLE, "").split(":")))
