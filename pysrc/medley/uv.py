"""uv makes engine environments: where it is, and what its errors mean."""

import os
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from medley import machine
from medley.problem import Problem

NO_SPACE = "No space left on device"
MAKE_ROOM = (
    "make room (medley env clean --all; uv cache prune), or use another disk: export MEDLEY_CACHE=/path"
)
_HASH = re.compile(r"Hash mismatch for `([^`]+)`")
_UNREACHED = (
    "error sending request",
    "dns error",
    "Failed to fetch",
    "Could not connect",
    "operation timed out",
    "client error",
    "network connectivity is disabled",
)


def binary(given: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The uv to run: MEDLEY_UV, else the toolkit's (`given`), else the Python package uv, else PATH's."""
    if environ.get("MEDLEY_UV"):
        return environ["MEDLEY_UV"]
    found = given or _installed() or machine.program("uv")
    if found is None:
        raise Problem(
            "there is no uv here",
            cause="neither MEDLEY_UV, nor the Python package uv, nor PATH has one",
            fix="python3 -m pip install uv",
        )
    return found


def _installed() -> str | None:
    if find_spec("uv") is None:
        return None
    from uv import find_uv_bin  # noqa: PLC0415 - not there where Nix packages medley

    try:
        return find_uv_bin()
    except FileNotFoundError:
        return None


def lacks(lines: Sequence[str]) -> bool:
    """Whether uv failed because no index has a package in that version or build."""
    return any("there is no version of" in line or "was not found in the" in line for line in lines)


def failure(name: str, status: int, lines: Sequence[str], *, verb: str = "build") -> Problem:
    """What uv's last lines mean, where `medley env VERB` was to make or to lock `name`."""
    what = f"{name} cannot be {'built' if verb == 'build' else 'locked'}"
    said = "\n".join(line for line in lines if line.strip())
    cause = _tail(lines) or f"uv exited with {status} and said nothing"
    if match := _HASH.search(said):
        return Problem(
            f"{match[1]} is not the file that the lock names",
            cause=_after(lines, "Hash mismatch"),
            fix="do not install it: ask where the file comes from (pip config list), or restore the lock",
        )
    if NO_SPACE in said:
        return full(what, cause)
    if any(sign in said for sign in _UNREACHED):
        return Problem(
            f"{what}: the package index cannot be reached",
            cause=cause,
            fix="check the network (HTTPS_PROXY), or name a mirror: pip config set global.index-url ADDRESS",
        )
    if lacks(lines):
        return Problem(
            f"{what}: a build in the lock is offered nowhere",
            cause=cause,
            fix="name a folder that has its wheel: export PIP_FIND_LINKS=/path/to/wheels",
        )
    return Problem(
        what, cause=cause, fix=f"mend that, or go step by step: medley env {verb} {name} --dry-run"
    )


def full(what: str, cause: str) -> Problem:
    return Problem(
        f"{what}: the disk is full",
        cause=cause,
        fix=MAKE_ROOM,
    )


def _tail(lines: Sequence[str], limit: int = 8) -> str:
    """The error and its causes, or else the last lines."""
    said = [line.strip() for line in lines if line.strip()]
    error = (at for at, line in enumerate(said) if line.startswith("error:"))
    start = next(error, max(0, len(said) - limit))
    return "\n".join(said[start : start + limit])


def _after(lines: Sequence[str], sign: str) -> str:
    """The lines from `sign` on: what was expected, and what came."""
    start = next(at for at, line in enumerate(lines) if sign in line)
    return "\n".join(line.strip() for line in lines[start : start + 8] if line.strip())
