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

from medley import read_medley_version

_VERB_TABLES, _HELP_TEXTS = (
    tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for name in ("verbs.toml", "help.toml")
)
VERBS: Mapping[str, str] = _VERB_TABLES["verbs"]
GROUPS: Mapping[str, str] = _VERB_TABLES["groups"]
_MODULES = {verb: module for module, verbs in _VERB_TABLES["modules"].items() for verb in verbs}
OTHER_TOOLS_VERBS: Mapping[str, str] = {
    word: verbs for verbs, words in _VERB_TABLES["elsewhere"].items() for word in words
}


def build_class_name(words: str) -> str:
    """Return the name of the class of a verb: of `ray-head` it is RayHeadVerb."""
    return "".join(map(str.capitalize, re.split("[ -]", words))) + "Verb" if words else "Medley"


class LazyVerb(Subcommand):
    """A verb whose module is imported at its call, because help needs only its line in the table."""

    parent: Any = None

    def __init__(self, words: str) -> None:
        self.DESCRIPTION = VERBS[words]
        module = _MODULES.get(words) or words.partition(" ")[0].replace("-", "_")
        super().__init__(words.rpartition(" ")[2], f"medley.cli.{module}.{build_class_name(words)}")

    def get(self) -> Any:  # noqa: ANN401 - to plumbum it is the verb's class
        return self

    def load(self) -> "type[Verb]":
        verb: Any = super().get()
        return verb  # type: ignore[no-any-return]  # always a Verb

    def run(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - plumbum's own matter, passed on
        verb: Any = self.load()
        verb.parent = self.parent
        return verb.run(*args, **kwargs)

    def __call__(self, executable: str) -> "Verb":
        return self.load()(executable)


T = TypeVar("T")

_OTHER_TOOLS_SWITCHES = {"-p": "--port", "--tensor-parallel-size": "--tp", "--max-model-len": "--context"}
_PLAIN_MESSAGES = {
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
"""Patterns of plumbum's messages, and medley's replacements; applied in this order."""


class UsageError(Exception):
    """An error in the words that the user typed."""


class Verb(cli.Application):
    """A verb that raises UsageError; plumbum's prints errors and its help to stdout, where results belong."""

    HINT: str | None = None
    """A hint for people who type an unknown switch of this verb."""
    DASH = "-"
    """The word that replaces a typed -, because plumbum reads - as a switch; verbs that read stdin set it."""
    typed_words: tuple[str, ...] = ()
    """The command as the user typed it, from `medley` on: a fix may be the same with another word."""

    def __init_subclass__(cls) -> None:
        """Take the description, and the verbs below this one, from the table; make switches of its fields."""
        super().__init_subclass__()
        for name, attribute in list(vars(cls).items()):
            if isinstance(attribute, Field):
                setattr(cls, name, part := attribute.metadata["switch"](cls.__annotations__[name]))
                if isinstance(part, SwitchGroup):
                    part.__set_name__(cls, name)
        for words, description in VERBS.items():
            parent_words, _, word = words.rpartition(" ")
            if build_class_name(words) == cls.__name__:
                cls.DESCRIPTION = description
                cls.DESCRIPTION_MORE = f"\n{_HELP_TEXTS[words]}" if words in _HELP_TEXTS else None
            if build_class_name(parent_words) == cls.__name__:
                # plumbum finds the verbs of a verb by this prefix.
                setattr(cls, f"_subcommand_{word}", LazyVerb(words))

    def list_switch_infos(self) -> list[Any]:
        """Return plumbum's record of each of its own switches, by name; without those that every verb has."""
        infos = {id(info): info for info in self._switches_by_name.values() if info.group != "Meta-switches"}
        return sorted(infos.values(), key=lambda info: str(info.names[-1]))

    def load_verbs(self) -> "dict[str, type[Verb]]":
        """Import its own verbs; return them by name."""
        listed_verbs: dict[str, Any] = self._subcommands
        return {name: listed_verbs[name].load() for name in sorted(listed_verbs)}

    def list_verb_groups(self) -> dict[str, list[tuple[str, str]]]:
        """Return its own verbs by group, each with its line of help."""
        verbs = [(name, str(verb.get().DESCRIPTION)) for name, verb in sorted(self._subcommands.items())]
        return {"Commands": verbs} if verbs else {}

    def list_usages(self) -> list[str]:
        """Return the ways to type it."""
        text = self.USAGE or ("{progname} [OPTIONS]" if self.list_switch_infos() else "{progname}")
        return [line.strip().format(progname=self.PROGNAME) for line in text.strip().splitlines()]

    @cli.switch(("-h", "--help"), overridable=True, group="Meta-switches", help="show this help")
    def help(self) -> None:
        """Print the help in medley's own form: plumbum's shows types and defaults as Python has them."""
        from medley.cli.help_text import list_help_lines

        print(*list_help_lines(self), sep="\n")

    @cli.switch(("-v", "-V", "--version"), overridable=True, group="Meta-switches", help="show the version")
    def version(self) -> None:
        print(f"medley {read_medley_version()}")

    def _parse_args(self, argv: list[str]) -> Any:  # noqa: ANN401 - plumbum's own matter, passed on
        self.typed_words = (*str(self.PROGNAME).split(), *argv)
        try:
            return super()._parse_args([self.DASH if word == "-" else word for word in argv])
        except switches.SwitchError as error:
            raise self._translate_error(error) from error

    def _validate_args(self, swfuncs: Any, tailargs: Any) -> Any:  # noqa: ANN401 - plumbum's own matter, passed on
        if self.nested_command and tailargs:
            # plumbum would drop the word, and run the verb after it
            raise self.unknown_verb_usage(tailargs[0])
        try:
            return super()._validate_args(swfuncs, tailargs)
        except switches.PositionalArgumentsError as error:
            misspelt = self._subcommands and tailargs
            raise (
                self.unknown_verb_usage(*tailargs) if misspelt else self._argument_usage(str(error), tailargs)
            ) from error
        except switches.SwitchError as error:
            raise self._translate_error(error) from error

    def unknown_verb_usage(self, word: str, *later_words: str, lead_words: str = "") -> UsageError:
        """Return the error for a word that stands where a verb should, with the nearest verb.

        `later_words` follow a misspelt verb; `lead_words` is the verb that takes verbs, such as help.
        """
        words = f"{self.PROGNAME} {word}".removeprefix("medley ")
        equivalent_verbs, name = OTHER_TOOLS_VERBS.get(words), self.PROGNAME
        near_verbs = (
            equivalent_verbs.split(", ")
            if equivalent_verbs
            else difflib.get_close_matches(word, self._subcommands, n=1)
        )
        question = f"; did you mean {' or '.join(map(repr, near_verbs))}?" if near_verbs else ""
        page = "docs/how-to/upgrade.md" if words in {"upgrade", "update"} else f"{name} --help"
        start = "medley" if equivalent_verbs else str(name).replace("medley", lead_words or "medley", 1)
        corrected = [] if equivalent_verbs else later_words
        advice = (
            f"try:   {shlex.join((*start.split(), *near_verbs[0].split(), *corrected))}"
            if near_verbs
            else f"see:   {page}"
        )
        return UsageError(f"{name}: unknown command {word!r}{question}\n  {advice}")

    def _argument_usage(self, error: str, words: Sequence[str]) -> UsageError:
        """Return the error for too few or too many arguments, with the first that is wrong."""
        usage = self.list_usages()[0]
        placeholders = re.sub(r"\[.*?\]", "", usage.removeprefix(str(self.PROGNAME))).split()
        count = int(re.findall(r"\d+", error)[0])
        is_too_few = " at least " in error and len(words) < len(placeholders)
        mistake = (
            f"missing argument {placeholders[len(words)]}"
            if is_too_few
            else f"unexpected argument {words[count]!r}"
        )
        return UsageError(f"{self.PROGNAME}: {mistake}\n  usage: {usage}\n  see:   {self.PROGNAME} --help")

    def _translate_error(self, error: Exception) -> Exception:
        if type(error).__name__.startswith("Show"):  # plumbum's requests for help and the version
            return error
        message = str(error).splitlines()[0]
        for pattern, replacement in _PLAIN_MESSAGES.items():
            message = re.sub(f"^{pattern}$", replacement, message)
        hints = []
        if isinstance(error, switches.UnknownSwitch):
            known = [f"--{name}" for name in self._switches_by_name if len(name) > 1]
            unknown = message.split()[-1]
            near_switches = difflib.get_close_matches(unknown, known, n=1)
            if (equivalent := _OTHER_TOOLS_SWITCHES.get(unknown)) in known:
                near_switches = [equivalent]
            message += f"; did you mean {near_switches[0]}?" if near_switches else ""
            hints = [f"  hint:  {self.HINT}"] if self.HINT and not near_switches else []
        return UsageError(
            "\n".join([f"{self.PROGNAME}: {message}", *hints, f"  see:   {self.PROGNAME} --help"])
        )


class VerbGroup(Verb):
    """A verb that shows its help unless one of its verbs follows."""

    USAGE = "    {progname} COMMAND [OPTIONS]\n"

    def main(self) -> None:
        if not self.nested_command:
            self.help()


class SwitchGroup(Generic[T]):
    """Declare the fields of a dataclass as switches of a verb; its value is a dataclass of their values.

    Each field is a `switch`, a `flag` or a `group`, or `replacements` has one for it in this verb.
    """

    def __init__(self, dataclass_type: type[T], **replacements: "Field[Any]") -> None:
        self._dataclass_type = dataclass_type
        own_fields: Any = fields(dataclass_type)  # type: ignore[arg-type]  # always a dataclass
        fields_with_types = {
            own_field.name: (replacements.get(own_field.name, own_field), own_field.type)
            for own_field in own_fields
        }
        self._parts = {
            name: part.metadata["switch"](its_type) for name, (part, its_type) in fields_with_types.items()
        }

    def __set_name__(self, verb: type, name: str) -> None:
        for part_name, part in self._parts.items():
            if isinstance(part, SwitchGroup):
                part.__set_name__(verb, f"{name}.{part_name}")
            else:  # plumbum looks for switches in the verb's own namespace
                setattr(verb, f"{name}.{part_name}", part)

    def __get__(self, verb: Verb, owner: type) -> T:
        values = {name: part.__get__(verb, owner) for name, part in self._parts.items()}
        return self._dataclass_type(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        )


class _Option(cli.SwitchAttr[Any]):
    """A switch that appends nothing about its default to its help, unlike plumbum's."""

    def __init__(self, names: Any, argtype: Any, default: Any, *words: Any, **more: Any) -> None:  # noqa: ANN401 - plumbum's
        super().__init__(names, argtype, None, *words, **more)
        if default is not None:
            self._default_value = default


def switch(
    spelling: str,
    help_text: str,
    limits: tuple[int, int] | None = None,
    *,
    check: Any = None,  # noqa: ANN401 - one of plumbum's checks of a word; None: as the field's type says
    default: Any = None,  # noqa: ANN401 - a value of the field's own type
    **more: Any,  # noqa: ANN401 - plumbum's own, passed on
) -> Any:  # noqa: ANN401 - the field has its type
    """Return a field that is a switch of a verb; `spelling` is as in "-n, --lines N".

    Where the field is a list or a tuple it may be typed several times.
    """
    names, _, argname = spelling.rpartition(" ")

    def build_attribute(its_type: Any) -> "cli.SwitchAttr[Any]":  # noqa: ANN401 - any type
        is_repeatable = get_origin(its_type) in {list, tuple}
        reader = cli.Range(*limits) if limits else check or _find_reader(its_type)
        shown_help = (
            f"{help_text} [default: {default}]" if default and "[default" not in help_text else help_text
        )
        return _Option(names.split(", "), reader, default, is_repeatable, argname, help=shown_help, **more)

    return field(metadata={"switch": build_attribute})


def _find_reader(its_type: Any) -> Any:  # noqa: ANN401 - any type
    """Return the type that reads a word, or the type inside a list or an option."""
    if get_origin(its_type) is Literal:
        return cli.Set(*get_args(its_type))
    inner = [arg for arg in get_args(its_type) if arg not in {NoneType, ...}]
    return _find_reader(inner[0]) if inner else its_type


def build_suffix_check(suffix: str) -> "cli.Predicate[str, str]":
    """Return a check that refuses a file name with another ending."""

    def check(word: str) -> str:
        if Path(word).suffix.lower() not in {"", suffix}:
            raise ValueError(word)
        return word

    check.__name__ = f"a file NAME{suffix}"  # plumbum's message has it
    return cli.Predicate(check)


def flag(spelling: str, help_text: str, **more: Any) -> Any:  # noqa: ANN401 - as above
    """Return a field that is a switch without a word."""
    return field(metadata={"switch": lambda _: cli.Flag(spelling.split(", "), help=help_text, **more)})


def group(dataclass_type: type[T], **replacements: Any) -> Any:  # noqa: ANN401 - as above
    """Return a field that is a group of switches."""
    return field(metadata={"switch": lambda _: SwitchGroup(dataclass_type, **replacements)})


# plumbum's own completions know the switches of `medley` alone, whatever the verb: see `medley completion`.
Verb.unbind_switches("completions", "help-all")


class Medley(VerbGroup):
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
            from medley.cli.sign import print_overview

            print_overview(as_json=self.as_json)
        elif self.as_json:
            text = "--json stands after the command"
            raise UsageError(f"{self.PROGNAME}: {text}\n  see:   {self.PROGNAME} --help")

    def list_verb_groups(self) -> dict[str, list[tuple[str, str]]]:
        return {title: [(verb, VERBS[verb]) for verb in verbs.split()] for title, verbs in GROUPS.items()}
