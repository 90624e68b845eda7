"""A command is a value: made by pure code, printed for people, run by `machine`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from shlex import join, quote


@dataclass(frozen=True)
class Command:
    """A program's argv, the variables added to the caller's environment, and those taken from it."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Exactly what to paste into a shell.

        With variables to take away it goes through env(1), which is the only way to say that in one line.
        """
        assignments = [f"{name}={quote(value)}" for name, value in sorted(self.env.items())]
        if self.unset:
            away = [word for name in self.unset for word in ("-u", name)]
            return " ".join(["env", *away, *assignments, join(self.argv)])
        return " ".join([*assignments, join(self.argv)])

    def with_env(self, more: Mapping[str, str]) -> "Command":
        return replace(self, env={**self.env, **more})

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the process, when its caller's is `base`."""
        kept = {name: value for name, value in base.items() if name not in self.unset}
        return {**kept, **self.env}
