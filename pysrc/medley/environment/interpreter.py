"""Find a Python interpreter of a version, and the loader that a program asks for."""

import functools
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from medley import process, user
from medley.command import Command
from medley.environment.uv import own_configuration
from medley.errors import Problem

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQ")
LOADERS = ("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1")
"""Where the psABIs have them, from the root on."""
_64_BIT, _LITTLE_ENDIAN, _PT_INTERP = 2, 1, 3
_LIMIT_S = 20
# Its base, because a virtualenv's Python may vanish with it, and pyenv's shims choose anew at each start.
_PROBE = """\
import json, os, platform, sys
print(json.dumps({"path": os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
"version": platform.python_version(), "implementation": sys.implementation.name, "prefix": sys.base_prefix,
"machine": platform.machine(), "libc": os.confstr("CS_GNU_LIBC_VERSION")}))"""


@dataclass(frozen=True)
class Interpreter:
    path: Path
    version: str
    """Exact, such as 3.11.7: Ray refuses another one within a cluster."""
    implementation: str
    machine: str
    libc: str
    prefix: Path
    loader: str | None

    def __str__(self) -> str:
        return f"{self.implementation} {self.version} ({self.path})"


@dataclass(frozen=True)
class Candidate:
    path: str
    origin: str
    given: bool = False
    """A user or the toolkit names it, so that it must do; others are merely found."""


def find(wanted: str, *, pythons: Mapping[str, str], uv: str) -> Interpreter:
    """Find the first Python of version `wanted` (3.11) that runs; else ask uv, which may fetch one."""
    failed: dict[str, str] = {}
    for candidate in candidates(wanted, pythons=pythons, environ=os.environ, home=user.home()):
        if candidate.path not in failed:
            found = _probe(candidate, wanted)
            if isinstance(found, Interpreter):
                return found
            if candidate.given:
                raise _unfit(candidate, wanted, found)
            failed[candidate.path] = found
    return _of_uv(wanted, uv, [*failed.values()])


def of(path: Path) -> Interpreter:
    """The Python at `path`, whatever its version; a Problem where it does not run."""
    candidate = Candidate(str(path), "its virtualenv", given=True)
    found = _probe(candidate, "3")
    if isinstance(found, str):
        raise _unfit(candidate, "3", found)
    return found


def candidates(
    wanted: str, *, pythons: Mapping[str, str], environ: Mapping[str, str], home: Path
) -> Iterator[Candidate]:
    """Where a Python may be, the first choice first."""
    named = dict(pair.partition("=")[::2] for pair in environ.get("MEDLEY_PYTHONS", "").split(":") if pair)
    if wanted in named:
        yield Candidate(named[wanted], "MEDLEY_PYTHONS", given=True)
    if wanted in pythons:
        yield Candidate(pythons[wanted], "the toolkit", given=True)
    folders = [Path(folder) for folder in environ.get("PATH", "").split(":") if folder]
    for name in (f"python{wanted}", "python3"):
        for folder in folders:
            if os.access(folder / name, os.X_OK):
                yield Candidate(str(folder / name), "PATH")
    pyenv = Path(environ.get("PYENV_ROOT") or home / ".pyenv")
    for path in sorted(pyenv.glob(f"versions/{wanted}.*/bin/python{wanted}"), reverse=True):
        yield Candidate(str(path), "pyenv")


@functools.cache
def _probe(candidate: Candidate, wanted: str) -> Interpreter | str:
    """Return the interpreter, or why it is unfit."""
    name = f"{candidate.path} ({candidate.origin})"
    try:
        finished = process.run(Command((candidate.path, "-I", "-c", _PROBE)), limit_s=_LIMIT_S)
        answer = json.loads(finished.lines[-1]) if finished.status == 0 and finished.lines else None
    except (Problem, json.JSONDecodeError) as error:
        why = error.what if isinstance(error, Problem) else "it does not answer as a Python does"
        return f"{name}: {why}"
    if answer is None:
        return f"{name}: it exits with {finished.status}"  # 127: a shim of pyenv for one that is not active
    if not answer["version"].startswith(f"{wanted}.") or answer["implementation"] != "cpython":
        return f"{name}: it is {answer['implementation']} {answer['version']}"
    if answer["libc"] is None:
        return f"{name}: its libc is not glibc, and the wheels need that"
    path = Path(answer.pop("path"))
    return Interpreter(path=path, prefix=Path(answer.pop("prefix")), loader=elf_loader(path), **answer)


def _of_uv(wanted: str, uv: str, looked: list[str]) -> Interpreter:
    """Find a Python that uv keeps, or fetch one."""
    settings = own_configuration(os.environ, user.home())
    find = Command((uv, "python", "find", "--no-project", "--managed-python", wanted), settings)
    offline = os.environ.get("UV_OFFLINE") or os.environ.get("UV_PYTHON_DOWNLOADS") in {"never", "manual"}
    install = Command((uv, "python", "install", "--no-bin", wanted), settings)
    for command in (find,) if offline else (find, install, find):
        finished = process.run(command)
        if finished.status == 0 and command is find and finished.lines:
            found = _probe(Candidate(finished.lines[-1], "uv"), wanted)
            if isinstance(found, Interpreter):
                return found
            looked.append(found)
        elif finished.status and command is install:
            looked.append(f"uv could not fetch one: {' '.join(finished.lines)[-200:]}")
    looked += ["uv may fetch none: UV_PYTHON_DOWNLOADS or UV_OFFLINE says so"] if offline else []
    raise Problem(
        f"there is no Python {wanted} here",
        cause="searched:\n" + "\n".join(looked or ["PATH, pyenv and uv: none"]),
        fix=f"install it (uv python install {wanted}), or name one: export MEDLEY_PYTHONS={wanted}=/PATH",
    )


def _unfit(candidate: Candidate, wanted: str, why: str) -> Problem:
    return Problem(
        f"the Python {wanted} that {candidate.origin} names will not do",
        cause=why,
        fix="name another one, or: unset MEDLEY_PYTHONS MEDLEY_TOOLKIT",
    )


def elf_loader(path: Path) -> str | None:
    """The loader that a program asks for; None for a script, a library, or a static program."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return None
        magic, bits, order, *_ = fields = _HEADER.unpack(header)
        if magic != b"\x7fELF" or bits != _64_BIT or order != _LITTLE_ENDIAN:
            return None
        offset, size, count = fields[7], fields[11], fields[12]
        if size < _SEGMENT.size:  # an object file, which has no segments
            return None
        file.seek(offset)
        table = file.read(size * count)
        for at in range(0, len(table) - _SEGMENT.size + 1, size):
            kind, _, start, _, _, length = _SEGMENT.unpack_from(table, at)
            if kind == _PT_INTERP:
                file.seek(start)
                return file.read(length).rstrip(b"\0").decode()
    return None


def is_hosts(loader: str | None) -> bool:
    """Whether a loader lies where every system but Nix's keeps it: /lib/ld-linux-… or /lib64/ld-linux-…"""
    return loader is not None and loader.startswith(("/lib/", "/lib64/"))
