"""Loads libraries by full path when a Python starts. Copied into an engine environment, which calls `load`.

Whatever fails here, Python starts: what is missing shows itself where it is needed.
"""

import ctypes
import os
import re

# The driver's libraries that CUDA programs open by name; the rest they need themselves.
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")
# All that is ever taken from a system's own folder: its libc must not meet another one's.
SHARED = ("libcuda", "libnvidia-")
_MISSING = re.compile(r"^([^/:\s]+\.so[^/:\s]*): cannot open shared object file")


def load(libraries, directories, shared_directories, open_library=None):
    """Returns the paths that were loaded, in order."""
    opened = open_library or (lambda path: ctypes.CDLL(path, ctypes.RTLD_GLOBAL))
    loaded = []
    for path in libraries:
        _load(path, directories, shared_directories, opened, loaded, frozenset())
    for name in DRIVER:
        path = find(name, directories, shared_directories)
        if path is not None:
            _load(path, directories, shared_directories, opened, loaded, frozenset())
    return loaded


def find(name, directories, shared_directories):
    """Where the driver keeps a library, or None."""
    shared = shared_directories if name.startswith(SHARED) else ()
    paths = (os.path.join(folder, name) for folder in (*directories, *shared))
    return next((path for path in paths if os.path.exists(path)), None)


def _load(path, directories, shared_directories, opened, loaded, waiting):
    """Loads one, after those that the loader says it misses; `waiting` for it are those that need it."""
    if path in loaded:
        return True
    missed = set()
    while True:
        try:
            opened(path)
        except OSError as error:
            missing = _MISSING.match(str(error))
            if missing is None or missing[1] in missed:
                return False
            missed.add(missing[1])
            needed = find(missing[1], directories, shared_directories)
            if needed is None or needed == path or needed in waiting:
                return False
            if not _load(needed, directories, shared_directories, opened, loaded, waiting | {path}):
                return False
        else:
            loaded.append(path)
            return True
