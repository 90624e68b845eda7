"""The software a host has already: its system, kernel, libc and the programs on PATH."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from medley.facts.answers import first, lines
from medley.transcript import Transcript

OS_RELEASE = "grep -E '^(ID|VERSION_ID|PRETTY_NAME)=' /etc/os-release"
KERNEL = "uname -r"
LIBC = "getconf GNU_LIBC_VERSION"
MARKS = "ls -d /.dockerenv /run/.containerenv /etc/NIXOS"
PROGRAMS = "for p in nix uv python3.11 python3.12 nvcc gcc g++; do command -v $p; done"

QUESTIONS = (OS_RELEASE, KERNEL, LIBC, MARKS, PROGRAMS)

_CONTAINERS = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}


@dataclass(frozen=True)
class Software:
    os_id: str | None = None
    os_version: str | None = None
    os_name: str | None = None
    kernel: str | None = None
    libc: str | None = None
    """`glibc 2.36`; None with another libc, which no engine's wheels run on."""
    container: str | None = None
    """What contains us: docker or podman."""
    nixos: bool = False
    programs: Mapping[str, str] = field(default_factory=dict)
    """Where PATH has those we may use, by name."""


def software(answers: Transcript) -> Software:
    release = dict(
        re.findall(r'^(\w+)=["\']?(.*?)["\']?$', "\n".join(lines(answers, OS_RELEASE)), re.MULTILINE)
    )
    marks = lines(answers, MARKS)
    return Software(
        os_id=release.get("ID"),
        os_version=release.get("VERSION_ID"),
        os_name=release.get("PRETTY_NAME"),
        kernel=first(answers, KERNEL),
        libc=first(answers, LIBC),
        container=next((_CONTAINERS[mark] for mark in marks if mark in _CONTAINERS), None),
        nixos="/etc/NIXOS" in marks,
        programs={PurePosixPath(path).name: path for path in lines(answers, PROGRAMS)},
    )
