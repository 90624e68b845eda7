"""Hold what the scan of a log found: known failures, exceptions, the engine and its settings."""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from medley.explain import events
from medley.explain.events import Slip
from medley.explain.lines import LogLine
from medley.explain.patterns import Failure

TAIL = 200


@dataclass(frozen=True)
class Log:
    name: str
    blocks: Iterable[bytes]


@dataclass(frozen=True)
class Hit:
    failure: Failure
    found: Mapping[str, str | None]
    line: LogLine
    number: int
    log: str
    when: tuple[int, int, float] | None
    engine: str | None = None
    """The engine that printed the log."""


@dataclass
class Scanned:
    """The contents of a log since its last start, or since it was ready."""

    name: str
    hits: list[Hit] = field(default_factory=list)
    ready: tuple[int, int, float] | None = None
    """The time when it last became ready."""
    was_ready: bool = False
    stopped: bool = False
    """Whether it was asked to end; later errors are not failures."""
    slips: list[Slip] = field(default_factory=list)
    death: int | None = None
    """The line of the engine's last error."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))
    lines: int = 0
    nccl: str | None = None
    """The version of NCCL that it shows."""
    version: str | None = None
    """The engine and its version, such as vLLM 0.33.0."""
    enabled: list[str] = field(default_factory=list)
    """Optimizations that the engine reports to have switched on by itself."""
    engine: str | None = None
    """The engine that printed it: events.VLLM or events.SGLANG."""
    flags: dict[str, str] = field(default_factory=dict)
    """Flags of the engine that select a component, with what to type for each."""
    driver: str | None = None
    """The version of the NVIDIA driver that it shows."""
    facts: dict[str, str] = field(default_factory=dict)
    """Figures of memory in GiB, and releases of L4T, by the groups of events.TURNS."""
    arguments: str = ""
    """The text in which the engine printed its arguments."""
    starts: list[int] = field(default_factory=list)
    """Lines in which the engine printed its arguments, once a start."""
    told: list[str] = field(default_factory=list)
    """Medley's own lines at its beginning: the plan's reasons and the command."""

    def begin(self, *, ready: bool) -> None:
        """Drop earlier failures."""
        self.hits = [hit for hit in self.hits if hit.failure.also_when_ready and ready]
        self.slips, self.death, self.stopped, self.was_ready = [], None, False, ready

    @property
    def empty(self) -> bool:
        """Whether it has only blank lines."""
        return self.lines <= TAIL and not any(line.strip() for line in self.tail)

    @property
    def reason(self) -> Slip | None:
        """The unknown error that ended it."""
        named = {hit.number for hit in self.hits}
        own = [each for each in self.slips if each.number not in named]
        return events.reason(own, ready=self.was_ready, death=self.death, lines=self.lines)

    def mend(self, names: tuple[str, ...]) -> None:
        over = {hit.number for hit in self.hits if hit.failure.name.startswith(names)}
        self.hits = [hit for hit in self.hits if hit.number not in over]
        self.slips = [each for each in self.slips if each.number not in over]


def unknown_hit(failure: Failure, slip: Slip, scan: Scanned) -> Hit:
    said: dict[str, str | None] = {"kind": slip.kind, "message": shown(slip.said), "log": scan.name}
    said |= {**vars(slip.context), "origin": slip.origin and shown(slip.origin)}
    return Hit(failure, said, slip.line, slip.number, scan.name, slip.when, scan.engine)


def shown(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()[:400]
