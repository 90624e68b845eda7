"""Commands as values: argv and environment, each flag and variable with its reason."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from shlex import join, quote

from msgspec import field

from medley.values import Value

SAFE_PATH = "PYTHONSAFEPATH"
"""The variable with which no Python, and no child of one, imports from its working or its script's folder."""


def quote_word(text: str) -> str:
    """Return text from elsewhere (a hub, a host, a log, a file) as one quoted word on one line of a shell."""
    return quote(" ".join(line.strip() for line in text.splitlines()).strip())


class Command(Value):
    """A program's argv, and the variables added to or removed from the caller's environment.

    `secrets` are the files of secret variables, whose values are never printed.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    undo: tuple[str, ...] = ()
    """The command that ends it where killing its process does not: a container outlives its client."""
    inherits: tuple[str, ...] = ()
    """Names of variables that a container image sets."""

    def __str__(self) -> str:
        """Return the text to paste into a shell; env(1) removes variables."""
        assignments = self.format_assignments()
        if self.unset:
            removals = [word for name in self.unset for word in ("-u", name)]
            return " ".join(["env", *removals, *assignments, join(self.argv)])
        return " ".join([*assignments, join(self.argv)])

    def format_assignments(self, quote_word: Callable[[str], str] = quote) -> list[str]:
        """Return the variables as a shell reads them: NAME=value."""
        env = [f"{name}={quote_word(value)}" for name, value in sorted(self.env.items())]
        return env + [f'{name}="$(cat {quote_word(file)})"' for name, file in sorted(self.secrets.items())]

    def add_variables(self, more: Mapping[str, str]) -> "Command":
        return self.replace(env={**self.env, **more})

    def build_environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the process without its secrets; `base` is the caller's.

        Every Python in it has a safe path, because medley starts in the user's folder, unless `SAFE_PATH` is
        in `unset`.
        """
        safe_base = {SAFE_PATH: "1", **base}
        inherited = {name: value for name, value in safe_base.items() if name not in self.unset}
        return {**inherited, **self.env}


_END_OF_OPTIONS = "--"
"""Words after it are another program's."""


def quote_path(path: object) -> str:
    """Return a path as one word of a shell, which no program takes for an option."""
    text = str(path)
    return quote(f"./{text}" if text.startswith("-") else text)


def replace_word(line: Sequence[str], old: str, new: str) -> tuple[str, ...]:
    """Replace a word, by itself or as a switch's value."""

    def replace_if_old(word: str) -> str:
        name, equals, value = word.partition("=")
        if equals and name.startswith("--") and value == old:
            return f"{name}={new}"
        return new if word == old else word

    return tuple(map(replace_if_old, line))


def set_switch(line: Sequence[str], name: str, value: str) -> tuple[str, ...]:
    """Set a switch to one value."""
    own_words, other_words = _split_at_dashes(drop_switches(line, [name]))
    return (*own_words, name, value, *other_words)


def drop_switches(line: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Remove these switches with their values."""
    own_words, other_words = _split_at_dashes(line)
    remaining, words, names = [], iter(own_words), frozenset(names)
    for word in words:
        if word in names:
            next(words, None)
        elif word.partition("=")[0] not in names:
            remaining.append(word)
    return (*remaining, *other_words)


def _split_at_dashes(line: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    at = line.index(_END_OF_OPTIONS) if _END_OF_OPTIONS in line else len(line)
    return tuple(line[:at]), tuple(line[at:])


# Variables of a user's shell that would change the engine's Python code.
UNSET_VARIABLES = ("PYTHONPATH", "PYTHONHOME")


class Variable(Value):
    name: str
    value: str
    why: str
    secret: bool = False
    """Whether `value` names the file of its value."""
    everywhere: bool = False
    """Whether this value is for all hosts of the group, though its name is usually per host."""
    local: bool = False
    """Whether this value is only for this host, though its name is usually for all hosts."""


def prefer_user_value(variable: Variable, environ: Mapping[str, str]) -> Variable:
    """Return medley's variable, or the user's own value of it."""
    value = environ.get(variable.name)
    if value is None:
        return variable
    other = ", and by medley" if value == variable.value else f"; medley's value is {variable.value}"
    return Variable(variable.name, value, f"set by you{other}: {variable.why}")


def override_variables(variables: Iterable[Variable], table: Mapping[str, str]) -> tuple[Variable, ...]:
    """Override and extend variables by this host's values of cluster.toml."""
    values = {variable.name: variable for variable in variables}
    for name, value in table.items():
        original = values.get(name)
        note = f"; medley's value is {original.value}" if original and original.value != value else ""
        values[name] = Variable(name, value, f"set in cluster.toml{note}", local=True)
    return tuple(values.values())


class Flag(Value):
    """A flag with all its spellings, its value and its reason."""

    names: tuple[str, ...]
    value: str | None
    why: str

    def build_argv(self) -> tuple[str, ...]:
        return (self.names[0],) if self.value is None else (self.names[0], self.value)


class AnnotatedCommand(Value):
    """A program with medley's flags and variables, and the user's own words after them."""

    words: tuple[str, ...]
    """The program, and its words before the flags."""
    flags: tuple[Flag, ...]
    variables: tuple[Variable, ...]
    extra: tuple[str, ...] = ()
    unset: tuple[str, ...] = UNSET_VARIABLES
    undo: tuple[str, ...] = ()
    inherits: tuple[str, ...] = ()

    @property
    def command(self) -> Command:
        flags = (word for flag in self.flags for word in flag.build_argv())
        env = {variable.name: variable.value for variable in self.variables if not variable.secret}
        secrets = {variable.name: variable.value for variable in self.variables if variable.secret}
        argv = (*self.words, *flags, *self.extra)
        return Command(argv, env, self.unset, secrets, self.undo, self.inherits)

    def list_reasons(self) -> list[tuple[str, str]]:
        return [
            *((f"{variable.name}={_shorten(variable.value)}", variable.why) for variable in self.variables),
            *((" ".join(flag.build_argv()), flag.why) for flag in self.flags),
        ]


def keep_last_values(variables: Iterable[Variable]) -> tuple[Variable, ...]:
    """Keep the last variable of each name."""
    return tuple({variable.name: variable for variable in variables}.values())


def _shorten(value: str, limit: int = 60) -> str:
    return value if len(value) <= limit else value[: limit - 1] + "…"
