"""Read the known failures: how a log shows each, and how to fix it.

They are in failures/*.toml of the repository, one file per program or subject, and in the user's
~/.config/medley/failures, whose failures replace medley's of the same name.
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
# A scan removes these characters from a line to find its kind, so a needle needs others.
VARYING = "0123456789abcdef"
_SHORTEST = 3
_OPTIONAL = re.compile(r"\[([^\[\]]*\{\w+\}[^\[\]]*)\]")
_GROUP = re.compile(r"\{(\w+)\}")
# Not an option, except one without a value.
_SAFE = re.compile(r"(?:~/)?[\w@%+=:,./][\w@%+=:,./-]*|--[a-z][a-z0-9-]*")
_LINES = re.compile(r"\s*\n\s*")
_Text = Annotated[str, Field(max_length=1000)]


class Sign(StrictTable):
    """One wording of a failure, because versions of a program differ."""

    needle: str
    """Text in every such line, for a fast first search."""
    pattern: Annotated[str, Field(max_length=2000)] | None = None
    """A regular expression for the line without its prefix [default: the needle]."""

    @field_validator("needle")
    @classmethod
    def _is_selective(cls, needle: str) -> str:
        if len(needle.translate(str.maketrans("", "", VARYING))) < _SHORTEST:
            raise ValueError(f"it needs {_SHORTEST} characters that are neither digits nor a to f")
        return needle

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """The pattern, compiled when a line first has the needle."""
        return re.compile(re.escape(self.needle) if self.pattern is None else self.pattern)


class Failure(StrictTable):
    """A known failure; in its texts {group} is a match, and [… {group} …] is omitted without it."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)]
    what: _Text
    cause: _Text
    fix: _Text
    signs: Annotated[tuple[Sign, ...], Field(min_length=1)]
    confidence: Confidence = "high"
    symptom: bool = False
    """Whether it follows from another failure, which is reported instead if known."""
    any_level: bool = False
    """Whether it counts in lines of level INFO and WARNING too."""
    in_source: bool = False
    """Whether it counts in lines of source code of a traceback too."""
    lines_after: Annotated[int, Field(ge=0, le=30)] = 0
    """Number of lines after the first that are searched too."""
    unless: Annotated[str, Field(max_length=2000)] | None = None
    """A regular expression that marks such lines as harmless."""
    over: tuple[str, ...] = ()
    """Names of less precise failures that it replaces."""
    also_when_ready: bool = False
    """Whether it counts after a server became ready."""
    ends: bool = False
    """Whether it is the engine's last error, after an earlier one with the reason."""
    minimum: Annotated[int, Field(ge=1)] = 1
    """Fewer matching lines are not a failure."""
    hint: bool = False
    """Whether it only explains another failure."""
    during_shutdown: bool = False
    """Whether programs print it when they are stopped before they are ready."""
    examples: tuple[str, ...] = ()
    """Logs that show it."""
    look_alikes: tuple[str, ...] = ()
    """Similar logs that do not show it."""

    @cached_property
    def harmless(self) -> re.Pattern[str] | None:
        return None if self.unless is None else re.compile(self.unless)

    def told(self, found: Mapping[str, str | None]) -> tuple[str, str, str]:
        what, cause = (_filled(text, found) for text in (self.what, self.cause))
        return what, cause, _filled(self.fix, {name: _typed(value) for name, value in found.items()})


class File(StrictTable):
    """A file of known failures: failures/SUBJECT.toml."""

    failure: tuple[Failure, ...]


@dataclass(frozen=True)
class Known:
    """All known failures; `user`: names of the user's own."""

    failures: tuple[Failure, ...]
    user: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()


def sign(needle: str, pattern: str | None = None) -> Sign:
    return Sign(needle=needle, pattern=pattern)


def files() -> tuple[list[Path], list[Path]]:
    """Return the user's files, and medley's: of the source tree or the installed package."""
    own, *shipped = (sorted((folder / "failures").glob("*.toml")) for folder in config.folders())
    return own, next(filter(None, shipped), [])


def load(*, user: bool = True) -> Known:
    """Read all files, without invalid ones; without `user`, only medley's."""
    own, shipped = files()
    problems: list[Problem] = []
    ours = {each.name: each for each in _all(shipped, problems, trusted=True)}
    theirs = {each.name: each for each in _all(own if user else [], problems, trusted=False)}
    return Known(tuple({**ours, **theirs}.values()), frozenset(theirs), tuple(problems))


def read(path: Path) -> tuple[Failure, ...]:
    """Read the failures of a file; a Problem names file, line and key."""
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError:
        changed_ns = 0  # _read reports why
    return _read(path, changed_ns)


def mistakes(path: Path) -> Iterator[Problem]:
    """Yield invalid patterns, and templates with unknown groups."""
    for at, failure in enumerate(read(path)):
        expressions = [("signs", each.pattern) for each in failure.signs] + [("unless", failure.unless)]
        invalid = [(key, why) for key, each in expressions if (why := _invalid(each or ""))]
        yield from (wrong(path, at, failure, key, why) for key, why in invalid)
        if invalid:
            continue
        groups = {name for each in failure.signs for name in each.expression.groupindex}
        for key, text in (("what", failure.what), ("cause", failure.cause), ("fix", failure.fix)):
            for name in {*_GROUP.findall(text)} - groups:
                cause = f"no pattern has a group {name}; the groups are {', '.join(sorted(groups)) or 'none'}"
                yield wrong(path, at, failure, key, cause)


def wrong(path: Path, at: int, failure: Failure, key: str, cause: str) -> Problem:
    """Make a Problem of a key of the failure with number `at` in its file."""
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
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"{pattern[:200]} is not a regular expression: {error}"
    return None


def _typed(value: str | None) -> str | None:
    """Quote text of a log for a command to paste: one word, and not an option."""
    if value is None or _SAFE.fullmatch(value):
        return value
    return None if value.startswith("-") else shlex.quote(_LINES.sub(" ", value.strip()))


def _filled(template: str, found: Mapping[str, str | None]) -> str:
    def optional(match: re.Match[str]) -> str:
        return match[1] if all(found.get(name) for name in _GROUP.findall(match[1])) else ""

    kept = _OPTIONAL.sub(optional, template)
    return _GROUP.sub(lambda match: _LINES.sub(" ", (found.get(match[1]) or "?").strip()), kept).strip(" ,;")
