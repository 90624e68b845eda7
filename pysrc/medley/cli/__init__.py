"""`medley`: the table of verbs with one-line help; the plumbum base class."""

import difflib
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import Field, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from plumbum import cli
from plumbum.cli import switches
from plumbum.cli.application import Subcommand

from medley import own_version

_TABLES, _HELP = (
    tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for name in ("verbs.toml", "help.toml")
)
VERBS: Mapping[str, str] = _TABLES["verbs"]
GROUPS: Mapping[str, str] = _TABLES["groups"]
_MODULES = {verb: module for module, verbs in _TABLES["modules"].items() for verb in verbs}
ELSEWHERE: Mapping[str, str] = {
    word: verbs for verbs, words in _TABLES["elsewhere"].items() for word in words
}


def class_name(words: str) -> str:
    """Return the name of the class of a verb: of `ray-head` it is RayHeadVerb."""
    return "".join(map(str.capitalize, re.split("[ -]", words))) + "Verb" if words else "Medley"


class ListedVerb(Subcommand):
    """A verb that is imported when it is called: help needs only its line in the table."""

    parent: Any = None

    def __init__(self, words: str) -> None:
        self.DESCRIPTION = VERBS[words]
        module = _MODULES.get(words) or words.partition(" ")[0].replace("-", "_")
        super().__init__(words.rpartition(" ")[2], f"medley.cli.{module}.{class_name(words)}")

    def get(self) -> Any:  # noqa: ANN401 - to plumbum it is the verb's class
        return self

    def load(self) -> "type[Verb]":
        verb: Any = super().get()
        return verb  # type: ignore[no-any-return]  # always a Verb

    def run(self, *words: Any, **more: Any) -> Any:  # noqa: ANN401 - plumbum's own matter, passed on
        verb: Any = self.load()
        verb.parent = self.parent
        return verb.run(*words, **more)

    def __call__(self, executable: str) -> "Verb":
        return self.load()(executable)


T = TypeVar("T")

_SWITCHES_ELSEWHERE = {"-p": "--port", "--tensor-parallel-size": "--tp", "--max-model-len": "--context"}
_PLAIN = {
    r"Unknown switch (.+)": r"unknown option \1",
    r"Switch (.+)": r"option \1",
    r"Given (\S+), the following are missing \['(.+)'\]": r"option \1 needs --\2",
    r"Given (\S+), the following are invalid \['(\S+)'.*\]": r"options \1 and \2 exclude each other",
    r"Argument of (\S) expected to be (.+), not (.+):": r"option -\1 must be \2, not \3",
    r"Argument of (\S+) expected to be (.+), not (.+):": r"option --\1 must be \2, not \3",
    r"(.* be )<class 'int'>(.*)": r"\1a number\2",
    r"(.* be )\[(-?\d+)\.\.(\d+)\](.*)": r"\1a number from \2 to \3\4",
    r"(.* be )\{(.+)\}(.*)": r"\1one of \2\3",
}
"""What plumbum reports, and what medley prints of it; applied in this order."""


class Usage(Exception):  # noqa: N818 - what it is about, as plumbum's own are named
    """What was typed cannot be meant."""


class Verb(cli.Application):
    """Instead of plumbum's: it prints an error and the whole help to stdout, where results belong."""

    HINT: str | None = None
    """What people who type an unknown switch here often mean."""
    DASH = "-"
    """What - is here, which plumbum takes for a switch."""
    typed: tuple[str, ...] = ()
    """What was typed, from `medley` on: a fix may be the same with another word."""

    def __init_subclass__(cls) -> None:
        """Take the description, and the verbs below this one, from the table; make switches of its fields."""
        super().__init_subclass__()
        for name, each in list(vars(cls).items()):
            if isinstance(each, Field):
                setattr(cls, name, part := each.metadata["switch"](cls.__annotations__[name]))
                if isinstance(part, Group):
                    part.__set_name__(cls, name)
        for words, about in VERBS.items():
            above, _, word = words.rpartition(" ")
            if class_name(words) == cls.__name__:
                cls.DESCRIPTION = about
                cls.DESCRIPTION_MORE = f"\n{_HELP[words]}" if words in _HELP else None
            if class_name(above) == cls.__name__:
                setattr(cls, f"_subcommand_{word}", ListedVerb(words))

    def infos(self) -> list[Any]:
        """What plumbum knows of each of its own switches, by name; not of those that every verb has."""
        own = {id(info): info for info in self._switches_by_name.values() if info.group != "Meta-switches"}
        return sorted(own.values(), key=lambda info: str(info.names[-1]))

    def below(self) -> "dict[str, type[Verb]]":
        """Its own verbs, by name."""
        listed: dict[str, Any] = self._subcommands
        return {name: listed[name].load() for name in sorted(listed)}

    def listed(self) -> dict[str, list[tuple[str, str]]]:
        """Its own verbs by group, each with its line of help."""
        found = [(name, str(verb.get().DESCRIPTION)) for name, verb in sorted(self._subcommands.items())]
        return {"Commands": found} if found else {}

    def usages(self) -> list[str]:
        """The ways to type it."""
        text = self.USAGE or ("{progname} [OPTIONS]" if self.infos() else "{progname}")
        return [line.strip().format(progname=self.PROGNAME) for line in text.strip().splitlines()]

    @cli.switch(("-h", "--help"), overridable=True, group="Meta-switches", help="show this help")
    def help(self) -> None:
        """Print it in medley's own form: plumbum's shows types and defaults as Python has them."""
        from medley.cli.help_text import help_lines

        print(*help_lines(self), sep="\n")

    @cli.switch(("-v", "-V", "--version"), overridable=True, group="Meta-switches", help="show the version")
    def version(self) -> None:
        print(f"medley {own_version()}")

    def _parse_args(self, argv: list[str]) -> Any:  # noqa: ANN401 - plumbum's own matter, passed on
        self.typed = (*str(self.PROGNAME).split(), *argv)
        try:
            return super()._parse_args([self.DASH if word == "-" else word for word in argv])
        except switches.SwitchError as error:
            raise self._usage(error) from error

    def _validate_args(self, swfuncs: Any, tailargs: Any) -> Any:  # noqa: ANN401 - the same
        if self.nested_command and tailargs:
            raise self.no_verb(tailargs[0])  # plumbum would drop the word, and run the verb after it
        try:
            return super()._validate_args(swfuncs, tailargs)
        except switches.PositionalArgumentsError as error:
            misspelt = self._subcommands and tailargs
            raise (self.no_verb(*tailargs) if misspelt else self._misplaced(str(error), tailargs)) from error
        except switches.SwitchError as error:
            raise self._usage(error) from error

    def no_verb(self, word: str, *rest: str, lead: str = "") -> Usage:
        """Refuse a word that stands where a verb should, and name the nearest verb.

        `rest` was typed after a misspelt verb; `lead` is the verb that takes verbs, such as help.
        """
        words = f"{self.PROGNAME} {word}".removeprefix("medley ")
        same, name = ELSEWHERE.get(words), self.PROGNAME
        near = same.split(", ") if same else difflib.get_close_matches(word, self._subcommands, n=1)
        meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        page = "docs/how-to/upgrade.md" if words in {"upgrade", "update"} else f"{name} --help"
        at = "medley" if same else str(name).replace("medley", lead or "medley", 1)
        corrected = [] if same else rest
        more = (
            f"try:   {shlex.join((*at.split(), *near[0].split(), *corrected))}" if near else f"see:   {page}"
        )
        return Usage(f"{name}: unknown command {word!r}{meant}\n  {more}")

    def _misplaced(self, error: str, words: Sequence[str]) -> Usage:
        """Refuse too few or too many arguments, and name the first that is wrong."""
        usage = self.usages()[0]
        named = re.sub(r"\[.*?\]", "", usage.removeprefix(str(self.PROGNAME))).split()
        count = int(re.findall(r"\d+", error)[0])
        few = " at least " in error and len(words) < len(named)
        what = f"missing argument {named[len(words)]}" if few else f"unexpected argument {words[count]!r}"
        return Usage(f"{self.PROGNAME}: {what}\n  usage: {usage}\n  see:   {self.PROGNAME} --help")

    def _usage(self, error: Exception) -> Exception:
        if type(error).__name__.startswith("Show"):  # plumbum's requests for help and the version
            return error
        first = str(error).splitlines()[0]
        for theirs, ours in _PLAIN.items():
            first = re.sub(f"^{theirs}$", ours, first)
        more = []
        if isinstance(error, switches.UnknownSwitch):
            known = [f"--{name}" for name in self._switches_by_name if len(name) > 1]
            same = [_SWITCHES_ELSEWHERE.get(typed := first.split()[-1], "")]
            near = same if same[0] in known else difflib.get_close_matches(typed, known, n=1)
            first += f"; did you mean {near[0]}?" if near else ""
            more = [f"  hint:  {self.HINT}"] if self.HINT and not near else []
        return Usage("\n".join([f"{self.PROGNAME}: {first}", *more, f"  see:   {self.PROGNAME} --help"]))


class VerbOfVerbs(Verb):
    """Shows its help unless one of its verbs follows."""

    USAGE = "    {progname} COMMAND [OPTIONS]\n"

    def main(self) -> None:
        if not self.nested_command:
            self.help()


class Group(Generic[T]):
    """Declare the fields of a dataclass as switches of a verb; read, it is their values.

    Each field is a `switch`, a `flag` or a `group`, or `instead` has one for it in this verb.
    """

    def __init__(self, of: type[T], **instead: "Field[Any]") -> None:
        self._of = of
        own = {each.name: (instead.get(each.name, each), each.type) for each in fields(of)}  # type: ignore[arg-type]  # always a dataclass
        self._parts = {name: part.metadata["switch"](its_type) for name, (part, its_type) in own.items()}

    def __set_name__(self, verb: type, name: str) -> None:
        for part_name, part in self._parts.items():
            if isinstance(part, Group):
                part.__set_name__(verb, f"{name}.{part_name}")
            else:  # plumbum looks for switches in the verb's own namespace
                setattr(verb, f"{name}.{part_name}", part)

    def __get__(self, verb: Verb, owner: type) -> T:
        values = {name: part.__get__(verb, owner) for name, part in self._parts.items()}
        return self._of(
            **{name: tuple(each) if isinstance(each, list) else each for name, each in values.items()}
        )


class _Option(cli.SwitchAttr[Any]):
    """Unlike plumbum's it appends nothing about its default to its help."""

    def __init__(self, names: Any, argtype: Any, default: Any, *words: Any, **more: Any) -> None:  # noqa: ANN401 - plumbum's
        super().__init__(names, argtype, None, *words, **more)
        if default is not None:
            self._default_value = default


def switch(
    typed: str,
    about: str,
    within: tuple[int, int] | None = None,
    *,
    check: Any = None,  # noqa: ANN401 - one of plumbum's checks of a word; None: as the field's type says
    default: Any = None,  # noqa: ANN401 - of the field's own type
    **more: Any,  # noqa: ANN401 - plumbum's own, passed on
) -> Any:  # noqa: ANN401 - the field has its type
    """Return a field that is a switch of a verb, `typed` as in "-n, --lines N".

    Where the field is a list or a tuple it may be typed several times.
    """
    names, _, argname = typed.rpartition(" ")

    def made(its_type: Any) -> "cli.SwitchAttr[Any]":  # noqa: ANN401 - any type
        repeats = get_origin(its_type) in {list, tuple}
        checked = cli.Range(*within) if within else check or _check(its_type)
        shown = f"{about} [default: {default}]" if default and "[default" not in about else about
        return _Option(names.split(", "), checked, default, repeats, argname, help=shown, **more)

    return field(metadata={"switch": made})


def _check(its_type: Any) -> Any:  # noqa: ANN401 - any type
    """Return what reads a word as this type, or as what it is a list or an option of."""
    if get_origin(its_type) is Literal:
        return cli.Set(*get_args(its_type))
    inner = [each for each in get_args(its_type) if each not in {NoneType, ...}]
    return _check(inner[0]) if inner else its_type


def ending(suffix: str) -> "cli.Predicate[str, str]":
    """Return a check that refuses a file name with another ending."""

    def check(word: str) -> str:
        if Path(word).suffix.lower() not in {"", suffix}:
            raise ValueError(word)
        return word

    check.__name__ = f"a file NAME{suffix}"  # plumbum's message has it
    return cli.Predicate(check)


def flag(typed: str, about: str, **more: Any) -> Any:  # noqa: ANN401 - as above
    """Return a field that is a switch without a word."""
    return field(metadata={"switch": lambda _: cli.Flag(typed.split(", "), help=about, **more)})


def group(of: type[T], **instead: Any) -> Any:  # noqa: ANN401 - as above
    """Return a field that is a group of switches."""
    return field(metadata={"switch": lambda _: Group(of, **instead)})


# plumbum's own completions know the switches of `medley` alone, whatever the verb: see `medley completion`.
Verb.unbind_switches("completions", "help-all")


class Medley(VerbOfVerbs):
    """One LLM server out of the NVIDIA machines you own."""

    PROGNAME = "medley"
    DESCRIPTION = "One LLM server from the NVIDIA machines you own."
    DESCRIPTION_MORE = """
Examples:
    medley facts            show what this host is
    medley                  show what this host is, and what it could serve
    medley serve smollm2    serve a small model that talks; it needs no GPU
    medley chat             chat with it, from another terminal
    medley help serve       show the options of a command
"""
    USAGE = """
    {progname} [--json]
    {progname} COMMAND [OPTIONS]
    {progname} COMMAND --help
    {progname} --version
"""
    as_json: bool = flag("--json", "without a command: one JSON object of what this host is and serves")

    def main(self) -> None:
        if not self.nested_command:
            from medley.cli.sign import print_sign

            print_sign(as_json=self.as_json)
        elif self.as_json:
            text = "--json stands after the command"
            raise Usage(f"{self.PROGNAME}: {text}\n  see:   {self.PROGNAME} --help")

    def listed(self) -> dict[str, list[tuple[str, str]]]:
        return {title: [(verb, VERBS[verb]) for verb in verbs.split()] for title, verbs in GROUPS.items()}
