"""Checks of the doctor: the hosts they look at, what they find, and the decorators that make one."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from shlex import join
from typing import Any, Literal, TypeVar

from medley.cluster import ClusterHost
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.health import Health
from medley.host.kind import Kind
from medley.network.fabric.types import Fabric, NetworkOptions
from medley.schema import EngineName
from medley.transcript import Transcript

State = Literal["ok", "better", "wrong", "unknown"]
GROUP = "all"
"""In the place of a host's name, where a check is of the group."""
UNASKED = "not in this transcript; medley facts --transcript records it now"
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
        if self.root and self.words[0] == "medley":  # sudo has a PATH of its own, without a virtualenv's
            return f"sudo $(command -v medley) {join(self.words[1:])}"
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
class Subject:
    """A host by its name, or the group: what a check says something about."""

    name: str

    def ok(self, found: str) -> Check:
        return Check(self.name, "ok", found)

    def unknown(self, why: str) -> Check:
        return Check(self.name, "unknown", why)

    def wrong(self, what: str, *, cause: str, fix: str | Mend) -> Check:
        return self.report("wrong", what, cause=cause, fix=fix)

    def better(self, what: str, *, cause: str, fix: str | Mend) -> Check:
        return self.report("better", what, cause=cause, fix=fix)

    def report(self, state: State, what: str, *, cause: str, fix: str | Mend) -> Check:
        mend = fix if isinstance(fix, Mend) else None
        problem = Problem(what, cause=cause, fix=mend.shown if mend else str(fix))
        return Check(self.name, state, what, problem, mend)

    def failed(self, problem: Problem) -> Check:
        """Report what another part of medley has found."""
        return Check(self.name, "wrong", problem.what, problem)

    def mend(self, *words: str, unasked: tuple[str, ...] = (), root: bool = False) -> Mend:
        return Mend(self.name, words, unasked, root)


ALL = Subject(GROUP)


@dataclass(frozen=True)
class ExaminedHost(Subject):
    facts: Facts
    health: Health = field(default_factory=Health)
    kind: Kind | None = None
    kind_problem: Problem | None = None
    """Why it is of no kind."""
    member: ClusterHost = field(default_factory=ClusterHost)
    """What cluster.toml says of it."""
    greeting: Mapping[str, Any] = field(default_factory=dict)
    """What medley there said of itself; empty for a transcript."""
    answers: Transcript = field(default_factory=dict)
    """What it was examined by."""

    @property
    def gpu_kind(self) -> Kind | None:
        """Its kind, where that has a GPU."""
        return self.kind if self.kind and self.kind.host.device != "cpu" else None

    @property
    def unified(self) -> bool:
        """Whether its GPU has the host's memory."""
        return bool(self.gpu_kind and self.gpu_kind.host.memory.unified)

    @property
    def capability(self) -> str | None:
        """Of its first GPU."""
        for gpu in self.facts.gpus[:1]:
            return gpu.capability or (self.kind.host.capability if self.kind else None)
        return None

    @property
    def pinned(self) -> bool:
        """Whether Nix brings its toolkit, and the loader that its engines run on."""
        return bool(self.health.compilers and self.health.compilers.pinned)


@dataclass(frozen=True)
class Case:
    hosts: Mapping[str, ExaminedHost]
    wishes: NetworkOptions = field(default_factory=NetworkOptions)
    fabric: Fabric | None = None
    apart: Mapping[str, Problem] = field(default_factory=dict)
    """Why the hosts of the group, or some of them, have no wire in common; by host or GROUP."""
    head: str | None = None
    silent: Mapping[str, Problem] = field(default_factory=dict)
    """Hosts that did not answer, or could not be asked."""
    digest: str | None = None
    """Of the text of the medley that asks."""
    engine: EngineName = "vllm"
    closed: Mapping[str, Problem] | None = None
    """By host, what it does not reach of another, or another of it; None where nobody tried."""
    fits: tuple[str, Problem | None] | None = None
    """Of the model that was asked about: how it would lie, or why it cannot."""

    @property
    def group(self) -> bool:
        return len(self.hosts) + len(self.silent) > 1


@dataclass(frozen=True)
class Rule:
    name: str
    looks_at: str
    """In a few words; docs/reference/doctor-checks.md says when it fails, and the fix."""
    look: Callable[[Case], Iterator[Check]]


def case_check(name: str, looks_at: str) -> Callable[[Callable[[Case], Iterator[Check]]], Rule]:
    return lambda look: Rule(name, looks_at, look)


def host_check(name: str, looks_at: str) -> Callable[[Callable[[ExaminedHost], Iterator[Check]]], Rule]:
    """A check of every host by itself."""
    return lambda look: Rule(
        name, looks_at, lambda case: (check for host in case.hosts.values() for check in look(host))
    )


def health_check(
    name: str, looks_at: str, part: Callable[[Health], _Part | None]
) -> Callable[[Callable[[ExaminedHost, _Part], Iterator[Check]]], Rule]:
    """The same about a part of its health, which old transcripts lack."""

    def rule(look: Callable[[ExaminedHost, _Part], Iterator[Check]]) -> Rule:
        def found(case: Case) -> Iterator[Check]:
            for host in case.hosts.values():
                said = part(host.health)
                yield from [host.unknown(UNASKED)] if said is None else look(host, said)

        return Rule(name, looks_at, found)

    return rule
