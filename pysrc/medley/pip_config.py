"""pip's configuration says where this machine gets its packages; uv does not read it, so we tell uv.

pip reads, each overriding the one before: the system's pip.conf, the user's, the interpreter's own, the file
that PIP_CONFIG_FILE names, PIP_* variables. Within them [install] overrides [global].
https://pip.pypa.io/en/stable/topics/configuration/
"""

import configparser
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

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


def read(environ: Mapping[str, str], home: Path, interpreter: Path) -> Options:
    """The options of this machine; `interpreter` is the prefix of the Python whose site file counts."""
    texts = []
    for path in files(environ, home, interpreter):
        try:
            texts.append(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
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


def variables(options: Options, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that tell uv the same, less those that the user has set for uv.

    Variables and not arguments, because an index's address may hold a password, and any user of this machine
    can read the arguments of a process.
    """
    options = {**options, "find-links": _links(options.get("find-links", ""))}
    told = {
        variable: _value(options[option], parts)
        for option, variable, parts in _VARIABLES
        if options.get(option, "").strip() and not _is_set(variable, environ)
    }
    if options.get("no-index", "").lower() in {"1", "true", "yes", "on"} and not _is_set(
        "UV_NO_INDEX", environ
    ):
        told["UV_NO_INDEX"] = "1"
    # Safe, because every file is checked against its hash, and needed where an index has a part of them.
    if not _is_set("UV_INDEX_STRATEGY", environ):
        told["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return told


def first(told: Mapping[str, str], indexes: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The same with these indexes before all others: what one of them has is taken from nowhere else."""
    if not indexes:
        return dict(told)
    others = told.get("UV_INDEX") or environ.get("UV_INDEX") or environ.get("UV_EXTRA_INDEX_URL") or ""
    # An index of one sort of hardware has fewer versions than PyPI, under the same names.
    alone = {} if _is_set("UV_INDEX_STRATEGY", environ) else {"UV_INDEX_STRATEGY": "first-index"}
    return {**told, "UV_INDEX": " ".join((*indexes, *others.split())), **alone}


def offers_wheels(told: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Whether this machine has wheels from anywhere but one index, which may be those that PyPI lacks."""
    names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
    return any(told.get(name) or environ.get(name) for name in names)


def _name(key: str) -> str:
    return key.lower().replace("_", "-").removeprefix("--")


def _value(text: str, parts: str | None) -> str:
    """Several values pip parts by any white space, and a path it reads from the current folder."""
    return text.strip() if parts is None else parts.join(_absolute(word) for word in text.split())


def _absolute(word: str) -> str:
    return str(Path(word).absolute()) if Path(word).exists() else word


def _links(text: str) -> str:
    """Without the folders that are not there: pip passes over them, and uv would fail."""
    return " ".join(word for word in text.split() if "://" in word or Path(word).exists())


def _is_set(variable: str, environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in (variable, *_SAME.get(variable, ())))
