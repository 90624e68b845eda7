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
from medley.command import Command
from medley.errors import Problem
from medley.progress import Progress, format_share

NO_SPACE_MESSAGE = "No space left on device"
FREE_DISK_FIX = (
    "make room (medley env clean --all; uv cache prune), or use another disk: export MEDLEY_CACHE=/path"
)
_HASH_MISMATCH_PATTERN = re.compile(r"Hash mismatch for `([^`]+)`")
_NETWORK_ERRORS = (
    "error sending request",
    "dns error",
    "Failed to fetch",
    "Could not connect",
    "operation timed out",
    "client error",
    "network connectivity is disabled",
)


_LOGIN_PATTERN = re.compile(r"(?<=://)[^/\s@]+@")
_LOGIN_PLACEHOLDER = "USER:PASSWORD@"
_DOWNLOAD_LINE_PATTERN = re.compile(r"Downloading (\S+) \(([\d.]+)([KMG])iB\)")
_UNIT_BYTES = {"K": 2**10, "M": 2**20, "G": 2**30}

PipOptions = Mapping[str, str]

# pip's option, uv's variable for it, and the separator of several values in uv.
_PIP_OPTIONS = (
    ("index-url", "UV_DEFAULT_INDEX", None),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("cert", "SSL_CERT_FILE", None),
    ("proxy", "ALL_PROXY", None),
)
# Variables that mean the same to uv as the key: if the user has set one, it wins too.
_EQUAL_VARIABLES = {
    "UV_DEFAULT_INDEX": ("UV_INDEX_URL",),
    "UV_INDEX": ("UV_EXTRA_INDEX_URL",),
    "ALL_PROXY": ("all_proxy", "HTTPS_PROXY", "https_proxy"),
}


def find_uv(toolkit_uv: str | None) -> str:
    """Return the uv to run: MEDLEY_UV, else the toolkit's, else the Python package uv, else PATH's."""
    program = os.environ.get("MEDLEY_UV") or toolkit_uv or _find_packaged_uv() or process.find_program("uv")
    if program is None:
        raise Problem(
            "there is no uv here",
            cause="neither MEDLEY_UV, nor the Python package uv, nor PATH has one",
            fix="PYTHONSAFEPATH=1 python3 -m pip install uv",
        )
    return program


def _find_packaged_uv() -> str | None:
    try:
        from uv import find_uv_bin  # noqa: PLC0415 - not there where Nix packages medley

        return find_uv_bin()
    except (ModuleNotFoundError, FileNotFoundError):
        return None


@dataclass
class Downloads:
    """The progress of uv's downloads in bytes; uv prints nothing for files of less than 1 MiB."""

    progress: Progress
    file_bytes: dict[str, float] = field(default_factory=dict)
    done_bytes: float = 0
    started_s: float = 0

    def show_line(self, text: str) -> None:
        """Show the progress after one line of uv's output, or the line itself."""
        word, _, name = text.strip().partition(" ")
        if match := _DOWNLOAD_LINE_PATTERN.match(text.strip()):
            self.started_s = self.started_s or time.monotonic()
            self.file_bytes[match[1]] = float(match[2]) * _UNIT_BYTES[match[3]]
        elif word == "Downloaded" and name in self.file_bytes:
            self.done_bytes += self.file_bytes[name]
        else:
            self.progress.line(text)
            return
        self.show_bytes(self.done_bytes)

    def show_bytes(self, done_bytes: float) -> None:
        """Show how many bytes are downloaded, once uv has named a file."""
        if self.file_bytes:
            total_bytes = sum(self.file_bytes.values())
            done_bytes = min(done_bytes, total_bytes)
            mb_per_s = done_bytes / max(1, time.monotonic() - self.started_s) / 1e6
            self.progress.moved(f"{format_share(done_bytes, total_bytes)}, {mb_per_s:.0f} MB/s")


_ADDRESS_PATTERN = re.compile(r"https?://([\w.-]+)")


def is_missing_package(lines: Sequence[str]) -> bool:
    """Return whether uv failed because no index has a package in that version or build."""
    return any("there is no version of" in line or "was not found in the" in line for line in lines)


def build_failure_problem(name: str, status: int, lines: Sequence[str], *, verb: str = "build") -> Problem:
    """Return the Problem of uv's last lines after `medley env VERB`, which was to build or to lock `name`."""
    title = f"{name} cannot be {'built' if verb == 'build' else 'locked'}"
    text = "\n".join(lines)
    cause = _select_error_lines(lines) or f"uv exited with {status} and printed nothing"
    if match := _HASH_MISMATCH_PATTERN.search(text):
        start = next(number for number, line in enumerate(lines) if "Hash mismatch" in line)
        return Problem(
            f"{match[1]} is not the file that the lock names",
            cause="\n".join(stripped for line in lines[start : start + 8] if (stripped := line.strip())),
            fix="do not install it: ask where the file comes from (pip config list), or restore the lock",
        )
    if NO_SPACE_MESSAGE in text:
        return build_disk_full_problem(title, cause)
    if os.environ.get("UV_OFFLINE", "").lower() in {"1", "true", "yes", "on"}:
        title = f"{title}: uv is offline, and its cache lacks a file"
        fix = "unset UV_OFFLINE; or copy ~/.cache/uv from a host that has built it"
    elif any(sign in text for sign in _NETWORK_ERRORS):
        title = f"{title}: the package index cannot be reached"
        fix = "check the network (HTTPS_PROXY), or name a mirror: pip config set global.index-url ADDRESS"
        if server := _ADDRESS_PATTERN.search(text):
            fix += f"\nor put the wheels of {server[1]} into a folder: export PIP_FIND_LINKS=/path/to/wheels"
    elif is_missing_package(lines):
        title = f"{title}: a build in the lock is offered nowhere"
        fix = "name a folder that has its wheel: export PIP_FIND_LINKS=/path/to/wheels"
    else:
        fix = f"fix that, or run the steps one by one: medley env {verb} {name} --dry-run"
    return Problem(title, cause=cause, fix=fix)


def build_disk_full_problem(title: str, cause: str) -> Problem:
    return Problem(f"{title}: the disk is full", cause=cause, fix=FREE_DISK_FIX)


def _select_error_lines(lines: Sequence[str], limit: int = 8) -> str:
    """Return the error and its causes, or else the last lines."""
    stripped_lines = [line.strip() for line in lines if line.strip()]
    errors = (number for number, line in enumerate(stripped_lines) if line.startswith("error:"))
    start = next(errors, max(0, len(stripped_lines) - limit))
    return "\n".join(stripped_lines[start : start + limit])


def read_settings(prefix: Path, indexes: Sequence[str]) -> dict[str, str]:
    """Return uv's variables from this machine's pip configuration, with the recipe's own indexes first.

    `prefix`: that of the Python whose own pip.conf counts.
    """
    variables = convert_options(read_pip_config(os.environ, user.find_home(), prefix), os.environ)
    return {
        **put_indexes_first(variables, indexes, os.environ),
        **choose_configuration(os.environ, user.find_home()),
    }


def choose_configuration(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the variable by which uv reads the user's own uv.toml, or none, and never a folder's.

    uv 0.11 reads uv.toml and pyproject.toml of the present folder and of each one above it: in a clone of
    somebody else's they can name another index, a folder to install into, or a program to fetch.
    """
    if environ.get("UV_CONFIG_FILE"):
        return {}
    base = environ.get("XDG_CONFIG_HOME", "")
    user_file = (Path(base) if base.startswith("/") else home / ".config") / "uv" / "uv.toml"
    return {"UV_CONFIG_FILE": str(user_file)} if storage.is_visible_file(user_file) else {"UV_NO_CONFIG": "1"}


def read_pip_config(environ: Mapping[str, str], home: Path, prefix: Path) -> PipOptions:
    """Return pip's options on this host; `prefix` is that of the Python whose own pip.conf counts."""
    texts = []
    for path in list_pip_files(environ, home, prefix):
        with suppress(OSError, UnicodeDecodeError):
            texts.append(path.read_text(encoding="utf-8"))
    return merge_pip_options(texts, environ)


def list_pip_files(environ: Mapping[str, str], home: Path, prefix: Path) -> Iterator[Path]:
    """Yield the files that pip reads, the weakest first."""
    named_file = environ.get("PIP_CONFIG_FILE")
    if named_file == os.devnull:
        return
    for folder in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    if not (named_file and Path(named_file).exists()):
        yield home / ".pip" / "pip.conf"
        yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield prefix / "pip.conf"
    if named_file:
        yield Path(named_file)


def merge_pip_options(texts: Sequence[str], environ: Mapping[str, str]) -> PipOptions:
    """Return the options of `pip install`, from the files' texts, weakest first, and the PIP_* variables."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for text in texts:
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(text)
        except configparser.Error:
            continue  # pip itself refuses it, and will say so better
        for section, section_options in sections.items():
            if parser.has_section(section):
                section_options.update((_normalize_key(key), value) for key, value in parser.items(section))
    variables = {
        _normalize_key(key[4:]): value for key, value in environ.items() if key.startswith("PIP_") and value
    }
    return {**sections["global"], **sections["install"], **variables}


def convert_options(options: PipOptions, environ: Mapping[str, str]) -> dict[str, str]:
    """Return uv's variables for pip's options, without those that the user has set for uv.

    Variables and not arguments, because an index's address may hold a password, and any user of this machine
    can read the arguments of a process.
    """
    # Without missing folders: pip ignores them, and uv would fail.
    links = (word for word in options.get("find-links", "").split() if "://" in word or Path(word).exists())
    options = {**options, "find-links": " ".join(links)}
    variables = {
        variable: _convert_value(options[option], separator)
        for option, variable, separator in _PIP_OPTIONS
        if options.get(option, "").strip() and not _is_set(variable, environ)
    }
    no_index = options.get("no-index", "").lower() in {"1", "true", "yes", "on"}
    if no_index and not _is_set("UV_NO_INDEX", environ):
        variables["UV_NO_INDEX"] = "1"
    # Safe, because every file is checked against its hash; needed if an index has only some of the packages.
    if not _is_set("UV_INDEX_STRATEGY", environ):
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return variables


def hide_logins(command: Command) -> Command:
    """Return the command as it is printed: without the logins in the addresses of indexes and proxies."""
    return command.replace(
        argv=tuple(_LOGIN_PATTERN.sub(_LOGIN_PLACEHOLDER, word) for word in command.argv),
        env={name: _LOGIN_PATTERN.sub(_LOGIN_PLACEHOLDER, value) for name, value in command.env.items()},
    )


def put_indexes_first(
    variables: Mapping[str, str], indexes: Sequence[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables with these indexes first: a package on one of them comes from no other."""
    if not indexes:
        return dict(variables)
    other_indexes = (
        variables.get("UV_INDEX") or environ.get("UV_INDEX") or environ.get("UV_EXTRA_INDEX_URL") or ""
    )
    # An index of one sort of hardware has fewer versions than PyPI, under the same names.
    strategy = {} if _is_set("UV_INDEX_STRATEGY", environ) else {"UV_INDEX_STRATEGY": "first-index"}
    return {**variables, "UV_INDEX": " ".join((*indexes, *other_indexes.split())), **strategy}


def has_other_wheels(variables: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Return whether this machine names an index or a folder, which may have wheels that PyPI lacks."""
    names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
    return any(variables.get(name) or environ.get(name) for name in names)


def _normalize_key(key: str) -> str:
    return key.lower().replace("_", "-").removeprefix("--")


def _convert_value(text: str, separator: str | None) -> str:
    """Return a value in uv's form: pip separates values by any white space, and resolves relative paths."""
    if separator is None:
        return text.strip()
    paths = ((word, Path(word)) for word in text.split())
    return separator.join(str(path.absolute()) if path.exists() else word for word, path in paths)


def _is_set(variable: str, environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in (variable, *_EQUAL_VARIABLES.get(variable, ())))
