"""Define what doctor checks examine, what they report, and the decorators that turn functions into rules."""

from collections.abc import Callable, Iterator, Mapping
from shlex import join
from typing import Any, Literal, TypeVar

from msgspec import field

from medley.cluster.cluster_file import ClusterHost
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.health import Health
from medley.host.kind import Kind
from medley.network.fabric.choice import Fabric, NetworkOptions
from medley.schema import (
    DEFAULT_ENGINE,
    EngineName,
)
from medley.transcript import Transcript
from medley.values import Value

State = Literal["ok", "better", "wrong", "unknown"]
ALL_HOSTS_NAME = "all"
"""The host name of a check that concerns the whole group."""
NOT_RECORDED = "not in this transcript; medley facts --transcript records it now"
_Part = TypeVar("_Part")


class Fix(Value):
    """A safe change that `doctor --fix` prints, and then makes on its host."""

    host: str
    arguments: tuple[str, ...]
    """The command line; if it begins with `medley`, medley's own program runs it."""
    consent_arguments: tuple[str, ...] = ()
    """Arguments appended when the user has agreed, as `--yes`."""
    needs_root: bool = False

    @property
    def command_text(self) -> str:
        """The command to paste into a shell; `medley` by its path, because sudo's PATH has no virtualenv."""
        if self.needs_root and self.arguments[0] == "medley":
            return f"sudo $(command -v medley) {join(self.arguments[1:])}"
        return f"{'sudo ' if self.needs_root else ''}{join(self.arguments)}"


class Check(Value):
    """One result for a host or the group; `better` and `wrong` come with a Problem that has the fix."""

    host: str
    state: State
    summary: str
    problem: Problem | None = None
    fix: Fix | None = None


class Subject(Value):
    """The host, or ALL_HOSTS_NAME, that a check reports about."""

    name: str

    def report_ok(self, summary: str) -> Check:
        return Check(self.name, "ok", summary)

    def report_unknown(self, reason: str) -> Check:
        return Check(self.name, "unknown", reason)

    def report_wrong(self, title: str, *, cause: str, fix: str | Fix) -> Check:
        return self.report("wrong", title, cause=cause, fix=fix)

    def report_improvable(self, title: str, *, cause: str, fix: str | Fix) -> Check:
        return self.report("better", title, cause=cause, fix=fix)

    def report(self, state: State, title: str, *, cause: str, fix: str | Fix) -> Check:
        if isinstance(fix, Fix):
            return Check(self.name, state, title, Problem(title, cause=cause, fix=fix.command_text), fix)
        return Check(self.name, state, title, Problem(title, cause=cause, fix=fix))

    def report_problem(self, problem: Problem) -> Check:
        """Report a Problem that another part of medley raised or returned."""
        return Check(self.name, "wrong", problem.what, problem)

    def build_fix(
        self, *arguments: str, consent_arguments: tuple[str, ...] = (), needs_root: bool = False
    ) -> Fix:
        return Fix(self.name, arguments, consent_arguments, needs_root)


ALL_HOSTS = Subject(ALL_HOSTS_NAME)


class ExaminedHost(Subject):
    facts: Facts
    health: Health = field(default_factory=Health)
    kind: Kind | None = None
    kind_problem: Problem | None = None
    """Why no kind could be recognised."""
    member: ClusterHost = field(default_factory=ClusterHost)
    """Its settings in cluster.toml."""
    greeting: Mapping[str, Any] = field(default_factory=dict)
    """The greeting of the agent on that host; empty for a transcript."""
    answers: Transcript = field(default_factory=dict)
    """The transcript that facts and health were read from."""

    @property
    def gpu_kind(self) -> Kind | None:
        """The kind of the host, if hosts of that kind have a GPU; else None."""
        return self.kind if self.kind and self.kind.table.device != "cpu" else None

    @property
    def has_unified_memory(self) -> bool:
        """Whether GPU and host share one memory."""
        return bool(self.gpu_kind and self.gpu_kind.table.memory.unified)

    @property
    def capability(self) -> str | None:
        """The compute capability of the first GPU, as `12.1`."""
        for gpu in self.facts.gpus[:1]:
            return gpu.capability or (self.kind.table.capability if self.kind else None)
        return None

    @property
    def has_nix_toolkit(self) -> bool:
        """Whether Nix provides the host's CUDA toolkit and the loader that its engines use."""
        return bool(self.health.compilers and self.health.compilers.is_from_nix)


class Examination(Value):
    """Everything that the checks read: the hosts of a group, their network, and the connections tried."""

    hosts: Mapping[str, ExaminedHost]
    network_options: NetworkOptions = field(default_factory=NetworkOptions)
    fabric: Fabric | None = None
    network_problems: Mapping[str, Problem] = field(default_factory=dict)
    """Why the hosts, or some of them, share no network; by host, or ALL_HOSTS_NAME."""
    head: str | None = None
    silent_hosts: Mapping[str, Problem] = field(default_factory=dict)
    """Hosts that did not answer or could not be reached, with the reason."""
    digest: str | None = None
    """The digest of the source text of the medley that runs the doctor."""
    engine: EngineName = DEFAULT_ENGINE
    connection_problems: Mapping[str, Problem] | None = None
    """The connections that failed, by either of their hosts; None if none was tried."""
    model_fit: tuple[str, Problem | None] | None = None
    """The layout of the requested model, or why the model does not fit."""

    @property
    def has_several_hosts(self) -> bool:
        return len(self.hosts) + len(self.silent_hosts) > 1


class Rule(Value):
    """A named check of an examination; docs/reference/doctor-checks.md says when it fails, and the fix."""

    name: str
    topic: str
    """Its subject in a few words, as `clock difference`."""
    run: Callable[[Examination], Iterator[Check]]


def all_hosts_check(name: str, topic: str) -> Callable[[Callable[[Examination], Iterator[Check]]], Rule]:
    """Turn a function that examines all hosts together into a Rule."""
    return lambda examine: Rule(name, topic, examine)


def host_check(name: str, topic: str) -> Callable[[Callable[[ExaminedHost], Iterator[Check]]], Rule]:
    """Turn a function that examines one host into a Rule over all hosts."""
    return lambda examine: Rule(
        name,
        topic,
        lambda examination: (check for host in examination.hosts.values() for check in examine(host)),
    )


def health_check(
    name: str, topic: str, get_part: Callable[[Health], _Part | None]
) -> Callable[[Callable[[ExaminedHost, _Part], Iterator[Check]]], Rule]:
    """Turn a function that examines a part of a host's health into a Rule; old transcripts lack the part."""

    def build_rule(examine: Callable[[ExaminedHost, _Part], Iterator[Check]]) -> Rule:
        def run(examination: Examination) -> Iterator[Check]:
            for host in examination.hosts.values():
                part = get_part(host.health)
                yield from [host.report_unknown(NOT_RECORDED)] if part is None else examine(host, part)

        return Rule(name, topic, run)

    return build_rule
