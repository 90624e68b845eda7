"""An engine serves a model over HTTP; each module here says how one of them is told to, and how it fails."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from medley.plan import Plan
from medley.reasoned import Flag, Reasoned, merged
from medley.tables import Host, Model
from medley.variables import Variable

GUARD = Path(__file__).parents[1] / "inside" / "api_guard.py"


@dataclass(frozen=True)
class Serving:
    """What an engine is asked to serve: where the weights are, under which name, at which address."""

    target: str
    name: str
    address: str = "127.0.0.1"
    port: int = 8000
    key: Path | None = None
    """The file of the key that requests must give."""
    key_config: Path | None = None
    """The same as an engine's configuration, for SGLang, which knows no other way that nobody else sees."""


class Engine(Protocol):
    """What the modules vllm and sglang answer, and nothing more."""

    TITLE: str
    """Its name as its makers write it."""
    PROGRAM: str
    """In the folder of its environment's programs."""
    HELP: tuple[str, ...]
    """What to type after it for all flags of its server."""

    def words(self, binary: Path, serving: Serving, plan: Plan, /) -> tuple[str, ...]:
        """Its command, before any flag."""
        ...

    def variables(self, serving: Serving, plan: Plan, host: Host, /) -> Iterator[Variable]:
        """What it is told by its environment."""
        ...

    def flags(self, serving: Serving, plan: Plan, host: Host, model: Model | None, /) -> Iterator[Flag]:
        """Everything that its flags tell it, each with its reason."""
        ...

    def fatal(self, line: str, /) -> bool:
        """Whether a line of its output says that it is lost, though its process goes on."""
        ...

    def last_error(self, lines: Sequence[str], /) -> str | None:
        """The last error in its output that gives a reason; None where there is none."""
        ...


def guarded(made: Reasoned, serving: Serving, python: str) -> Reasoned:
    """The same command behind the filter of `inside/api_guard.py`; a program of ours installs that itself."""
    program, *rest = (Path(made.words[0]).name, *made.words[1:])
    words = made.words if program == "python" else (python, str(GUARD), program, *rest)
    return replace(made, words=words, variables=merged((*made.variables, *_guard(serving))))


def _guard(serving: Serving) -> Iterator[Variable]:
    yield Variable(
        "MEDLEY_GUARD", serving.address, "who reaches this address gives the key, or is of this host"
    )
    if serving.key:
        why = "requests must give this key; as a flag every user of this host could read it"
        yield Variable("MEDLEY_GUARD_KEY", str(serving.key), why, secret=True)


def last_reason(
    lines: Iterable[str], prefix: re.Pattern[str], error: re.Pattern[str], empty: Iterable[str]
) -> str | None:
    """The last line that is an error once its prefix is gone, if there is one that says more than `empty`."""
    bare = (prefix.sub("", line).strip() for line in lines)
    errors = [line for line in bare if error.match(line)]
    reasons = [line for line in errors if not any(each in line for each in empty)]
    return next(reversed(reasons or errors), None)


def chosen(ours: Iterable[Flag], theirs: tuple[str, ...]) -> Iterator[Flag]:
    """Our flags, less those that the user gives in any spelling: what is typed wins."""
    given = {word.partition("=")[0] for word in theirs}
    return (flag for flag in ours if not given.intersection(flag.names))


def needed(plan: Plan) -> Iterator[Flag]:
    """What the kinds of its hosts need."""
    for words, why in plan.arguments:
        yield from pairs(words, why)


def pairs(words: tuple[str, ...], why: str = "its table in models/ says so") -> Iterator[Flag]:
    """A table's flags, `--name value` or `--name` alone."""
    at = 0
    while at < len(words):
        has_value = at + 1 < len(words) and not words[at + 1].startswith("-")
        yield Flag((words[at],), words[at + 1] if has_value else None, why)
        at += 2 if has_value else 1
