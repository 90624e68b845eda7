"""A unit is a command that a host keeps running, whoever is logged in: systemd's, or medley's own keeper's."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from medley.command import Command


@dataclass(frozen=True)
class Restart:
    """What becomes of it when it ends by itself: it starts anew after `first_s`, then each time later.

    After `limit` starts anew none of which lasted `lasting_s` it is left to lie, for it will not mend itself.
    """

    first_s: float = 2
    longest_s: float = 60
    limit: int = 10
    lasting_s: float = 120
    always: bool = False
    """Also where it ended well."""

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
    stop_limit_s: float = 30
    undo: tuple[str, ...] = field(default=())
    """What is run once it has ended, however that was: it ends what is left of it."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        table: dict[str, Any] = json.loads(text)
        restart = Restart(**table["restart"]) if table["restart"] else None
        return cls(
            **{
                **table,
                "command": _command(table["command"]),
                "restart": restart,
                "undo": tuple(table["undo"]),
            }
        )


def _command(table: Mapping[str, Any]) -> Command:
    return Command(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    )
