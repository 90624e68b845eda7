"""The shapes of an examination: the case that is looked at, its checks, and what would mend them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from shlex import join
from typing import Any, Literal, TypeVar

from medley.cluster import Member
from medley.condition import Condition
from medley.fabric import Fabric, Wishes
from medley.facts import Facts
from medley.kind import Kind
from medley.problem import Problem
from medley.tables import Engine

State = Literal["ok", "better", "wrong", "unknown"]
STATES: Mapping[State, str] = {
    "ok": "ok",
    "better": "better otherwise",
    "wrong": "wrong",
    "unknown": "not known",
}
GROUP = "all"
"""In the place of a host's name, where a check is of the group."""
UNASKED = "it was not asked there; medley facts --transcript asks it now"
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class Mend:
    """What `--fix` may do: safe, and shown before it is done."""

    host: str
    words: tuple[str, ...]
    """A command, or a verb of medley's after `medley`."""
    unasked: tuple[str, ...] = ()
    """More words where it is done without being asked, as --yes."""
    root: bool = False

    @property
    def shown(self) -> str:
        return f"{'sudo ' if self.root else ''}{join(self.words)}"


@dataclass(frozen=True)
class Check:
    """What was found on one host; whatever is not well has a Problem with what to type."""

    host: str
    state: State
    found: str
    problem: Problem | None = None
    mend: Mend | None = None


@dataclass(frozen=True)
class Host:
    """One host as it was looked at."""

    name: str
    facts: Facts
    condition: Condition = field(default_factory=Condition)
    kind: Kind | None = None
    trouble: Problem | None = None
    """Why it is of no kind."""
    member: Member = field(default_factory=Member)
    """What cluster.toml says of it."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """What medley there said of itself; empty for a transcript."""

    @property
    def unified(self) -> bool:
        """Whether its GPU has the host's memory."""
        return bool(self.kind and self.kind.host.memory.unified and self.kind.host.device != "cpu")


@dataclass(frozen=True)
class Case:
    hosts: Mapping[str, Host]
    wishes: Wishes = field(default_factory=Wishes)
    fabric: Fabric | None = None
    apart: Mapping[str, Problem] = field(default_factory=dict)
    """Why the hosts of the group, or some of them, have no wire in common; by host or GROUP."""
    head: str | None = None
    silent: Mapping[str, Problem] = field(default_factory=dict)
    """Hosts that did not answer, or could not be asked."""
    digest: str | None = None
    """Of the text of the medley that asks."""
    engine: Engine = "vllm"
    closed: Mapping[str, Problem] | None = None
    """By host, what it does not reach of another, or another of it; None where nobody tried."""
    fits: tuple[str, Problem | None] | None = None
    """Of the model that was asked about: how it would lie, or why it cannot."""

    @property
    def group(self) -> bool:
        return len(self.hosts) + len(self.silent) > 1


Look = Callable[[Case], Iterator[Check]]


@dataclass(frozen=True)
class Rule:
    name: str
    looks_at: str
    """In a few words: what a line of the doctor's is about."""
    wrong_when: str
    mends: str
    look: Look
    complaints: tuple[int, ...] = ()
    """Those about other tools that it answers, by number: `complaints` says what each is."""


def each(look: Callable[[Host], Iterable[Check]]) -> Look:
    """A rule about every host by itself."""

    def found(case: Case) -> Iterator[Check]:
        for host in case.hosts.values():
            yield from look(host)

    return found


def asked(part: Callable[[Condition], _Part | None], look: Callable[[Host, _Part], Iterable[Check]]) -> Look:
    """The same about a part of its condition, which old transcripts lack."""

    def found(case: Case) -> Iterator[Check]:
        for host in case.hosts.values():
            said = part(host.condition)
            yield from [unknown(host.name, UNASKED)] if said is None else look(host, said)

    return found


def ok(host: str, found: str) -> Check:
    return Check(host, "ok", found)


def unknown(host: str, why: str) -> Check:
    return Check(host, "unknown", why)


def wrong(host: str, what: str, *, cause: str, fix: str) -> Check:
    return Check(host, "wrong", what, Problem(what, cause=cause, fix=fix))


def better(host: str, what: str, *, cause: str, fix: str) -> Check:
    return Check(host, "better", what, Problem(what, cause=cause, fix=fix))


def told(host: str, state: State, problem: Problem) -> Check:
    """What another part of medley has found."""
    return Check(host, state, problem.what, problem)


def mended(check: Check, mend: Mend) -> Check:
    """With what `--fix` may do, which is then what its Problem says to type."""
    was = check.problem
    assert was is not None  # noqa: S101 - for the type; only what is not well is mended
    return replace(check, mend=mend, problem=Problem(was.what, cause=was.cause, fix=mend.shown))
