"""Find the command and the variables that start this medley elsewhere, and the digest of its source.

It imports little, because every agent sends the digest before anything else.
"""

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

DISTRIBUTION = "medley-llm"
"""The name on PyPI, where `medley` is another project."""
TYPED_HERE_VARIABLE = "MEDLEY_TYPED_HERE"
"""The variable of a verb that another host passed on: this host does not pass it on again."""
# The variables that another medley needs from this one.
_CARRIED_PREFIXES = (
    *("MEDLEY_", "HF_", "XDG_", "LANG", "LC_", "HOME", "PATH", "NIX_SSL_CERT_FILE", "SSL_CERT_FILE"),
    *("DOCKER_", "CONTAINER_", "CONTAINERS_", "HUGGINGFACE_HUB_", "TRANSFORMERS_OFFLINE"),
)
# A unit's file stays on disk; the hub's token has its own file (hf auth login).
_SECRET_SUFFIXES = ("TOKEN", "KEY", "SECRET", "PASSWORD")
# Programs that medley, its engines and their compilers look for on PATH, often outside the system's folders.
_PROGRAM_NAMES = (
    *("medley", "nix", "uv", "ssh", "ip", "ping", "iperf3", "systemctl", "loginctl", "docker", "podman"),
    *("hf", "nvidia-smi", "nvcc", "ptxas", "gcc", "g++", "cc", "c++", "clang", "ld", "ninja", "cmake"),
    *("make", "git"),
)
_SYSTEM_FOLDER_PATTERN = re.compile(
    r"/(?:usr/(?:local/)?)?s?bin|/nix/.*|/run/current-system/.*|/etc/profiles/.*"
)
_PYTHON_NAME_PATTERN = re.compile(r"python3(?:\.\d+)?")


def get_own_command() -> tuple[str, ...]:
    """Return the words that start this same medley from anywhere."""
    program = Path(sys.argv[0])
    if program.name == "medley" and os.access(program, os.X_OK):
        return (str(program.absolute()),)
    return (sys.executable, "-m", "medley")


def list_own_variables() -> dict[str, str]:
    """Return the variables for a medley that inherits no environment, such as a unit."""
    variables = select_variables(os.environ, _CARRIED_PREFIXES)
    return {name: value for name, value in variables.items() if not name.endswith(_SECRET_SUFFIXES)}


def select_variables(environ: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    """Return the variables whose names begin so, with PATH reduced by `reduce_path`."""
    selected = {name: value for name, value in environ.items() if name.startswith(prefixes)}
    return {name: reduce_path(value) if name == "PATH" else value for name, value in selected.items()}


def reduce_path(text: str) -> str:
    """Return the folders of PATH with medley's programs or a Python; others may vanish with a shell."""
    folders = [folder for folder in dict.fromkeys(text.split(":")) if folder.startswith("/")]
    programs_by_folder = {folder: _list_programs(folder) for folder in folders}
    first_folders = {
        next((folder for folder in folders if name in programs_by_folder[folder]), None)
        for name in _PROGRAM_NAMES
    }
    return ":".join(
        folder
        for folder in folders
        if _SYSTEM_FOLDER_PATTERN.fullmatch(folder)
        or folder in first_folders
        or any(map(_PYTHON_NAME_PATTERN.fullmatch, programs_by_folder[folder]))
    )


def _list_programs(folder: str) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder) if os.access(entry.path, os.X_OK)}
    except OSError:  # it is not there, or another user's
        return set()


def compute_source_digest() -> str:
    """Return a hash of medley's own modules and locks; what a user adds elsewhere does not count."""
    package = Path(__file__).parents[1]
    locks = next(
        folder for folder in (package.parents[1] / "locks", package / "data" / "locks") if folder.is_dir()
    )
    digest = hashlib.sha256()
    tables = (table for table in package.rglob("*.toml") if package / "data" not in table.parents)
    files = (*package.rglob("*.py"), *tables, *locks.glob("*-*.txt"))
    for path in sorted(files, key=lambda file: (file.name, str(file))):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
