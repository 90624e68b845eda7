"""Read the known failures (failures/*.toml): how a log shows each, and what a user can do.

They are data: failures/*.toml at the top of the repository, one file for each program or subject, and the
user's own in ~/.config/medley/failures. A user's failure replaces one of ours that has the same name.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from medley import config
from medley.errors import Problem
from medley.schema import StrictTable

Confidence = Literal["high", "medium", "low"]
RANK = {"high": 0, "medium": 1, "low": 2}
# A scan removes these from a line to find its kind, so a needle must have other characters.
VARYING = "0123456789abcdef"
_SHORTEST = 3
_OPTIONAL = re.compile(r"\[([^\[\]]*\{\w+\}[^\[\]]*)\]")
_GROUP = re.compile(r"\{(\w+)\}")
# No option, unless it is one without a value.
_SAFE = re.compile(r"(?:~/)?[\w@%+=:,./][\w@%+=:,./-]*|--[a-z][a-z0-9-]*")
_LINES = re.compile(r"\s*\n\s*")
_Text = Annotated[str, Field(max_length=1000)]


class Sign(StrictTable):
    """One wording of a failure; versions of a program differ."""

    needle: str
    """Words that every such line has: they are looked for first, and quickly."""
    pattern: Annotated[str, Field(max_length=2000)] | None = None
    """A regular expression, searched in the line without its prefix; absent: the needle itself."""

    @field_validator("needle")
    @classmethod
    def _is_selective(cls, needle: str) -> str:
        if len(needle.translate(str.maketrans("", "", VARYING))) < _SHORTEST:
            raise ValueError(f"it needs {_SHORTEST} characters that are neither digits nor a to f")
        return needle

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """Compiled when a line first has the needle."""
        return re.compile(re.escape(self.needle) if self.pattern is None else self.pattern)


class Failure(StrictTable):
    """The texts are templates: {group} is what was found, and [… {group} …] is left out without it."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)]
    what: _Text
    cause: _Text
    fix: _Text
    signs: Annotated[tuple[Sign, ...], Field(min_length=1)]
    confidence: Confidence = "high"
    symptom: bool = False
    """It follows from another failure, which is named instead where it is known."""
    any_level: bool = False
    """Also in a line that its program calls information or a warning."""
    in_source: bool = False
    """Also in a line of source code, as a traceback shows it."""
    lines_after: Annotated[int, Field(ge=0, le=30)] = 0
    """Number of lines after the first that belong to it; its patterns are searched in them too."""
    unless: Annotated[str, Field(max_length=2000)] | None = None
    """A regular expression for what makes such lines harmless."""
    over: tuple[str, ...] = ()
    """Names of failures that say the same less well."""
    also_when_ready: bool = False
    """A server that became ready has it all the same."""
    ends: bool = False
    """The engine's last word: it says that something failed before, but not what."""
    minimum: Annotated[int, Field(ge=1)] = 1
    """Fewer such lines are not a failure."""
    hint: bool = False
    """It explains a failure, and is none where nothing failed."""
    during_shutdown: bool = False
    """A program that was told to end before it was ready says it."""
    examples: tuple[str, ...] = ()
    """Logs that show it."""
    look_alikes: tuple[str, ...] = ()
    """Logs that do not show it, though they resemble one that does."""

    @cached_property
    def harmless(self) -> re.Pattern[str] | None:
        return None if self.unless is None else re.compile(self.unless)

    def told(self, found: Mapping[str, str | None]) -> tuple[str, str, str]:
        """What, cause and fix with what was found."""
        what, cause = (_filled(text, found) for text in (self.what, self.cause))
        return what, cause, _filled(self.fix, {name: _typed(value) for name, value in found.items()})


class File(StrictTable):
    """A file of known failures: failures/SUBJECT.toml."""

    failure: tuple[Failure, ...]


@dataclass(frozen=True)
class Known:
    """All failures that are known here; `user`: names of those the user wrote."""

    failures: tuple[Failure, ...]
    user: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    """Files that cannot be used."""


def sign(needle: str, pattern: str | None = None) -> Sign:
    return Sign(needle=needle, pattern=pattern)


def files() -> tuple[list[Path], list[Path]]:
    """The user's files, and ours: those of the source tree, or of the installed package."""
    own, *shipped = (sorted((folder / "failures").glob("*.toml")) for folder in config.folders())
    return own, next(filter(None, shipped), [])


def load(*, user: bool = True) -> Known:
    """Read all files; one that is wrong is left out. Without `user`: only ours."""
    own, shipped = files()
    problems: list[Problem] = []
    ours = {each.name: each for each in _all(shipped, problems, trusted=True)}
    theirs = {each.name: each for each in _all(own if user else [], problems, trusted=False)}
    return Known(tuple({**ours, **theirs}.values()), frozenset(theirs), tuple(problems))


def read(path: Path) -> tuple[Failure, ...]:
    """The failures in a file, or a Problem that names the file, the line and the key."""
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError:
        changed_ns = 0  # reading it says why
    return _read(path, changed_ns)


def mistakes(path: Path) -> Iterator[Problem]:
    """Patterns that are not regular expressions, and templates that name what no pattern finds."""
    for at, failure in enumerate(read(path)):
        expressions = [("signs", each.pattern) for each in failure.signs] + [("unless", failure.unless)]
        invalid = [(key, why) for key, each in expressions if (why := _invalid(each or ""))]
        yield from (wrong(path, at, failure, key, why) for key, why in invalid)
        if invalid:
            continue
        groups = {name for each in failure.signs for name in each.expression.groupindex}
        for key, text in (("what", failure.what), ("cause", failure.cause), ("fix", failure.fix)):
            for name in {*_GROUP.findall(text)} - groups:
                cause = f"no pattern has a group {name}; there are {', '.join(sorted(groups)) or 'none'}"
                yield wrong(path, at, failure, key, cause)


def wrong(path: Path, at: int, failure: Failure, key: str, cause: str) -> Problem:
    """A Problem with a key of a failure, the one that is number `at` of its file."""
    number = config.line(path.read_text(encoding="utf-8-sig"), ("failure", at, key))
    where = f"{path}:{number}"
    return Problem(f"{where}: '{key}' of {failure.name} is wrong", cause=cause, fix=f"correct {where}")


def _all(paths: Iterable[Path], problems: list[Problem], *, trusted: bool) -> Iterator[Failure]:
    for path in paths:
        try:
            found = read(path)
            if not trusted and (mistake := next(mistakes(path), None)):
                raise mistake
        except Problem as problem:
            problems.append(problem)
        else:
            yield from found


@lru_cache(maxsize=512)
def _read(path: Path, _changed_ns: int) -> tuple[Failure, ...]:
    return config.read(path, File).failure


def _invalid(pattern: str) -> str | None:
    """Why it is not a regular expression."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"{pattern[:200]} is not a regular expression: {error}"
    return None


def _typed(value: str | None) -> str | None:
    """As it may stand in a command that somebody pastes: what a log says is one word there, and no option."""
    if value is None or _SAFE.fullmatch(value):
        return value
    return None if value.startswith("-") else shlex.quote(_LINES.sub(" ", value.strip()))


def _filled(template: str, found: Mapping[str, str | None]) -> str:
    def optional(match: re.Match[str]) -> str:
        return match[1] if all(found.get(name) for name in _GROUP.findall(match[1])) else ""

    kept = _OPTIONAL.sub(optional, template)
    return _GROUP.sub(lambda match: _LINES.sub(" ", (found.get(match[1]) or "?").strip()), kept).strip(" ,;")
