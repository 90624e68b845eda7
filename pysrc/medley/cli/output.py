"""Print commands with their reasons, JSON, and text wrapped for a terminal.

What goes on hangs below where its words began. Piped or written to a file, text stays as it is.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from medley import storage
from medley.cli.progress import watch
from medley.command import Command
from medley.errors import Problem, in_words
from medley.progress import Output

if TYPE_CHECKING:
    from medley.serving.steps import Step


def print_result(table: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print what a verb found: as one JSON value, or as lines, which are made only then."""
    for line in [json.dumps(table)] if as_json else lines:
        print(line, flush=True)


def show(command: Command, why: Iterable[tuple[str, str]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(command_table(command, why)))
        return
    for what, reason in why:
        print(f"medley: {what}: {reason}", file=sys.stderr)
    print(command)


def command_table(command: Command, why: Iterable[tuple[str, str]]) -> dict[str, Any]:
    return {
        "command": str(command),
        "argv": command.argv,
        "env": command.env,
        "unset": command.unset,
        "secrets": command.secrets,
        "why": [{"what": what, "why": reason} for what, reason in why],
    }


def show_steps(steps: "Iterable[Step]", *, as_json: bool) -> None:
    """What to type on each host, and what that starts there."""
    if as_json:
        print(json.dumps([step_table(step) for step in steps]))
        return
    for step in steps:
        for reason in step.why:
            print(f"medley: plan: {reason}", file=sys.stderr)
        for what, reason in step.starts.why():
            print(f"medley: {step.host}: {what}: {reason}", file=sys.stderr)
        print(f"on {step.host}: {step.typed}", file=sys.stderr)
        if step.image:
            print(f"medley: {step.host}: in a container of {step.image}", file=sys.stderr)
        print(step.starts.command)


def step_table(step: "Step") -> dict[str, Any]:
    why = (*(("plan", each) for each in step.why), *step.starts.why())
    return {
        "host": step.host,
        "type": step.typed,
        "image": step.image,
        **command_table(step.starts.command, why),
    }


def only_dry_run(verb: str, switch: str) -> Problem:
    return Problem(
        f"{switch} names hosts that are not this one, and nothing of it can be started here",
        cause="it goes with --dry-run alone",
        fix=f"medley {verb} --dry-run {switch}",
    )


def output() -> Output:
    """Where a launch reports when a verb starts one."""
    return Output(watch(), say, say, print_line, _error)


def say(text: object) -> None:
    _error(f"medley: {text}")


def print_line(text: str) -> None:
    """In one write, also where PYTHONUNBUFFERED is set: both streams may be one pipe."""
    print(f"{text}\n", end="", flush=True)


def _error(text: str) -> None:
    print(f"{text}\n", end="", file=sys.stderr, flush=True)


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


def save(name: str, text: str, example: str = "--svg plan.svg") -> None:
    """Whole, and only over a file: as root, /dev/null too could be replaced."""
    wrong = None
    try:
        path = Path(name).resolve()
        if path.exists() and not path.is_file():
            wrong = "it is a folder or a device, not a file"
        elif not path.parent.is_dir():
            wrong = f"there is no folder {path.parent}"
        else:
            storage.write(path, text)
    except OSError as error:
        wrong = in_words(error)
    if wrong:
        fix = f"name a file in a folder that you can write: {example}"
        raise Problem(f"{name or 'a file without a name'} cannot be written", cause=wrong, fix=fix)
