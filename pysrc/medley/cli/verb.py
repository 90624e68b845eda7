"""A verb is one plumbum application; wrong usage of it is a short word on stderr and exit code 2."""

import difflib
from typing import Any

from plumbum import cli
from plumbum.cli import switches

# plumbum's requests for help and the version are SwitchErrors too, so the true errors are named.
_WRONG = (
    switches.MissingArgument,
    switches.MissingMandatorySwitch,
    switches.PositionalArgumentsError,
    switches.SubcommandError,
    switches.SwitchCombinationError,
    switches.UnknownSwitch,
    switches.WrongArgumentType,
)


class Usage(Exception):  # noqa: N818 - what it is about, as plumbum's own are named
    """What was typed cannot be meant."""


class Verb(cli.Application):
    """Instead of plumbum's: it prints an error and the whole help to stdout, where results belong."""

    HINT: str | None = None
    """What people who type an unknown switch here often mean."""
    typed: tuple[str, ...] = ()
    """What was typed, from `medley` on: a fix may be the same with another word."""
    SUBCOMMAND_HELPMSG = False  # "see VERB --help" after each of them says it too often

    def __init__(self, executable: str | None = None) -> None:
        super().__init__(executable)
        # A switch that a verb has overridden would stand in its help once more, without a name.
        self._switches_by_func = {
            func: info
            for func, info in self._switches_by_func.items()
            if any(self._switches_by_name.get(name) is info for name in info.names)
        }

    def infos(self) -> list[Any]:
        """What plumbum knows of each of its own switches, by name; not of those that every verb has."""
        own = {id(info): info for info in self._switches_by_name.values() if info.group != "Meta-switches"}
        return sorted(own.values(), key=lambda info: str(info.names[-1]))

    def below(self) -> dict[str, Any]:
        """Its own verbs, by name."""
        return {name: self._subcommands[name].get() for name in sorted(self._subcommands)}

    def _parse_args(self, argv: list[str]) -> Any:  # noqa: ANN401 - plumbum's own matter, passed on
        self.typed = (*str(self.PROGNAME).split(), *argv)
        try:
            return super()._parse_args(argv)
        except _WRONG as error:
            raise self._usage(error) from error

    def _validate_args(self, swfuncs: Any, tailargs: Any) -> Any:  # noqa: ANN401 - the same
        if self.nested_command and tailargs:
            raise self.no_verb(tailargs[0])  # plumbum would drop the word, and run the verb after it
        try:
            return super()._validate_args(swfuncs, tailargs)
        except switches.PositionalArgumentsError as error:
            misspelt = self._subcommands and tailargs
            raise (self.no_verb(tailargs[0]) if misspelt else self._usage(error)) from error
        except _WRONG as error:
            raise self._usage(error) from error

    def no_verb(self, word: str) -> Usage:
        """Refuse a word that stands where a verb should, and name the nearest verb."""
        near = difflib.get_close_matches(word, self._subcommands, n=1)
        return Usage(
            f"{self.PROGNAME}: there is no verb {word!r}; verbs: {', '.join(self._subcommands)}\n"
            f"  try:   {self.PROGNAME} {near[0] if near else '--help'}"
        )

    def _usage(self, error: Exception) -> Usage:
        first = str(error).splitlines()[0].rstrip(":").replace("<class 'int'>", "a number")
        unknown = isinstance(error, switches.UnknownSwitch)
        known = [f"--{name}" for name in self._switches_by_name if len(name) > 1]
        near = difflib.get_close_matches(first.split()[-1], known, n=1) if unknown else []
        more = [f"  try:   {near[0]}"] if near else [f"  hint:  {self.HINT}"] if unknown and self.HINT else []
        if isinstance(error, switches.PositionalArgumentsError):
            words = first.partition(", got ")[2]
            first = "a word is missing" if " at least " in first else f"too many words: {words}"
            usage = (self.USAGE or "").strip().partition("\n")[0]
            more = [f"  usage: {usage.format(progname=self.PROGNAME)}"] if usage else []
        return Usage("\n".join([f"{self.PROGNAME}: {first}", *more, f"  see:   {self.PROGNAME} --help"]))


# plumbum's own knows the switches of `medley` alone, whatever the verb: see `medley completion`.
Verb.unbind_switches("completions")
