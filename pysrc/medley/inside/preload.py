"""Loads libraries by full path when a Python starts. Copied into an engine environment, which calls `load`.

Whatever fails here, Python starts: what is missing shows itself where it is needed.
"""

import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path

# The driver's libraries that CUDA programs open by name; the rest they need themselves.
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")
# All that is ever taken from a system's own folder: its libc must not meet another one's.
SHARED = ("libcuda.so", "libnvidia-")
# Further libraries, as PATH is written: an engine's process names what it alone needs.
MORE = "MEDLEY_PRELOAD"
_MISSING = re.compile(r"^([^/:\s]+\.so[^/:\s]*): cannot open shared object file")


class Drivers:
    """Where the driver's libraries are: folders of its own, and folders it shares with the system."""

    def __init__(self, directories: tuple[str, ...], shared_directories: tuple[str, ...]) -> None:
        self.directories, self.shared_directories = directories, shared_directories

    def find(self, name: str) -> str | None:
        """Where a library is, or None."""
        shared = self.shared_directories if name.startswith(SHARED) else ()
        paths = (Path(folder) / name for folder in (*self.directories, *shared))
        return next((str(path) for path in paths if path.exists()), None)


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

    for path in (*libraries, *filter(None, map(drivers.find, DRIVER))):
        opened(path, frozenset({path}))
    return loaded


def more() -> tuple[str, ...]:
    """What the process was told to load besides."""
    return tuple(filter(None, os.environ.get(MORE, "").split(":")))
