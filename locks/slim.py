"""A slim lock keeps, of all that uv writes, the pins, and the hashes of what the lock's hosts can install."""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

BOTH = ("x86_64", "aarch64")
# What every host of every lock is, so that it need not stand behind each pin.
GIVEN = (
    "implementation_name == 'cpython'",
    "platform_python_implementation == 'CPython'",
    "sys_platform == 'linux'",
)


@dataclass(frozen=True)
class Lock:
    pythons: tuple[str, ...]
    machines: tuple[str, ...] = BOTH
    groups: tuple[str, ...] = ()
    project: bool = False
    """What it asks for stands in pyproject.toml."""
    elsewhere: tuple["Elsewhere", ...] = ()
    """Builds that it takes from another index than PyPI."""


@dataclass(frozen=True)
class Elsewhere:
    """A build that PyPI does not have: resolved from what stands here, fetched when it is installed."""

    name: str
    version: str
    requires: tuple[str, ...]
    sha256: tuple[str, ...]


def slim(exported: str, hashes: Mapping[tuple[str, str], list[str]]) -> Iterator[str]:
    """A requirements file's pins, each with the hashes that this lock's hosts can use."""
    for line in exported.splitlines():
        if match := re.match(r"([\w.-]+)==([^ ;\\]+)\s*(?:;([^\\]*))?", line):
            name, version, marker = match[1], match[2], condition(match[3] or "")
            files = "".join(f" \\\n    --hash=sha256:{sha256}" for sha256 in hashes[name, version])
            yield f"{name}=={version}{marker and f' ; {marker}'}{files}\n"
        elif line.strip() and not line.lstrip().startswith("--hash="):
            sys.exit(f"uv wrote a line that is no pin: {line}")


def condition(marker: str) -> str:
    """What is left of a marker of uv's, which is an `or` of `and`s, on the hosts that locks are for."""
    clauses = [clause.strip("() ").split(" and ") for clause in marker.split(" or ") if clause.strip()]
    left = sorted([term for term in clause if not _given(term)] for clause in clauses)
    machines = [[f"platform_machine == '{machine}'"] for machine in sorted(BOTH)]
    return "" if left == machines else " or ".join(" and ".join(clause) for clause in left)


def _given(term: str) -> bool:
    """The Python is given too: a lock for several names none, and uv names it in every pin of the others."""
    return term in GIVEN or term.startswith("python_full_version ")


def hashes(resolved: Mapping[str, Any], lock: Lock) -> dict[tuple[str, str], list[str]]:
    """The sha256 of each file to install, by name and version; a source archive where a wheel lacks."""
    found = {(build.name, build.version): list(build.sha256) for build in lock.elsewhere}
    for package in resolved["package"]:
        key = package["name"], package.get("version", "")
        if key in found or "version" not in package:
            continue
        files = [wheel for wheel in package.get("wheels", ()) if fits(file_name(wheel), lock)]
        alone = (replace(lock, machines=(machine,)) for machine in lock.machines)
        if not all(any(fits(file_name(wheel), host) for wheel in files) for host in alone):
            files += [package["sdist"]] if "sdist" in package else []
        found[key] = sorted(file["hash"].removeprefix("sha256:") for file in files)
    return found


def fits(wheel: str, lock: Lock) -> bool:
    """Whether one of the lock's hosts can install a wheel of this file name."""
    *_, pythons, abi, platform = wheel.removesuffix(".whl").split("-")
    linux = rf"(many)?linux\w*_({'|'.join(lock.machines)})"
    if not (platform == "any" or any(re.fullmatch(linux, tag) for tag in platform.split("."))):
        return False
    return any(_runs(tag, abi, python) for tag in pythons.split(".") for python in lock.pythons)


def _runs(tag: str, abi: str, python: str) -> bool:
    if tag.startswith("py3"):
        return True
    match = re.fullmatch(r"cp3(\d+)", tag)
    minor = int(python.removeprefix("3."))
    if match is None or abi.endswith("t"):
        return False
    return int(match[1]) == minor or (abi == "abi3" and int(match[1]) <= minor)


def pins(path: Path) -> list[str]:
    """`name==version ; marker` of a lock as it is, or nothing where there is none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line.removesuffix("\\").strip() for line in lines if "==" in line and line[0].isalnum()]


def file_name(wheel: Mapping[str, str]) -> str:
    return (wheel.get("url") or wheel.get("path") or wheel["filename"]).rsplit("/", 1)[-1]
