"""Commands as values: argv and environment, each flag and variable with its reason; editing argv."""

from collections.abc import Callable, Iterable, Mapping, Sequence
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

    def assignments(self, quoted: Callable[[str], str] = quote) -> list[str]:
        """Its variables as a shell reads them: NAME=value."""
        env = [f"{name}={quoted(value)}" for name, value in sorted(self.env.items())]
        return env + [f'{name}="$(cat {quoted(file)})"' for name, file in sorted(self.secrets.items())]

    def with_env(self, more: Mapping[str, str]) -> "Command":
        return replace(self, env={**self.env, **more})

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment of the process, less its secrets, when its caller's is `base`."""
        kept = {name: value for name, value in base.items() if name not in self.unset}
        return {**kept, **self.env}


_ENDS = "--"
"""What stands after it is another program's."""


def renamed(line: Sequence[str], old: str, new: str) -> tuple[str, ...]:
    """With another word, by itself or as a switch's value."""

    def word_with(word: str) -> str:
        name, equals, value = word.partition("=")
        if equals and name.startswith("--") and value == old:
            return f"{name}={new}"
        return new if word == old else word

    return tuple(map(word_with, line))


def switched(line: Sequence[str], name: str, value: str) -> tuple[str, ...]:
    """With this switch, and this value of it alone."""
    own, others = _halves(without(line, [name]))
    return (*own, name, value, *others)


def without(line: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """With none of these switches, each of which has a value."""
    own, others = _halves(line)
    kept, words, names = [], iter(own), frozenset(names)
    for word in words:
        if word in names:
            next(words, None)
        elif word.partition("=")[0] not in names:
            kept.append(word)
    return (*kept, *others)


def _halves(line: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    at = line.index(_ENDS) if _ENDS in line else len(line)
    return tuple(line[:at]), tuple(line[at:])


# What a user's shell may carry that would change which Python code the engine runs.
UNSET = ("PYTHONPATH", "PYTHONHOME")


@dataclass(frozen=True)
class Variable:
    name: str
    value: str
    why: str
    secret: bool = False
    """Its value stands in the file that `value` names."""
    everywhere: bool = False
    """It is equal on all hosts of the group, though others of its name belong to one host."""
    local: bool = False
    """It belongs to this host, though others of its name go to all hosts of the group."""


def users(ours: Variable, environ: Mapping[str, str]) -> Variable:
    """Ours, or the user's own value of it."""
    value = environ.get(ours.name)
    if value is None:
        return ours
    other = ", and by medley" if value == ours.value else f"; medley would say {ours.value}"
    return Variable(ours.name, value, f"set by you{other}: {ours.why}")


def overridden(ours: Iterable[Variable], table: Mapping[str, str]) -> tuple[Variable, ...]:
    """Ours with this host's values of cluster.toml, and what else stands there."""
    found = {each.name: each for each in ours}
    for name, value in table.items():
        other = found.get(name)
        more = f"; medley would say {other.value}" if other and other.value != value else ""
        found[name] = Variable(name, value, f"set in cluster.toml{more}", local=True)
    return tuple(found.values())


@dataclass(frozen=True)
class Flag:
    """A flag we give a program, all its spellings first, and why."""

    names: tuple[str, ...]
    value: str | None
    why: str

    def argv(self) -> tuple[str, ...]:
        return (self.names[0],) if self.value is None else (self.names[0], self.value)


@dataclass(frozen=True)
class AnnotatedCommand:
    """A program with flags and variables of ours, and the user's own words after them."""

    words: tuple[str, ...]
    """The program, and what stands before every flag."""
    flags: tuple[Flag, ...]
    variables: tuple[Variable, ...]
    extra: tuple[str, ...] = ()
    unset: tuple[str, ...] = UNSET
    undo: tuple[str, ...] = ()
    inherits: tuple[str, ...] = ()

    @property
    def command(self) -> Command:
        flags = (word for flag in self.flags for word in flag.argv())
        env = {each.name: each.value for each in self.variables if not each.secret}
        secrets = {each.name: each.value for each in self.variables if each.secret}
        argv = (*self.words, *flags, *self.extra)
        return Command(argv, env, self.unset, secrets, self.undo, self.inherits)

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
