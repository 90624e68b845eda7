"""Describe verbs, switches and their values as data, and format them as the manual page.

shell_scripts.py formats them as completion scripts, so that Tab starts no Python.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbum import cli

from medley import config
from medley.cli import Verb
from medley.cli.help_text import add_dashes
from medley.cluster import systemd
from medley.network import ports


@dataclass(frozen=True)
class WordValues:
    """The values of an argument that a shell completes: these words, a host of cluster.toml, or a file."""

    words: tuple[str, ...] = ()
    has_hosts: bool = False
    has_files: bool = False

    def __or__(self, other: "WordValues") -> "WordValues":
        words = dict.fromkeys((*self.words, *other.words))
        return WordValues(tuple(words), self.has_hosts or other.has_hosts, self.has_files or other.has_files)


COMPLETION_TARGETS = ("bash", "zsh", "fish", "man")
"""The words that `medley completion` takes: shells, and `man` for a page."""
NO_VALUES = WordValues()
FILE_VALUES = WordValues(has_files=True)
HOST_VALUES = WordValues(has_hosts=True)


@dataclass(frozen=True)
class Switch:
    """A switch: its names with their dashes, and its argument if it takes one."""

    names: tuple[str, ...]
    help_text: str
    argument: str | None = None
    values: WordValues = NO_VALUES
    is_repeatable: bool = False


HELP = Switch(("-h", "--help"), "show this help, with examples")


@dataclass(frozen=True)
class VerbEntry:
    """`medley` itself, a verb, or a verb of a verb; `path` has its words after `medley`."""

    path: tuple[str, ...]
    description: str
    details: str = ""
    usages: tuple[str, ...] = ()
    switches: tuple[Switch, ...] = ()
    argument_values: WordValues = NO_VALUES
    verbs: tuple["VerbEntry", ...] = ()

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else "medley"

    @property
    def all_switches(self) -> tuple[Switch, ...]:
        """Its switches, and the one of all verbs."""
        return (*self.switches, HELP)

    def walk(self) -> "Iterator[VerbEntry]":
        """Yield the verb itself, and every one below it."""
        yield self
        for verb in self.verbs:
            yield from verb.walk()


def format_manual_page(medley: VerbEntry, version: str) -> str:
    """Return the page for man(1). It has no date, so that the same medley makes the same page."""
    lines = [
        f'.TH MEDLEY 1 "" "medley {_escape(version)}" "Medley"',
        ".SH NAME",
        rf"medley \- {_escape(medley.description.rstrip('.'))}",
        ".SH SYNOPSIS",
        _format_usages(medley),
        ".SH DESCRIPTION",
        _escape(medley.description),
        *_format_text(medley.details),
        ".SH COMMANDS",
    ]
    for verb in medley.walk():
        if verb.path:
            lines += _format_verb(verb)
    lines += [".SH OPTIONS OF ALL COMMANDS", *_format_entry(_format_switch(HELP), HELP.help_text)]
    end = Path(__file__).with_name("manual_end.roff").read_text(encoding="utf-8")
    return "\n".join((*lines, end))


def _format_verb(verb: VerbEntry) -> Iterator[str]:
    yield f'.SS "medley {_escape(" ".join(verb.path))}"'
    yield _escape(verb.description)
    yield ".PP"
    yield _format_usages(verb)
    yield from _format_text(verb.details)
    for switch in verb.switches:
        yield from _format_entry(_format_switch(switch), switch.help_text)


def _format_usages(verb: VerbEntry) -> str:
    return "\n.br\n".join(rf"\fB{_escape(usage)}\fR" for usage in verb.usages)


def _format_text(text: str) -> Iterator[str]:
    """Yield filled paragraphs; indented lines, such as examples, stay as they are."""
    for paragraph in text.strip("\n").split("\n\n"):
        for indented, block in itertools.groupby(
            paragraph.splitlines(), lambda line: line.startswith("    ")
        ):
            lines = [_escape(line) for line in block]
            yield from (".PP", ".nf", *lines, ".fi") if indented else (".PP", *lines)


def _format_switch(switch: Switch) -> str:
    return ", ".join(switch.names) + (f" {switch.argument}" if switch.argument else "")


def _format_entry(tag: str, text: str) -> tuple[str, ...]:
    return (".TP", rf"\fB{_escape(tag)}\fR", _escape(text))


def _escape(text: str) -> str:
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    plain = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in plain)
    return rf"\&{plain}" if plain[:1] in {".", "'"} else plain


def read_tree(verb: type[Verb], path: tuple[str, ...], word_values: Mapping[str, WordValues]) -> VerbEntry:
    """Return a verb and all below it, as they describe themselves to plumbum."""
    name = " ".join(("medley", *path))
    instance = verb(name)
    usage = tuple(instance.list_usages())
    subverbs = (
        read_tree(subverb, (*path, word), word_values) for word, subverb in instance.load_verbs().items()
    )
    return VerbEntry(
        path,
        description=verb.DESCRIPTION or "",
        details=verb.DESCRIPTION_MORE or "",
        usages=usage,
        switches=tuple(_read_switch(info, word_values) for info in instance.list_switch_infos()),
        argument_values=_read_argument_values(" ".join(usage), path, word_values),
        verbs=tuple(subverbs),
    )


def _read_switch(info: Any, word_values: Mapping[str, WordValues]) -> Switch:  # noqa: ANN401 - plumbum's

    values = NO_VALUES
    if isinstance(info.argtype, cli.Set):
        values = WordValues(tuple(value for value in info.argtype.values if isinstance(value, str)))
    elif info.argtype is not None:
        values = word_values.get(info.argname, NO_VALUES)
    return Switch(
        names=tuple(map(add_dashes, info.names)),
        help_text=info.help or "",
        argument=info.argname if info.argtype is not None else None,
        values=values,
        is_repeatable=info.list,
    )


def _read_argument_values(
    usage: str, path: tuple[str, ...], word_values: Mapping[str, WordValues]
) -> WordValues:
    """Return the values of a verb's arguments, by the words in its usage; ROLE differs between verbs."""
    roles = ports.ROLES if path == ("ports",) else systemd.SERVICE_ROLES
    own_values = {"WHAT": WordValues(COMPLETION_TARGETS), "ROLE": WordValues(roles)}
    if path == ("service", "install"):
        own_values["HEAD"] = own_values["ROLE"] | word_values["HOST"]
    if path[:1] == ("env",):
        own_values["NAME"] = word_values["ENV"]
    values = NO_VALUES
    for word in re.findall(r"\b[A-Z]+\b", usage):
        values |= {**word_values, **own_values}.get(word, NO_VALUES)
    return values


def list_word_values() -> Mapping[str, WordValues]:
    """Return the values of the words that usages and switches name. Most allow other values too."""
    kind_values = WordValues(tuple(sorted(config.find_table_files("hosts"))))
    file_values = dict.fromkeys(("FILE", "PATH[:INSIDE]", "LOG", "IN", "OUT", "SCRIPT"), FILE_VALUES)
    return {
        **file_values,
        "HOST": HOST_VALUES,
        "HEAD": HOST_VALUES,
        "KIND": kind_values,
        "KINDS": kind_values,
        "N|KINDS": kind_values,
        "ENV": WordValues(tuple(sorted(config.find_table_files("locks")))) | FILE_VALUES,
        "MODEL": WordValues(tuple(sorted(config.find_table_files("models")))) | FILE_VALUES,
    }
