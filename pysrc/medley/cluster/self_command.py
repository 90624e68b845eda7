"""The command and the variables that start this same medley elsewhere; its version and digest.

It imports little, because every agent sends the digest before anything else.
"""

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

DISTRIBUTION = "medley-llm"
TYPED_HERE = "MEDLEY_TYPED_HERE"
"""The variable of a verb that another host passed on: this host does not pass it on again."""
"""The name on PyPI, where `medley` is another project."""
# The variables that another medley needs from this one.
_CARRIED = (
    *("MEDLEY_", "HF_", "XDG_", "LANG", "LC_", "HOME", "PATH", "NIX_SSL_CERT_FILE", "SSL_CERT_FILE"),
    *("DOCKER_", "CONTAINER_", "CONTAINERS_", "HUGGINGFACE_HUB_", "TRANSFORMERS_OFFLINE"),
)
# A unit's file stays on disk; the hub's token has its own file (hf auth login).
_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD")
# Programs that medley, its engines and their compilers look for on PATH, often outside the system's folders.
_PROGRAMS = (
    *("medley", "nix", "uv", "ssh", "ip", "ping", "iperf3", "systemctl", "loginctl", "docker", "podman"),
    *("hf", "nvidia-smi", "nvcc", "ptxas", "gcc", "g++", "cc", "c++", "clang", "ld", "ninja", "cmake"),
    *("make", "git"),
)
_OF_THE_SYSTEM = re.compile(r"/(?:usr/(?:local/)?)?s?bin|/nix/.*|/run/current-system/.*|/etc/profiles/.*")
_PYTHON = re.compile(r"python3(?:\.\d+)?")


def own_command() -> tuple[str, ...]:
    """Return the words that start this same medley from anywhere."""
    started = Path(sys.argv[0])
    if started.name == "medley" and os.access(started, os.X_OK):
        return (str(started.absolute()),)
    return (sys.executable, "-m", "medley")


def own_variables() -> dict[str, str]:
    """Return the variables for a medley that inherits no environment, such as a unit."""
    found = carried(os.environ, _CARRIED)
    return {name: value for name, value in found.items() if not name.endswith(_SECRET)}


def carried(environ: Mapping[str, str], begins: tuple[str, ...]) -> dict[str, str]:
    """Return the variables whose names begin so, with PATH reduced by own_path."""
    found = {name: value for name, value in environ.items() if name.startswith(begins)}
    return {name: own_path(value) if name == "PATH" else value for name, value in found.items()}


def own_path(text: str) -> str:
    """Return the folders of PATH with medley's programs or a Python; others may vanish with a shell."""
    folders = [folder for folder in dict.fromkeys(text.split(":")) if folder.startswith("/")]
    held = {folder: _programs(folder) for folder in folders}
    first = {next((folder for folder in folders if name in held[folder]), None) for name in _PROGRAMS}
    return ":".join(
        folder
        for folder in folders
        if _OF_THE_SYSTEM.fullmatch(folder) or folder in first or any(map(_PYTHON.fullmatch, held[folder]))
    )


def _programs(folder: str) -> set[str]:
    try:
        return {each.name for each in os.scandir(folder) if os.access(each.path, os.X_OK)}
    except OSError:  # it is not there, or another user's
        return set()


def source_digest() -> str:
    """Hash medley's own modules and locks; what a user adds elsewhere does not count."""
    package = Path(__file__).parents[1]
    locks = next(each for each in (package.parents[1] / "locks", package / "data" / "locks") if each.is_dir())
    whole = hashlib.sha256()
    tables = (each for each in package.rglob("*.toml") if package / "data" not in each.parents)
    files = (*package.rglob("*.py"), *tables, *locks.glob("*-*.txt"))
    for path in sorted(files, key=lambda each: (each.name, str(each))):
        whole.update(f"{path.name}\0".encode() + path.read_bytes())
    return whole.hexdigest()[:16]
