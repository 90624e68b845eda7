"""Wrapped is text as wide as the terminal: broken between words, and never within a command to be typed.

What goes on hangs below where its words began. Piped or written to a file, text stays as it is.
"""

import os
import re
import sys
from collections.abc import Iterator
from typing import TextIO

_LEAST = 40
_STOPS = {",", ";", ":"}
_COLUMNS = 80
_BACKSLASH = 3
# What a command that medley tells people to type begins with.
PROGRAMS = (
    *("medley", "sudo", "ssh", "docker", "podman", "nvidia-smi", "ray", "nix", "hf", "uv", "pip", "apt"),
    *("apt-get", "git", "curl", "rsync", "ip", "ss", "ping", "ethtool", "ufw", "nft", "systemctl"),
    *("loginctl", "journalctl", "timedatectl", "nvpmodel", "getent", "ulimit", "export", "unset", "echo"),
    *("sync", "ls", "df", "du", "ps", "rm", "kill", "cat", "less", "chmod", "chown", "mkdir", "file"),
    *("command", "free", "env", "python"),
)
_COMMAND = re.compile(
    r"(?:^|(?<=: )|(?<=; )|(?<= or )|(?<=then )|(?<=and ))(?:sync; )?"
    rf"(?:{'|'.join(map(re.escape, PROGRAMS))})"
    r"(?![\w-])(?:'[^']*'|\"[^\"]*\"|.)*?(?= *(?:  # |[;,:)] |$))|# .*$"
)
_BAR = re.compile(r"\[[#=\- ]+\]")
_LABEL = re.compile(r"\s*(?:[\w-]+: +)?")
_COLUMN = re.compile(r"\S {2,}(?=\S)")
_IN_COLUMNS = 40
"""Within which a column of a table begins, if it is one."""


def fit(text: str, stream: TextIO | None = None) -> str:
    """These lines for this stream; stdout where none is named."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return text
    columns = _columns(stream)
    return "\n".join(part for line in text.split("\n") for part in wrapped(line, columns))


def wide(most: int) -> int:
    """How wide a command may be on stdout that is broken by backslashes, which come on top."""
    return min(most, max(_LEAST, _columns(sys.stdout)) - _BACKSLASH) if sys.stdout.isatty() else most


def wrapped(line: str, columns: int) -> Iterator[str]:
    """A line as several of so many columns; a word or a command that is longer stands by itself."""
    if len(line) <= columns or columns < _LEAST or line.endswith("\\"):
        yield line
        return
    hang = _hang(line)
    made, alone = line[:hang], False
    for gap, word in _words(line[hang:]):
        if alone and not gap and word in _STOPS:
            continue  # a line of its own needs none, and copied with it the command would be another
        if made[hang:] and (alone or gap) and (alone or len(made) + len(gap) + len(word) > columns):
            yield made
            made, alone = " " * hang + word, _COMMAND.fullmatch(word) is not None
        else:
            made += gap + word
    yield made


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except OSError:
        return _COLUMNS


def _hang(line: str) -> int:
    """Where its words begin: behind the columns of a table, or a label, or else a bit further in."""
    columns = [found.end() for found in _COLUMN.finditer(line[:_IN_COLUMNS])]
    label = _LABEL.match(line)
    return max([*columns[-1:], label.end() if label else 0])


def _words(text: str) -> Iterator[tuple[str, str]]:
    """Each with the space before it: a command and what is said of it behind # are one."""
    at = 0
    for whole in sorted((*_COMMAND.finditer(text), *_BAR.finditer(text)), key=re.Match.start):
        if whole.start() < at or not whole[0]:
            continue
        yield from _plain(text[at : whole.start()])
        before = text[: whole.start()]
        yield before[len(before.rstrip()) :], whole[0]
        at = whole.end()
    yield from _plain(text[at:])


def _plain(text: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(r"(\s*)(\S+)", text):
        yield found[1], found[2]
