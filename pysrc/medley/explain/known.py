"""A known failure: the words by which a log shows it, and what they mean to whoever reads them."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

HIGH, MEDIUM, LOW = "high", "medium", "low"
RANK = {HIGH: 0, MEDIUM: 1, LOW: 2}
_OPTIONAL = re.compile(r"\[([^\[\]]*\{\w+\}[^\[\]]*)\]")
_GROUP = re.compile(r"\{(\w+)\}")
# No option, unless it is one without a value.
_SAFE = re.compile(r"(?:~/)?[\w@%+=:,./][\w@%+=:,./-]*|--[a-z][a-z0-9-]*")
_LINES = re.compile(r"\s*\n\s*")


@dataclass(frozen=True)
class Shape:
    """One wording of it; versions of a program differ."""

    needle: str
    """Words that every such line has: they are looked for first, and quickly."""
    pattern: re.Pattern[str]
    """Searched in the line without its prefix, and in the lines after it where `more` says so."""


@dataclass(frozen=True)
class Known:
    """The texts are templates: {group} is what was found, and [… {group} …] is left out without it."""

    name: str
    what: str
    cause: str
    fix: str
    shapes: tuple[Shape, ...]
    confidence: str = HIGH
    symptom: bool = False
    """It follows from something else, which is named instead where it is known."""
    quiet: bool = False
    """Also in a line that its program calls information or a warning."""
    echoes: bool = False
    """Also in a line of the program's own text, as a traceback shows it."""
    more: int = 0
    """So many lines after the first belong to it."""
    unless: re.Pattern[str] | None = None
    """What makes such a line harmless, in it or in those that belong to it."""
    over: tuple[str, ...] = ()
    """Names of failures that say the same less well."""
    stays: bool = False
    """A server that became ready has it all the same."""
    last: bool = False
    """The engine's last word: it says that something failed before, and not what."""
    often: int = 1
    """Said less often than this it is no failure."""
    hint: bool = False
    """It explains a failure, and is none where nothing failed."""
    stops: bool = False
    """Said by what was told to end, before it was ready."""

    def told(self, found: Mapping[str, str | None]) -> tuple[str, str, str]:
        """What, cause and fix with what was found."""
        what, cause = (filled(text, found) for text in (self.what, self.cause))
        return what, cause, filled(self.fix, {name: _typed(value) for name, value in found.items()})


def shape(needle: str, pattern: str | None = None) -> Shape:
    """Without a pattern the needle alone is the sign."""
    return Shape(needle, re.compile(re.escape(needle) if pattern is None else pattern))


def _typed(value: str | None) -> str | None:
    """As it may stand in a command that somebody pastes: what a log says is one word there, and no option."""
    if value is None or _SAFE.fullmatch(value):
        return value
    return None if value.startswith("-") else shlex.quote(_LINES.sub(" ", value.strip()))


def filled(template: str, found: Mapping[str, str | None]) -> str:
    def optional(match: re.Match[str]) -> str:
        return match[1] if all(found.get(name) for name in _GROUP.findall(match[1])) else ""

    kept = _OPTIONAL.sub(optional, template)
    return _GROUP.sub(lambda match: _LINES.sub(" ", (found.get(match[1]) or "?").strip()), kept).strip(" ,;")
