"""A unit is a command that a host keeps running, whoever is logged in, by systemd or medley's own keeper."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from medley.command import Command


@dataclass(frozen=True)
class Restart:
    """What becomes of it when it ends by itself: it starts anew after `first_s`, then each time later.

    After `limit` starts anew in a row, none of which lasted `lasting_s`, it is left to lie; None: never.
    """

    first_s: float = 2
    longest_s: float = 60
    limit: int | None = None
    lasting_s: float = 120

    def waits_s(self, done: int) -> float:
        """How long to wait after `done` starts anew in a row: twice as long each time."""
        return float(min(self.longest_s, self.first_s * 2 ** min(done, 30)))


@dataclass(frozen=True)
class Unit:
    name: str
    """`medley-ray`, `medley-serve-8000`: a file's name, and systemd's."""
    title: str
    command: Command
    restart: Restart | None = None
    """None: it runs once."""
    after: Command | None = None
    """What is run each time it has started, and waits by itself until that is up."""
    stop_limit_s: float = 30
    vital: tuple[str, ...] = ()
    """Names of processes below it: once one of these has started, the unit ends with it."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        table: dict[str, Any] = json.loads(text)
        restart = Restart(**table["restart"]) if table["restart"] else None
        after = _command(table["after"]) if table["after"] else None
        more = {"command": _command(table["command"]), "restart": restart, "after": after}
        return cls(**{**table, **more, "vital": tuple(table.get("vital", ()))})


def _command(table: Mapping[str, Any]) -> Command:
    lists = {name: tuple(value) for name, value in table.items() if isinstance(value, list)}
    return Command(**{**table, **lists})
