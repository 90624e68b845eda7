"""Find uv, translate pip's configuration for it, explain its errors.

pip reads, each overriding the one before: the system's pip.conf, the user's, the interpreter's own, the file
that PIP_CONFIG_FILE names, PIP_* variables. Within them [install] overrides [global].
https://pip.pypa.io/en/stable/topics/configuration/
"""

import configparser
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from medley import process, storage, user
from medley.errors import Problem
from medley.progress import Progress, share

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


_DOWNLOADING = re.compile(r"Downloading (\S+) \(([\d.]+)([KMG])iB\)")
_SCALE = {"K": 2**10, "M": 2**20, "G": 2**30}

Options = Mapping[str, str]

# uv's variable for each of pip's options, and how uv parts several values.
_VARIABLES = (
    ("index-url", "UV_DEFAULT_INDEX", None),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("cert", "SSL_CERT_FILE", None),
    ("proxy", "ALL_PROXY", None),
)
# What a user has set of these means the same to uv as the first, so it wins too.
_SAME = {
    "UV_DEFAULT_INDEX": ("UV_INDEX_URL",),
    "UV_INDEX": ("UV_EXTRA_INDEX_URL",),
    "ALL_PROXY": ("all_proxy", "HTTPS_PROXY", "https_proxy"),
}


def binary(given: str | None) -> str:
    """The uv to run: MEDLEY_UV, else the toolkit's (`given`), else the Python package uv, else PATH's."""
    found = os.environ.get("MEDLEY_UV") or given or _installed() or process.find_program("uv")
    if found is None:
        raise Problem(
            "there is no uv here",
            cause="neither MEDLEY_UV, nor the Python package uv, nor PATH has one",
            fix="python3 -m pip install uv",
        )
    return found


def _installed() -> str | None:
    try:
        from uv import find_uv_bin  # noqa: PLC0415 - not there where Nix packages medley

        return find_uv_bin()
    except (ModuleNotFoundError, FileNotFoundError):
        return None


@dataclass
class Downloads:
    """How far uv's downloads are, in bytes: of files of less than 1 MiB it says nothing."""

    watch: Progress
    sizes: dict[str, float] = field(default_factory=dict)
    done: float = 0
    began: float = 0

    def line(self, text: str) -> None:
        """Show what one line of uv's output changes, or the line itself."""
        word, _, name = text.strip().partition(" ")
        if found := _DOWNLOADING.match(text.strip()):
            self.began = self.began or time.monotonic()
            self.sizes[found[1]] = float(found[2]) * _SCALE[found[3]]
        elif word == "Downloaded" and name in self.sizes:
            self.done += self.sizes[name]
        else:
            self.watch.line(text)
            return
        self.show(self.done)

    def show(self, done: float) -> None:
        """Show how many bytes are here, once uv has named a file."""
        if self.sizes:
            total = sum(self.sizes.values())
            done = min(done, total)
            rate = done / max(1, time.monotonic() - self.began) / 1e6
            self.watch.moved(f"{share(done, total)}, {rate:.0f} MB/s")


_ADDRESS = re.compile(r"https?://([\w.-]+)")


def lacks(lines: Sequence[str]) -> bool:
    """Whether uv failed because no index has a package in that version or build."""
    return any("there is no version of" in line or "was not found in the" in line for line in lines)


def failure(name: str, status: int, lines: Sequence[str], *, verb: str = "build") -> Problem:
    """What uv's last lines mean, where `medley env VERB` was to make or to lock `name`."""
    what = f"{name} cannot be {'built' if verb == 'build' else 'locked'}"
    text = "\n".join(lines)
    cause = _tail(lines) or f"uv exited with {status} and printed nothing"
    if match := _HASH.search(text):
        start = next(at for at, line in enumerate(lines) if "Hash mismatch" in line)
        return Problem(
            f"{match[1]} is not the file that the lock names",
            cause="\n".join(each for line in lines[start : start + 8] if (each := line.strip())),
            fix="do not install it: ask where the file comes from (pip config list), or restore the lock",
        )
    if NO_SPACE in text:
        return full(what, cause)
    if os.environ.get("UV_OFFLINE", "").lower() in {"1", "true", "yes", "on"}:
        what = f"{what}: uv is offline, and its cache lacks a file"
        fix = "unset UV_OFFLINE; or copy ~/.cache/uv from a host that has built it"
    elif any(sign in text for sign in _UNREACHED):
        what = f"{what}: the package index cannot be reached"
        fix = "check the network (HTTPS_PROXY), or name a mirror: pip config set global.index-url ADDRESS"
        if place := _ADDRESS.search(text):
            fix += f"\nor put the wheels of {place[1]} into a folder: export PIP_FIND_LINKS=/path/to/wheels"
    elif lacks(lines):
        what = f"{what}: a build in the lock is offered nowhere"
        fix = "name a folder that has its wheel: export PIP_FIND_LINKS=/path/to/wheels"
    else:
        fix = f"fix that, or run the steps one by one: medley env {verb} {name} --dry-run"
    return Problem(what, cause=cause, fix=fix)


def full(what: str, cause: str) -> Problem:
    return Problem(f"{what}: the disk is full", cause=cause, fix=MAKE_ROOM)


def _tail(lines: Sequence[str], limit: int = 8) -> str:
    """The error and its causes, or else the last lines."""
    found = [line.strip() for line in lines if line.strip()]
    errors = (at for at, line in enumerate(found) if line.startswith("error:"))
    start = next(errors, max(0, len(found) - limit))
    return "\n".join(found[start : start + limit])


def settings(interpreter: Path, indexes: Sequence[str]) -> dict[str, str]:
    """The variables for uv by this machine's pip configuration, with the recipe's own indexes first."""
    found = uv_variables(read_pip_config(os.environ, user.home(), interpreter), os.environ)
    return {**with_indexes_first(found, indexes, os.environ), **own_configuration(os.environ, user.home())}


def own_configuration(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """The variable by which uv reads the user's own uv.toml, or none, and never a folder's.

    uv 0.11 reads uv.toml and pyproject.toml of the present folder and of each one above it: in a clone of
    somebody else's they can name another index, a folder to install into, or a program to fetch.
    """
    if environ.get("UV_CONFIG_FILE"):
        return {}
    base = environ.get("XDG_CONFIG_HOME", "")
    own = (Path(base) if base.startswith("/") else home / ".config") / "uv" / "uv.toml"
    return {"UV_CONFIG_FILE": str(own)} if storage.is_visible_file(own) else {"UV_NO_CONFIG": "1"}


def read_pip_config(environ: Mapping[str, str], home: Path, interpreter: Path) -> Options:
    """The options of pip on this host; `interpreter` is the prefix of the Python whose site file counts."""
    texts = []
    for path in files(environ, home, interpreter):
        with suppress(OSError, UnicodeDecodeError):
            texts.append(path.read_text(encoding="utf-8"))
    return options(texts, environ)


def files(environ: Mapping[str, str], home: Path, interpreter: Path) -> Iterator[Path]:
    """Where pip looks, the weakest first."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    for folder in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    if not (named and Path(named).exists()):
        yield home / ".pip" / "pip.conf"
        yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield interpreter / "pip.conf"
    if named:
        yield Path(named)


def options(texts: Sequence[str], environ: Mapping[str, str]) -> Options:
    """What holds for `pip install`, from the files' texts, the weakest first, and the PIP_* variables."""
    merged: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for text in texts:
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(text)
        except configparser.Error:
            continue  # pip itself refuses it, and will say so better
        for section, found in merged.items():
            if parser.has_section(section):
                found.update((_name(key), value) for key, value in parser.items(section))
    variables = {_name(key[4:]): value for key, value in environ.items() if key.startswith("PIP_") and value}
    return {**merged["global"], **merged["install"], **variables}


def uv_variables(options: Options, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that tell uv the same, less those that the user has set for uv.

    Variables and not arguments, because an index's address may hold a password, and any user of this machine
    can read the arguments of a process.
    """
    # Without the folders that are not there: pip passes over them, and uv would fail.
    links = (word for word in options.get("find-links", "").split() if "://" in word or Path(word).exists())
    options = {**options, "find-links": " ".join(links)}
    variables = {
        variable: _value(options[option], parts)
        for option, variable, parts in _VARIABLES
        if options.get(option, "").strip() and not _is_set(variable, environ)
    }
    no_index = options.get("no-index", "").lower() in {"1", "true", "yes", "on"}
    if no_index and not _is_set("UV_NO_INDEX", environ):
        variables["UV_NO_INDEX"] = "1"
    # Safe, because every file is checked against its hash, and needed where an index has a part of them.
    if not _is_set("UV_INDEX_STRATEGY", environ):
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return variables


def with_indexes_first(
    variables: Mapping[str, str], indexes: Sequence[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """The same with these indexes before all others: what one of them has is taken from nowhere else."""
    if not indexes:
        return dict(variables)
    others = variables.get("UV_INDEX") or environ.get("UV_INDEX") or environ.get("UV_EXTRA_INDEX_URL") or ""
    # An index of one sort of hardware has fewer versions than PyPI, under the same names.
    alone = {} if _is_set("UV_INDEX_STRATEGY", environ) else {"UV_INDEX_STRATEGY": "first-index"}
    return {**variables, "UV_INDEX": " ".join((*indexes, *others.split())), **alone}


def offers_wheels(variables: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Whether this machine has wheels from anywhere but one index, which may be those that PyPI lacks."""
    names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
    return any(variables.get(name) or environ.get(name) for name in names)


def _name(key: str) -> str:
    return key.lower().replace("_", "-").removeprefix("--")


def _value(text: str, parts: str | None) -> str:
    """As pip, which separates values by any white space, and takes a path from the current folder."""
    if parts is None:
        return text.strip()
    paths = ((word, Path(word)) for word in text.split())
    return parts.join(str(path.absolute()) if path.exists() else word for word, path in paths)


def _is_set(variable: str, environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in (variable, *_SAME.get(variable, ())))
