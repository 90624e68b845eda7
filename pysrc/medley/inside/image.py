"""Says what an image holds; run by the image's own Python, prints one JSON object.

python image.py          its Python, the versions and the programs of the engine and of Ray
python image.py nccl     the NCCL that torch is linked to: each file that is mapped once torch is there
"""

import ctypes
import hashlib
import json
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

NAMES = ("vllm", "ray", "torch", "sglang")


def main(verb: str = "") -> dict[str, Any]:
    return linked() if verb == "nccl" else held()


def held() -> dict[str, Any]:
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": platform.machine(),
        "versions": {name: version(name) for name in NAMES},
        "programs": {name: shutil.which(name) for name in ("vllm", "sglang", "ray")},
    }


def version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def linked() -> dict[str, Any]:
    try:
        import torch  # noqa: F401 - what it maps is asked
    except Exception as error:  # noqa: BLE001 - whatever it is, our side turns it into a Problem
        return {"error": f"{type(error).__name__}: {error}"[:400]}
    return {"nccl": [{"path": path, "sha256": digest(path), "version": number(path)} for path in mapped()]}


def mapped() -> list[str]:
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = ("".join(line.split(maxsplit=5)[5:]) for line in lines)
    return sorted({path for path in paths if "/libnccl.so" in path})


def digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def number(path: str) -> int:
    """As NCCL says it: 22707 is 2.27.7."""
    found = ctypes.c_int()
    try:
        ctypes.CDLL(path).ncclGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return 0
    return found.value


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
