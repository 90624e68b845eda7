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
from medley.cli.help_text import dashed
from medley.cluster import systemd
from medley.network import ports


@dataclass(frozen=True)
class Offer:
    """What a word may be: these, a host of cluster.toml, a file; nothing of it, where nobody can know."""

    words: tuple[str, ...] = ()
    hosts: bool = False
    files: bool = False

    def __or__(self, other: "Offer") -> "Offer":
        words = dict.fromkeys((*self.words, *other.words))
        return Offer(tuple(words), self.hosts or other.hosts, self.files or other.files)


SHELLS = ("bash", "zsh", "fish", "man")
"""What `medley completion` writes."""
NOTHING = Offer()
FILES = Offer(files=True)
HOSTS = Offer(hosts=True)


@dataclass(frozen=True)
class Switch:
    """One switch as it is typed: its names with their dashes, and its argument if it takes one."""

    names: tuple[str, ...]
    about: str
    argument: str | None = None
    offer: Offer = NOTHING
    repeats: bool = False


HELP = Switch(("-h", "--help"), "show this help, with examples")


@dataclass(frozen=True)
class VerbEntry:
    """`medley` itself, a verb, or a verb of a verb: `path` is what is typed after `medley` to have it."""

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
    def typed(self) -> tuple[Switch, ...]:
        """Its switches, and that of all verbs."""
        return (*self.switches, HELP)

    def all(self) -> "Iterator[VerbEntry]":
        """The verb itself, and every one below it."""
        yield self
        for verb in self.verbs:
            yield from verb.all()


def manual_page(medley: VerbEntry, version: str) -> str:
    """For man(1). It has no date, so that the same medley makes the same page."""
    lines = [
        f'.TH MEDLEY 1 "" "medley {_escaped(version)}" "Medley"',
        ".SH NAME",
        rf"medley \- {_escaped(medley.about.rstrip('.'))}",
        ".SH SYNOPSIS",
        _usages(medley),
        ".SH DESCRIPTION",
        _escaped(medley.about),
        *_text(medley.more),
        ".SH COMMANDS",
    ]
    for verb in medley.all():
        if verb.path:
            lines += _verb(verb)
    lines += [".SH OPTIONS OF ALL COMMANDS", *_tagged(_named(HELP), HELP.about)]
    end = Path(__file__).with_name("manual_end.roff").read_text(encoding="utf-8")
    return "\n".join((*lines, end))


def _verb(verb: VerbEntry) -> Iterator[str]:
    yield f'.SS "medley {_escaped(" ".join(verb.path))}"'
    yield _escaped(verb.about)
    yield ".PP"
    yield _usages(verb)
    yield from _text(verb.more)
    for switch in verb.switches:
        yield from _tagged(_named(switch), switch.about)


def _usages(verb: VerbEntry) -> str:
    return "\n.br\n".join(rf"\fB{_escaped(usage)}\fR" for usage in verb.usage)


def _text(text: str) -> Iterator[str]:
    """Paragraphs are filled; what is indented, such as examples, stays as it is."""
    for paragraph in text.strip("\n").split("\n\n"):
        for indented, block in itertools.groupby(
            paragraph.splitlines(), lambda line: line.startswith("    ")
        ):
            lines = [_escaped(line) for line in block]
            yield from (".PP", ".nf", *lines, ".fi") if indented else (".PP", *lines)


def _named(switch: Switch) -> str:
    return ", ".join(switch.names) + (f" {switch.argument}" if switch.argument else "")


def _tagged(tag: str, text: str) -> tuple[str, ...]:
    return (".TP", rf"\fB{_escaped(tag)}\fR", _escaped(text))


def _escaped(text: str) -> str:
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    plain = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in plain)
    return rf"\&{plain}" if plain[:1] in {".", "'"} else plain


def read_tree(verb: type[Verb], path: tuple[str, ...], known: Mapping[str, Offer]) -> VerbEntry:
    """A verb and all below it, as they describe themselves to plumbum."""
    name = " ".join(("medley", *path))
    typed = verb(name)
    usage = tuple(typed.usages())
    below = (read_tree(each, (*path, word), known) for word, each in typed.below().items())
    return VerbEntry(
        path,
        about=verb.DESCRIPTION or "",
        more=verb.DESCRIPTION_MORE or "",
        usage=usage,
        switches=tuple(_switch(info, known) for info in typed.infos()),
        offer=_positional(" ".join(usage), path, known),
        verbs=tuple(below),
    )


def _switch(info: Any, known: Mapping[str, Offer]) -> Switch:  # noqa: ANN401 - plumbum's

    offer = NOTHING
    if isinstance(info.argtype, cli.Set):
        offer = Offer(tuple(value for value in info.argtype.values if isinstance(value, str)))
    elif info.argtype is not None:
        offer = known.get(info.argname, NOTHING)
    return Switch(
        names=tuple(map(dashed, info.names)),
        about=info.help or "",
        argument=info.argname if info.argtype is not None else None,
        offer=offer,
        repeats=info.list,
    )


def _positional(usage: str, path: tuple[str, ...], known: Mapping[str, Offer]) -> Offer:
    """The words of a verb are those that its usage names; a ROLE is another to each verb."""
    roles = ports.ROLES if path == ("ports",) else systemd.ROLES
    here = {"WHAT": Offer(SHELLS), "ROLE": Offer(roles)}
    if path == ("service", "install"):
        here["HEAD"] = here["ROLE"] | known["HOST"]
    if path[:1] == ("env",):
        here["NAME"] = known["ENV"]
    found = NOTHING
    for word in re.findall(r"\b[A-Z]+\b", usage):
        found |= {**known, **here}.get(word, NOTHING)
    return found


def known_words() -> Mapping[str, Offer]:
    """What words and values that bear a name may be. Most may also be elsewhere."""
    kinds = Offer(tuple(sorted(config.files("hosts"))))
    files = dict.fromkeys(("FILE", "PATH[:INSIDE]", "LOG", "IN", "OUT", "SCRIPT"), FILES)
    return {
        **files,
        "HOST": HOSTS,
        "HEAD": HOSTS,
        "KIND": kinds,
        "KINDS": kinds,
        "N|KINDS": kinds,
        "ENV": Offer(tuple(sorted(config.files("locks")))) | FILES,
        "MODEL": Offer(tuple(sorted(config.files("models")))) | FILES,
    }
