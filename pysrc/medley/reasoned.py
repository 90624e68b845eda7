"""A reasoned command is a command with the reason for every part of it, as `--dry-run` prints it."""

from collections.abc import Iterable
from dataclasses import dataclass

from medley.command import Command
from medley.variables import UNSET, Variable


@dataclass(frozen=True)
class Flag:
    """A flag we give a program, all its spellings first, and why."""

    names: tuple[str, ...]
    value: str | None
    why: str

    def argv(self) -> tuple[str, ...]:
        return (self.names[0],) if self.value is None else (self.names[0], self.value)


@dataclass(frozen=True)
class Reasoned:
    """A program with flags and variables of ours, and the user's own words after them."""

    words: tuple[str, ...]
    """The program, and what stands before every flag."""
    flags: tuple[Flag, ...]
    variables: tuple[Variable, ...]
    extra: tuple[str, ...] = ()

    @property
    def command(self) -> Command:
        flags = (word for flag in self.flags for word in flag.argv())
        env = {each.name: each.value for each in self.variables if not each.secret}
        secrets = {each.name: each.value for each in self.variables if each.secret}
        return Command((*self.words, *flags, *self.extra), env, UNSET, secrets)

    def why(self) -> list[tuple[str, str]]:
        """Each part and its reason, in the order of the command."""
        return [
            *((f"{each.name}={_short(each.value)}", each.why) for each in self.variables),
            *((" ".join(flag.argv()), flag.why) for flag in self.flags),
        ]


def merged(found: Iterable[Variable]) -> tuple[Variable, ...]:
    """The last of each name wins."""
    return tuple({each.name: each for each in found}.values())


def _short(value: str, limit: int = 60) -> str:
    return value if len(value) <= limit else value[: limit - 1] + "…"
