"""Find a Python interpreter of a version, and the loader that a program asks for."""

import functools
import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from medley import process, user
from medley.command import Command
from medley.environment.uv import choose_configuration
from medley.errors import Problem
from medley.values import Value

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQ")
LOADERS = ("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1")
"""The loaders' paths below the root, as the psABIs of the two processors fix them."""
_64_BIT, _LITTLE_ENDIAN, _PT_INTERP = 2, 1, 3
_PROBE_LIMIT_S = 20
# The base interpreter: a virtualenv's Python may vanish with it, and pyenv's shims choose at each start.
_PROBE = """\
import json, os, platform, sys
print(json.dumps({"path": os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
"version": platform.python_version(), "implementation": sys.implementation.name, "prefix": sys.base_prefix,
"machine": platform.machine(), "libc": os.confstr("CS_GNU_LIBC_VERSION")}))"""


class Interpreter(Value):
    path: Path
    version: str
    """The exact version, such as 3.11.7: Ray refuses another one within a cluster."""
    implementation: str
    machine: str
    libc: str
    prefix: Path
    loader: str | None

    def __str__(self) -> str:
        return f"{self.implementation} {self.version} ({self.path})"


class PythonCandidate(Value):
    path: str
    origin: str
    is_required: bool = False
    """Whether the user or the toolkit names it, so that no other one may replace it."""


def find_interpreter(version: str, *, pythons: Mapping[str, str], uv: str) -> Interpreter:
    """Return the first Python of a version (`3.11`) that runs; else uv's, which uv may download.

    Raise a Problem if there is none, or if the one that the user or the toolkit names does not run.
    """
    failures: dict[str, str] = {}
    for candidate in list_candidates(version, pythons=pythons, environ=os.environ, home=user.find_home()):
        if candidate.path not in failures:
            result = _probe(candidate, version)
            if isinstance(result, Interpreter):
                return result
            if candidate.is_required:
                raise _build_unfit_problem(candidate, version, result.why)
            failures[candidate.path] = result.why
    return _find_with_uv(version, uv, [*failures.values()])


def probe_interpreter(path: Path) -> Interpreter:
    """Return the Python at `path`, of any version; raise a Problem if it does not run."""
    candidate = PythonCandidate(str(path), "its virtualenv", is_required=True)
    result = _probe(candidate, "3")
    if isinstance(result, _Unfit):
        raise _build_unfit_problem(candidate, "3", result.why)
    return result


def list_candidates(
    version: str, *, pythons: Mapping[str, str], environ: Mapping[str, str], home: Path
) -> Iterator[PythonCandidate]:
    """Yield the paths where a Python may be, the first choice first."""
    user_pythons = dict(
        pair.partition("=")[::2] for pair in environ.get("MEDLEY_PYTHONS", "").split(":") if pair
    )
    if version in user_pythons:
        yield PythonCandidate(user_pythons[version], "MEDLEY_PYTHONS", is_required=True)
    if version in pythons:
        yield PythonCandidate(pythons[version], "the toolkit", is_required=True)
    folders = [Path(folder) for folder in environ.get("PATH", "").split(":") if folder]
    for name in (f"python{version}", "python3"):
        for folder in folders:
            if os.access(folder / name, os.X_OK):
                yield PythonCandidate(str(folder / name), "PATH")
    pyenv = Path(environ.get("PYENV_ROOT") or home / ".pyenv")
    for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True):
        yield PythonCandidate(str(path), "pyenv")


class _Unfit(Value):
    """A Python that cannot be used."""

    why: str


@functools.cache
def _probe(candidate: PythonCandidate, version: str) -> Interpreter | _Unfit:
    name = f"{candidate.path} ({candidate.origin})"
    try:
        finished = process.run(Command((candidate.path, "-I", "-c", _PROBE)), limit_s=_PROBE_LIMIT_S)
        answer = json.loads(finished.lines[-1]) if finished.status == 0 and finished.lines else None
    except (Problem, json.JSONDecodeError) as error:
        why = error.what if isinstance(error, Problem) else "it does not answer as a Python does"
        return _Unfit(f"{name}: {why}")
    if answer is None:
        # 127: a shim of pyenv for one that is not active.
        return _Unfit(f"{name}: it exits with {finished.status}")
    if not answer["version"].startswith(f"{version}.") or answer["implementation"] != "cpython":
        return _Unfit(f"{name}: it is {answer['implementation']} {answer['version']}")
    if answer["libc"] is None:
        return _Unfit(f"{name}: its libc is not glibc, and the wheels need that")
    path = Path(answer.pop("path"))
    return Interpreter(path=path, prefix=Path(answer.pop("prefix")), loader=read_elf_loader(path), **answer)


def _find_with_uv(version: str, uv: str, failures: list[str]) -> Interpreter:
    """Return a Python that uv manages, downloaded if need be; raise a Problem if uv has none."""
    settings = choose_configuration(os.environ, user.find_home())
    find_command = Command((uv, "python", "find", "--no-project", "--managed-python", version), settings)
    is_offline = os.environ.get("UV_OFFLINE") or os.environ.get("UV_PYTHON_DOWNLOADS") in {"never", "manual"}
    install_command = Command((uv, "python", "install", "--no-bin", version), settings)
    for command in (find_command,) if is_offline else (find_command, install_command, find_command):
        finished = process.run(command)
        if finished.status == 0 and command is find_command and finished.lines:
            result = _probe(PythonCandidate(finished.lines[-1], "uv"), version)
            if isinstance(result, Interpreter):
                return result
            failures.append(result.why)
        elif finished.status and command is install_command:
            failures.append(f"uv could not fetch one: {' '.join(finished.lines)[-200:]}")
    failures += ["uv may fetch none: UV_PYTHON_DOWNLOADS or UV_OFFLINE says so"] if is_offline else []
    raise Problem(
        f"there is no Python {version} here",
        cause="searched:\n" + "\n".join(failures or ["PATH, pyenv and uv: none"]),
        fix=f"install it (uv python install {version}), or name one: export MEDLEY_PYTHONS={version}=/PATH",
    )


def _build_unfit_problem(candidate: PythonCandidate, version: str, why: str) -> Problem:
    return Problem(
        f"the Python {version} that {candidate.origin} names will not do",
        cause=why,
        fix="name another one, or: unset MEDLEY_PYTHONS MEDLEY_TOOLKIT",
    )


def read_elf_loader(path: Path) -> str | None:
    """Return the loader that a program asks for; None for a script, a library, or a static program."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return None
        magic, bits, order, *_ = header_fields = _HEADER.unpack(header)
        if magic != b"\x7fELF" or bits != _64_BIT or order != _LITTLE_ENDIAN:
            return None
        offset, size, count = header_fields[7], header_fields[11], header_fields[12]
        if size < _SEGMENT.size:  # an object file, which has no segments
            return None
        file.seek(offset)
        table = file.read(size * count)
        for position in range(0, len(table) - _SEGMENT.size + 1, size):
            kind, _, start, _, _, length = _SEGMENT.unpack_from(table, position)
            if kind == _PT_INTERP:
                file.seek(start)
                return file.read(length).rstrip(b"\0").decode()
    return None


def is_host_loader(loader: str | None) -> bool:
    """Return whether it is the loader of every system but Nix's: /lib/ld-linux-… or /lib64/ld-linux-…"""
    return loader is not None and loader.startswith(("/lib/", "/lib64/"))
