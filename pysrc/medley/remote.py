"""A remote is medley at work on a host of the cluster, this one too: it is asked, and answers."""

import json
import time
from collections.abc import Callable, Mapping
from queue import Empty, Queue
from typing import Any, Self

from medley import machine, own, shaped, ssh
from medley.command import Command
from medley.errand_answers import Greeting, Refusal, misunderstood, require
from medley.problem import Problem

GREETING_LIMIT_S = 20
_END_LIMIT_S = 5
Note = Callable[[str], None]


class Lost(Problem):
    """The connection to it is gone."""


class Silent(Problem):
    """It is there, and has not answered yet."""


class Remote:
    """A connection; everything that it has begun for itself ends with it, units go on."""

    def __init__(self, name: str, target: str, command: Command) -> None:
        self.name, self._target = name, target
        self._lines: Queue[str | None] = Queue()
        self._said: list[str] = []
        self._process = machine.Process(command, self._lines.put, self._said.append, heard=True)
        self.greeting: Mapping[str, Any] = {}
        self.clock_ahead_s = 0.0
        """Its clock less ours, to about the time that a message takes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def greeted(self, limit_s: float = GREETING_LIMIT_S) -> Mapping[str, Any]:
        """What it says of itself first; a Problem where nobody speaks for medley in time."""
        deadline = time.monotonic() + limit_s
        while not self.greeting:
            line = self._line(deadline)
            if line is None:
                raise ssh.problem(self.name, self._target, self._said, self._status())
            said = _table(line)
            if said and "medley" in said:
                if not shaped.fits(said, Greeting):
                    raise misunderstood(self.name, "who are you")
                self.greeting = said
                self.clock_ahead_s = said["epoch_s"] - time.time()
        return self.greeting

    def ask(
        self, errand: str, asked: Mapping[str, Any], limit_s: float, note: Note = lambda _: None
    ) -> Mapping[str, Any]:
        """What the errand gives there; its Problem with the host's name, or that it is lost."""
        self._process.say(json.dumps({"do": errand, "with": asked}))
        deadline = time.monotonic() + limit_s
        while True:
            line = self._line(deadline)
            if line is None:
                raise self._silent(errand, limit_s)
            said = _table(line) or {}
            match said:
                case {"note": text}:
                    note(str(text))
                case {"problem": refusal}:
                    if not shaped.fits(refusal, Refusal):
                        raise misunderstood(self.name, errand)
                    raise Problem(
                        f"{self.name}: {refusal['what']}", cause=refusal["cause"], fix=refusal["fix"]
                    )
                case {"said": answer}:
                    return require(self.name, errand, asked, answer)
                case _:  # a word of a later medley
                    pass

    def hang_up(self) -> None:
        """It ends by itself then."""
        self._process.hang_up()

    def abandon(self) -> None:
        """Who waits for an answer of it learns at once that it is lost."""
        self._process.interrupt()

    def close(self, limit_s: float = _END_LIMIT_S) -> None:
        self.hang_up()
        self._process.wait(limit_s)
        self._process.stop(grace_s=1)

    def _line(self, deadline: float) -> str | None:
        while time.monotonic() < deadline:
            try:
                return self._lines.get(timeout=0.05)
            except Empty:
                if self._process.poll() and self._lines.empty():
                    return None
        return None

    def _status(self) -> int | None:
        finished = self._process.poll()
        return finished.status if finished else None

    def _silent(self, errand: str, limit_s: float) -> Problem:
        if self._status() is None:
            return Silent(
                f"{self.name} did not answer in time",
                cause=f"it was at {errand!r} for more than {limit_s:.0f} s",
                fix=f"see what it does: ssh {self._target}; or go on without it: --without {self.name}",
            )
        return Lost(
            f"the connection to {self.name} is gone",
            cause=(self._said or ["ssh said nothing"])[-1],
            fix="see that it is on and wired, then the same again: what is done already is kept",
        )


def _table(line: str) -> dict[str, Any] | None:
    """What a login shell prints of its own is no message."""
    return shaped.table(line) if line.startswith("{") else None


def here(name: str) -> Remote:
    return Remote(name, name, Command((*own.command(), "agent")))


def there(name: str, target: str, program: tuple[str, ...] | None) -> Remote:
    """By ssh; `program` is what medley is there, where it is neither on PATH nor where ours is."""
    programs = (program,) if program else (own.command(), ("medley",))
    return Remote(name, target, ssh.command(target, programs, ("agent",)))
