"""The manual page, medley(1): what `--help` says of every verb, on one page, in roff."""

import itertools
from collections.abc import Iterator

from medley.completion import HELP, Switch, Verb

_STATUS = (
    ("0", "Done."),
    ("1", "It could not be done; what, why and what to type stands on standard error."),
    ("2", "What was typed cannot be meant."),
    ("130, 143", "Ctrl-C, or told to stop."),
    ("other", "An engine's own."),
)
_VARIABLES = (
    ("MEDLEY_CLUSTER", "The cluster's table, instead of ./cluster.toml."),
    ("MEDLEY_CONFIG", "The folder of your own tables, instead of ~/.config/medley."),
    ("MEDLEY_STATE", "Where it keeps what it started: tokens, units, logs."),
    ("MEDLEY_CACHE", "Where engine environments are built: tens of gigabytes."),
    ("MEDLEY_FLAKE", "The flake that a host's toolkit is taken from."),
    ("MEDLEY_TOOLKIT", "The toolkit itself; nix develop sets it."),
)


def page(medley: Verb, version: str) -> str:
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
        ".SH VERBS",
    ]
    for verb in medley.all():
        if verb.path:
            lines += _verb(verb)
    lines += [".SH SWITCHES OF ALL VERBS", *_tagged(_named(HELP), HELP.about)]
    lines += [".SH EXIT STATUS", *(line for row in _STATUS for line in _tagged(*row))]
    lines += [".SH ENVIRONMENT", *(line for row in _VARIABLES for line in _tagged(*row))]
    lines += [".SH FILES", *_tagged("cluster.toml", "The hosts of a cluster; medley init writes it.")]
    return "\n".join(lines) + "\n"


def _verb(verb: Verb) -> Iterator[str]:
    yield f'.SS "medley {_escaped(" ".join(verb.path))}"'
    yield _escaped(verb.about)
    yield ".PP"
    yield _usages(verb)
    yield from _text(verb.more)
    for switch in verb.switches:
        yield from _tagged(_named(switch), switch.about)


def _usages(verb: Verb) -> str:
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
