"""Verbs, switches and what each word may be, as data; the manual page.

`bash`, `zsh` and `fish` write it as a script that is text alone, so that Tab starts no Python; `manual` as
a page.
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
class Offer:
    """The values that a word may have: these words, a host of cluster.toml, a file; or none is known."""

    words: tuple[str, ...] = ()
    has_hosts: bool = False
    has_files: bool = False

    def __or__(self, other: "Offer") -> "Offer":
        words = dict.fromkeys((*self.words, *other.words))
        return Offer(tuple(words), self.has_hosts or other.has_hosts, self.has_files or other.has_files)


SHELLS = ("bash", "zsh", "fish", "man")
"""The names that `medley completion` takes."""
NOTHING = Offer()
FILES = Offer(has_files=True)
HOSTS = Offer(has_hosts=True)


@dataclass(frozen=True)
class Switch:
    """One switch as it is typed: its names with their dashes, and its argument if it takes one."""

    names: tuple[str, ...]
    about: str
    argument: str | None = None
    offer: Offer = NOTHING
    is_repeatable: bool = False


HELP = Switch(("-h", "--help"), "show this help, with examples")


@dataclass(frozen=True)
class VerbEntry:
    """`medley` itself, a verb, or a verb of a verb; `path` has its words after `medley`."""

    path: tuple[str, ...]
    about: str
    more: str = ""
    usage: tuple[str, ...] = ()
    switches: tuple[Switch, ...] = ()
    offer: Offer = NOTHING
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
        rf"medley \- {_escape(medley.about.rstrip('.'))}",
        ".SH SYNOPSIS",
        _format_usages(medley),
        ".SH DESCRIPTION",
        _escape(medley.about),
        *_format_text(medley.more),
        ".SH COMMANDS",
    ]
    for verb in medley.walk():
        if verb.path:
            lines += _format_verb(verb)
    lines += [".SH OPTIONS OF ALL COMMANDS", *_format_entry(_format_switch(HELP), HELP.about)]
    end = Path(__file__).with_name("manual_end.roff").read_text(encoding="utf-8")
    return "\n".join((*lines, end))


def _format_verb(verb: VerbEntry) -> Iterator[str]:
    yield f'.SS "medley {_escape(" ".join(verb.path))}"'
    yield _escape(verb.about)
    yield ".PP"
    yield _format_usages(verb)
    yield from _format_text(verb.more)
    for switch in verb.switches:
        yield from _format_entry(_format_switch(switch), switch.about)


def _format_usages(verb: VerbEntry) -> str:
    return "\n.br\n".join(rf"\fB{_escape(usage)}\fR" for usage in verb.usage)


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


def read_tree(verb: type[Verb], path: tuple[str, ...], word_offers: Mapping[str, Offer]) -> VerbEntry:
    """Return a verb and all below it, as they describe themselves to plumbum."""
    name = " ".join(("medley", *path))
    instance = verb(name)
    usage = tuple(instance.list_usages())
    subverbs = (read_tree(each, (*path, word), word_offers) for word, each in instance.load_verbs().items())
    return VerbEntry(
        path,
        about=verb.DESCRIPTION or "",
        more=verb.DESCRIPTION_MORE or "",
        usage=usage,
        switches=tuple(_read_switch(info, word_offers) for info in instance.list_switch_infos()),
        offer=_read_arguments_offer(" ".join(usage), path, word_offers),
        verbs=tuple(subverbs),
    )


def _read_switch(info: Any, word_offers: Mapping[str, Offer]) -> Switch:  # noqa: ANN401 - plumbum's

    offer = NOTHING
    if isinstance(info.argtype, cli.Set):
        offer = Offer(tuple(value for value in info.argtype.values if isinstance(value, str)))
    elif info.argtype is not None:
        offer = word_offers.get(info.argname, NOTHING)
    return Switch(
        names=tuple(map(add_dashes, info.names)),
        about=info.help or "",
        argument=info.argname if info.argtype is not None else None,
        offer=offer,
        is_repeatable=info.list,
    )


def _read_arguments_offer(usage: str, path: tuple[str, ...], word_offers: Mapping[str, Offer]) -> Offer:
    """Return the values of a verb's arguments, by the words in its usage; ROLE differs between verbs."""
    roles = ports.ROLES if path == ("ports",) else systemd.ROLES
    own_offers = {"WHAT": Offer(SHELLS), "ROLE": Offer(roles)}
    if path == ("service", "install"):
        own_offers["HEAD"] = own_offers["ROLE"] | word_offers["HOST"]
    if path[:1] == ("env",):
        own_offers["NAME"] = word_offers["ENV"]
    offer = NOTHING
    for word in re.findall(r"\b[A-Z]+\b", usage):
        offer |= {**word_offers, **own_offers}.get(word, NOTHING)
    return offer


def list_word_offers() -> Mapping[str, Offer]:
    """Return the values of the words that usages and switches name. Most allow other values too."""
    kind_offer = Offer(tuple(sorted(config.files("hosts"))))
    file_offers = dict.fromkeys(("FILE", "PATH[:INSIDE]", "LOG", "IN", "OUT", "SCRIPT"), FILES)
    return {
        **file_offers,
        "HOST": HOSTS,
        "HEAD": HOSTS,
        "KIND": kind_offer,
        "KINDS": kind_offer,
        "N|KINDS": kind_offer,
        "ENV": Offer(tuple(sorted(config.files("locks")))) | FILES,
        "MODEL": Offer(tuple(sorted(config.files("models")))) | FILES,
    }
