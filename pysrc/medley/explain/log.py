"""A log, and what one reading of it shows: known failures, errors in its own words, and how it went."""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from medley.explain import uncaught
from medley.explain.known import Known
from medley.explain.line import Line
from medley.explain.uncaught import Slip

TAIL = 200


@dataclass(frozen=True)
class Log:
    name: str
    blocks: Iterable[bytes]


@dataclass(frozen=True)
class Hit:
    known: Known
    found: Mapping[str, str | None]
    line: Line
    number: int
    log: str
    when: tuple[int, int, float] | None


@dataclass
class Scanned:
    """What a log shows since it last began anew, or was ready."""

    name: str
    hits: list[Hit] = field(default_factory=list)
    ready: tuple[int, int, float] | None = None
    """When it last became ready, where it says so."""
    was_ready: bool = False
    stopped: bool = False
    """It was told to end; what it says after that is no failure."""
    slips: list[Slip] = field(default_factory=list)
    """Errors in its own words, in what it shows."""
    death: int | None = None
    """The line of the engine's last word."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))
    lines: int = 0
    told: list[str] = field(default_factory=list)
    """What medley itself wrote at its beginning: the plan's reasons and the command."""

    def begin(self, *, ready: bool) -> None:
        """What was before is mended, or another story."""
        self.hits = [hit for hit in self.hits if hit.known.stays and ready]
        self.slips, self.death, self.stopped, self.was_ready = [], None, False, ready

    @property
    def empty(self) -> bool:
        """Nothing was written to it, or blank lines alone."""
        return self.lines <= TAIL and not any(line.strip() for line in self.tail)

    @property
    def failed(self) -> bool:
        return self.death is not None or self.reason is not None

    @property
    def reason(self) -> Slip | None:
        """The error that ended it, where no more is known of it than its words."""
        named = {hit.number for hit in self.hits}
        own = [each for each in self.slips if each.number not in named]
        return uncaught.reason(own, ready=self.was_ready, death=self.death, lines=self.lines)

    def mend(self, names: tuple[str, ...]) -> None:
        over = {hit.number for hit in self.hits if hit.known.name.startswith(names)}
        self.hits = [hit for hit in self.hits if hit.number not in over]
        self.slips = [each for each in self.slips if each.number not in over]


def shown(text: str) -> str:
    """A line to show: one line, of a length that fits."""
    return re.sub(r"\s+", " ", text).strip()[:400]
