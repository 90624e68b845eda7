"""A libcuda by itself: a folder with the driver's libcuda and nothing else, for what compiles against it.

Triton asks /sbin/ldconfig for the folder, which NixOS has not, and which says /usr/lib/<triple> on Ubuntu:
Nix's compiler would link against the host's libc there (TRITON_LIBCUDA_PATH in Triton's nvidia/driver.py).
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from medley import driver, store
from medley.tables import Host
from medley.toolkit import Toolkit
from medley.variables import LIBCUDA

# Triton 3.7 asks for the first, older ones and torch's inductor for the second.
_NAMES = (driver.CUDA, "libcuda.so")


def given(
    chain: Toolkit | None, host: Host, *, make: bool = True, environ: Mapping[str, str] = os.environ
) -> Toolkit | None:
    """The toolchain of this host with the folder among its variables; as it is where there is no driver.

    What the user has set is left: it reaches the engine by itself. Without `make` the folder is only named.
    """
    if chain is None or host.device == "cpu" or environ.get(LIBCUDA):
        return chain
    path = driver.libraries(host.driver).paths.get(driver.CUDA)
    if path is None:
        return chain
    where = folder(path)
    if make:
        for name in _NAMES:
            store.link(where / name, path)
    return chain.model_copy(update={"variables": {**chain.variables, LIBCUDA: str(where)}})


def folder(path: str) -> Path:
    """Where it is of the libcuda at `path`: hosts that share a home may have theirs in different places.

    Its links lead to that path and not to the file behind it, so that they outlast an upgrade of the driver.
    """
    return store.cache() / "drivers" / hashlib.sha256(path.encode()).hexdigest()[:12]
