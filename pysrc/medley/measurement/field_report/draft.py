"""Collect a field report: redact each part, and write the file after each step."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from medley import read_medley_version, transcript
from medley.cluster import self_command
from medley.command import Command
from medley.errors import Problem
from medley.host.redact import HostNames, Redactor, redactor_of_host
from medley.measurement.collective.run import format_now
from medley.measurement.field_report.report import FORMAT, Wishes
from medley.network.fabric.choice import NetworkOptions
from medley.process import Process
from medley.progress import Progress
from medley.transcript import Transcript

_END_LIMIT_S = 60
_MAX_ERROR_CHARS = 2000


@dataclass
class Draft:
    """A field report in progress."""

    write: Callable[[str], None]
    progress: Progress
    redactor: Redactor = field(default_factory=redactor_of_host)
    other_hosts: tuple[HostNames, ...] = ()
    """The names of the other hosts, from host-2 on."""
    report_names: dict[str, str] = field(default_factory=dict)
    """The names in the report, by the real name of each host."""
    answers: dict[str, Transcript] = field(default_factory=dict)
    """The redacted transcripts, by the names in the report."""
    wishes: Wishes = field(default_factory=Wishes)
    parts: dict[str, Any] = field(
        default_factory=lambda: {
            "format": FORMAT,
            "whole": False,
            "when": format_now(),
            "medley": {"version": read_medley_version(), "source": self_command.compute_source_digest()},
            **{name: [] for name in ("hosts", "links", "models", "skipped")},
            **dict.fromkeys(("fabric", "collective", "doctor")),
        }
    )

    def describe(
        self,
        hosts: Mapping[str, tuple[Transcript, str | None]],
        other_hosts: Mapping[str, HostNames],
        users: Iterable[str],
        wishes: NetworkOptions,
    ) -> None:
        """Add the hosts, this one first, with transcripts and kinds; `other_hosts` has all their names."""
        self.other_hosts = tuple(other_hosts.values())
        local_names = [name for name in hosts if name not in other_hosts]
        self.redactor = redactor_of_host(self.other_hosts, users, local_names)
        for number, (name, (answers, kind)) in enumerate(hosts.items(), 1):
            report_name = self.report_names[name] = f"host-{number}"
            redacted = self.answers[report_name] = self.redactor.transcript(answers)
            row = {"name": report_name, "kind": kind, "transcript": transcript.format_transcript(redacted)}
            self.parts["hosts"].append(row)
        links = {self.report_names[name]: link for name in hosts if (link := wishes.find_link(name))}
        self.wishes = Wishes(link=links, exclude=tuple(sorted(wishes.exclude)))
        self.parts["wishes"] = self.wishes.to_table()

    def redact(self, value: object) -> Any:  # noqa: ANN401 - JSON
        return self.redactor.table(json.loads(json.dumps(value)))

    def save(self) -> None:
        if self.parts["hosts"]:
            self.write(json.dumps(self.parts, indent=1))

    def skip(self, step: str, reason: object) -> None:
        """Note that a step is left out, and why."""
        row = {"step": self.redactor.text(step), "why": self.redactor.text(str(reason))}
        self.parts["skipped"].append(row)
        self.progress.note(f"left out: {step}: {str(reason).partition(chr(10))[0]}")

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Run a step; note its Problem if it fails, and write the file in either case."""
        try:
            yield
        except Problem as problem:
            self.skip(name, problem)
        self.save()


def run_verb(
    arguments: tuple[str, ...], limit_s: float, progress: Progress, accepted_codes: tuple[int, ...] = (0,)
) -> tuple[str, ...]:
    """Run a verb of medley and return the lines of its output, or raise a Problem with its error."""
    output: list[str] = []
    with progress.stage(f"medley {' '.join(arguments)}"):
        child = Process(Command((*self_command.get_own_command(), *arguments)), output.append, progress.line)
        try:
            finished = child.wait(limit_s)
        finally:
            child.stop(_END_LIMIT_S)
    if finished is None or finished.status not in accepted_codes:
        error = "\n".join(child.last_lines)[-_MAX_ERROR_CHARS:]
        cause = error if finished else f"it took more than {limit_s:.0f} s"
        raise Problem(f"medley {arguments[0]} failed", cause=cause, fix=f"medley {' '.join(arguments)}")
    return tuple(output)
