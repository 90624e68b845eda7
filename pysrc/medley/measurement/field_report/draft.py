"""A field report while it is made: each part redacted as it comes, and the file written after each step."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from medley import own_version, transcript
from medley.cluster import self_command
from medley.command import Command
from medley.errors import Problem
from medley.host.redact import HostNames, Redactor, redactor_of_host
from medley.measurement.collective.run import now
from medley.measurement.field_report import FORMAT, Wishes
from medley.network.fabric.types import NetworkOptions
from medley.process import Process
from medley.progress import Progress
from medley.transcript import Transcript

_END_LIMIT_S = 60
_MOST_LETTERS = 2000


@dataclass
class Draft:
    write: Callable[[str], None]
    progress: Progress
    redactor: Redactor = field(default_factory=redactor_of_host)
    others: tuple[HostNames, ...] = ()
    """The names of the other hosts, from host-2 on."""
    called: dict[str, str] = field(default_factory=dict)
    """By a host's own name, that in the report."""
    answers: dict[str, Transcript] = field(default_factory=dict)
    """Redacted, by the names in the report."""
    wishes: Wishes = field(default_factory=Wishes)
    parts: dict[str, Any] = field(
        default_factory=lambda: {
            "format": FORMAT,
            "whole": False,
            "when": now(),
            "medley": {"version": own_version(), "source": self_command.source_digest()},
            **{name: [] for name in ("hosts", "links", "models", "skipped")},
            **dict.fromkeys(("fabric", "collective", "doctor")),
        }
    )

    def describe(
        self,
        hosts: Mapping[str, tuple[Transcript, str | None]],
        others: Mapping[str, HostNames],
        users: Iterable[str],
        wishes: NetworkOptions,
    ) -> None:
        """Take the hosts, this one first, with answers and kinds; `others`: all names of the other ones."""
        self.others = tuple(others.values())
        self.redactor = redactor_of_host(self.others, users, [name for name in hosts if name not in others])
        for nth, (name, (answers, kind)) in enumerate(hosts.items(), 1):
            called = self.called[name] = f"host-{nth}"
            told = self.answers[called] = self.redactor.transcript(answers)
            self.parts["hosts"].append({"name": called, "kind": kind, "transcript": transcript.text(told)})
        links = {self.called[name]: link for name in hosts if (link := wishes.link_of(name))}
        self.wishes = Wishes(link=links, exclude=tuple(sorted(wishes.exclude)))
        self.parts["wishes"] = self.wishes.model_dump(mode="json")

    def clean(self, value: object) -> Any:  # noqa: ANN401 - JSON
        return self.redactor.table(json.loads(json.dumps(value)))

    def save(self) -> None:
        if self.parts["hosts"]:
            self.write(json.dumps(self.parts, indent=1))

    def skip(self, step: str, why: object) -> None:
        self.parts["skipped"].append({"step": self.redactor.text(step), "why": self.redactor.text(str(why))})
        self.progress.note(f"left out: {step}: {str(why).partition(chr(10))[0]}")

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Note why it failed, where it did, and go on; what it found is kept."""
        try:
            yield
        except Problem as problem:
            self.skip(name, problem)
        self.save()


def verb(
    words: tuple[str, ...], limit_s: float, progress: Progress, fine: tuple[int, ...] = (0,)
) -> tuple[str, ...]:
    """Run a verb of medley's; its lines, or a Problem with its own words where it fails."""
    said: list[str] = []
    with progress.stage(f"medley {' '.join(words)}"):
        child = Process(Command((*self_command.own_command(), *words)), said.append, progress.line)
        try:
            finished = child.wait(limit_s)
        finally:
            child.stop(_END_LIMIT_S)
    if finished is None or finished.status not in fine:
        why = "\n".join(child.last)[-_MOST_LETTERS:] if finished else f"it took more than {limit_s:.0f} s"
        raise Problem(f"medley {words[0]} failed", cause=why, fix=f"medley {' '.join(words)}")
    return tuple(said)
