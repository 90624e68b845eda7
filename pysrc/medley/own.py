"""Medley's own command: how a process of medley's starts another."""

import os
import re
import sys
from pathlib import Path

# What a medley that is started for another needs to know of the place it runs in; the rest its host knows.
_CARRIED = (
    *("MEDLEY_", "HF_", "XDG_", "LANG", "LC_", "HOME", "PATH", "NIX_SSL_CERT_FILE", "SSL_CERT_FILE"),
    *("DOCKER_", "CONTAINER_", "CONTAINERS_"),
)
# What medley, its engines and their compilers find on PATH, and where people keep more than the system does.
_PROGRAMS = (
    *(
        "medley",
        "nix",
        "uv",
        "ssh",
        "ip",
        "ping",
        "iperf3",
        "systemctl",
        "loginctl",
        "docker",
        "podman",
        "hf",
    ),
    *(
        "nvidia-smi",
        "nvcc",
        "ptxas",
        "gcc",
        "g++",
        "cc",
        "c++",
        "clang",
        "ld",
        "ninja",
        "cmake",
        "make",
        "git",
    ),
)
_OF_THE_SYSTEM = re.compile(r"/(?:usr/(?:local/)?)?s?bin|/nix/.*|/run/current-system/.*|/etc/profiles/.*")
_PYTHON = re.compile(r"python3(?:\.\d+)?")
# A unit is a file that stays; for its token the hub has a file of its own (hf auth login).
_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD")


def command() -> tuple[str, ...]:
    """The words that start this same medley from anywhere."""
    started = Path(sys.argv[0])
    if started.name == "medley" and os.access(started, os.X_OK):
        return (str(started.absolute()),)
    return (sys.executable, "-m", "medley")


def variables() -> dict[str, str]:
    """Of our environment what such a process must have where it inherits none, as a unit does not."""
    return {
        name: path(value) if name == "PATH" else value
        for name, value in os.environ.items()
        if name.startswith(_CARRIED) and not name.endswith(_SECRET)
    }


def path(text: str) -> str:
    """Of PATH the folders that matter to medley, in their order; a unit outlasts the rest of a shell's.

    Each of its programs is found where it was, and every Python: an engine environment is made with them.
    """
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
