"""A command is a value: made by pure code, printed for people, run by `machine`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from shlex import join, quote


@dataclass(frozen=True)
class Command:
    """A program's argv, the variables added to the caller's environment, and those taken from it.

    `secrets` are variables whose values stand in files, by file: they are in no text of the command.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    undo: tuple[str, ...] = ()
    """What ends it for sure, where ending its process does not: a container outlives its client."""
    inherits: tuple[str, ...] = ()
    """Names of variables that it has from elsewhere: an image sets some."""

    def __str__(self) -> str:
        """Exactly what to paste into a shell.

        With variables to take away it goes through env(1), which is the only way to say that in one line.
        """
        assignments = self.assignments()
        if self.unset:
            away = [word for name in self.unset for word in ("-u", name)]
            return " ".join(["env", *away, *assignments, join(self.argv)])
        return " ".join([*assignments, join(self.argv)])

    def assignments(self) -> list[str]:
        """Its variables as a shell reads them: NAME=value."""
        env = [f"{name}={quote(value)}" for name, value in sorted(self.env.items())]
        return env + [f'{name}="$(cat {quote(file)})"' for name, file in sorted(self.secrets.items())]

    def with_env(self, more: Mapping[str, str]) -> "Command":
        return replace(self, env={**self.env, **more})

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment of the process, less its secrets, when its caller's is `base`."""
        kept = {name: value for name, value in base.items() if name not in self.unset}
        return {**kept, **self.env}
