"""Run by an engine environment's Python: starts Ray, and says as JSON which libraries run where.

Beside Ray (here) and inside it (in a task) it also starts programs of the host.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import ray

PROGRAMS = (("ssh", "-V"), ("ip", "-V"), ("curl", "--version"))


def libraries(pid: str, name: str) -> list[str]:
    """The files called `name*` that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    paths = {line.split()[-1] for line in lines if "/" in line}
    return sorted(path for path in paths if path.rsplit("/", 1)[-1].startswith(name))


def here() -> dict[str, Any]:
    import ctypes
    import os

    import torch

    libc = ctypes.CDLL(None)
    libc.gnu_get_libc_version.restype = ctypes.c_char_p
    return {
        "libc": libc.gnu_get_libc_version().decode(),
        "libstdc++": libraries("self", "libstdc++"),
        "libgcc_s": libraries("self", "libgcc_s"),
        "libz": libraries("self", "libz.so"),
        "torch": torch.ones(2, 2).matmul(torch.ones(2, 2)).sum().item(),
        "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH"),
        "programs": {
            words[0]: subprocess.run(words, capture_output=True, check=False).returncode for words in PROGRAMS
        },
    }


def binaries() -> dict[str, list[str]]:
    """The libc of Ray's own programs that are children of this process."""
    import os

    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in children}
    return {
        name: libraries(pid, "libc.so") for pid, name in names.items() if name in {"raylet", "gcs_server"}
    }


ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80_000_000, logging_level="ERROR")
try:
    said = {
        "beside": here(),
        "inside": ray.get(ray.remote(here).remote(), timeout=120),
        "binaries": binaries(),
    }
finally:
    ray.shutdown()
print(json.dumps(said))
