"""`medley`: the table of verbs with one-line help; the plumbum base class."""

import difflib
import re
from dataclasses import Field, field, fields
from types import NoneType
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from plumbum import cli
from plumbum.cli import switches
from plumbum.cli.application import Subcommand

from medley import own_version

VERBS = {
    "facts": "Say what this host is: processor, memory, GPUs, system, and the kind of host it makes.",
    "env": "Build, list, prove and remove engine environments, and lock your own.",
    "env build": "Build an engine environment, or say that it is there.",
    "env list": "List the engine environments of this host, and those that could be built.",
    "env path": "Print the folder of a finished engine environment.",
    "env check": "Prove an engine environment: its imports, and a real kernel on each GPU, or on the CPU.",
    "env clean": "Remove engine environments whose lock has changed, and what killed builds left.",
    "env lock": "Make a lock of your own, for this machine, where none of medley's fits.",
    "env raise": "Raise a lock to a new release of its engine, proven on this host first.",
    "models": "List the known models: size, license, and how each would do on these hosts.",
    "models add": "Write the table of a model of the hub, from its config.json and headers.",
    "models import": "Turn a community recipe (sparkrun) into the command that serves the same model.",
    "plan": "Say where a model would lie, whether it fits, and how fast it should be; start nothing.",
    "serve": "Serve a model with an OpenAI-style API, on this host or over its cluster, until Ctrl-C.",
    "ask": "Send one chat message to a running server and stream the answer.",
    "batch": "Answer a file of requests in OpenAI's batch form; a run that was cut off goes on.",
    "bench": "Measure what is served with its engine's own benchmark, beside what was predicted.",
    "bench show": "Show a bench that was kept: its figures, the prediction, and what it hangs on.",
    "bench history": "List the benches that were kept, the newest first: model, engine, layout, and "
    "their best rate.",
    "bench compare": "Compare two benches: the ratios of their medians, and what differs between them.",
    "run": "Run a Python script in the engine's environment, over the hosts that serve would take.",
    "ray-head": "Start a Ray cluster whose head is this host; other hosts join it with ray-worker.",
    "ray-worker": "Join the Ray cluster whose head is HEAD, a host's name or address.",
    "ray-stop": "End Ray on this host: the whole cluster on its head, this host's part elsewhere.",
    "join": "Run this host's part of the model that HEAD serves over several hosts without Ray.",
    "status": "Show the cluster: hosts, links, Ray, what is served, and what differs from cluster.toml.",
    "init": "Write cluster.toml: look which hosts there are, ask which are meant, see what each is.",
    "up": "Bring up the cluster that cluster.toml names: every host at once, over ssh.",
    "down": "End everything of medley's on every host of cluster.toml: what is served, Ray, and its files.",
    "pull": "Bring a model to every host of cluster.toml: once from the hub or a folder, then host to host.",
    "stop": "End the served model, on this host or on the head of cluster.toml's cluster; Ray goes on.",
    "logs": "Show what Ray and the served model say on the hosts of cluster.toml, together, by time.",
    "link": "Show, measure, set up or watch the wire between hosts.",
    "link show": "Show which wire these hosts would take, why, and why not their other links.",
    "link test": "Measure the wire to another host with ping, iperf3 and, over RDMA, perftest.",
    "link setup": "Give the fast links addresses and an MTU: shows the change, applies it on consent, undoes "
    "it.",
    "link watch": "Show what each link and RDMA port carries, its errors, drops and retransmits.",
    "ports": "Show every port that medley's things listen on, or print what closes them.",
    "service": "Have systemd start a head, a worker or a server with the host.",
    "service install": "Write a unit of systemd's, start it, and have it start with the host.",
    "service remove": "End a service, and have it start no more.",
    "service start": "Start what medley kept on this host before it was switched off.",
    "service show": "Show the services installed here: how they are, and the file of one.",
    "doctor": "Look at every host before anything is started: a line a check, and what to type.",
    "explain": "Say what failed, why, and what to type, out of the logs of an engine, Ray, NCCL or the "
    "kernel.",
    "top": "Show what the hosts of cluster.toml do now: processors, GPUs, links, RDMA, Ray, engines.",
    "collective-test": "Test the cluster's hosts, each alone and all together: speed, right sums, and who is "
    "slow.",
    "completion": "Print the completion script of a shell, or the manual page.",
    "check": "Validate every TOML of hosts, models, engine environments, known failures, and cluster.toml.",
    "version": "Print the version, the Python it runs on, and where tables are looked for.",
    "help": "Print the help of a verb, or of medley itself.",
}
"""Each verb, and its line of help. Verbs are imported when they run."""
_MODULES = {
    **dict.fromkeys(("facts", "completion", "check", "version", "help"), "info"),
    **dict.fromkeys(("ask", "stop", "logs"), "server"),
    **dict.fromkeys(("ray-head", "ray-worker", "ray-stop", "join"), "ray"),
    **dict.fromkeys(("status", "up", "down"), "cluster"),
    "env raise": "env_raise",
    "models add": "models_add",
    "models import": "models_import",
    **dict.fromkeys(("link setup", "link watch"), "link_setup"),
}
"""The modules of verbs that have none of their own."""


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

    def __init_subclass__(cls) -> None:
        """Take the description, and the verbs below this one, from the table; make switches of its fields."""
        super().__init_subclass__()
        if more := vars(cls).get("DESCRIPTION_MORE"):
            # plumbum starts a line of its help anew only at a bullet; of these, / alone is not printed.
            cls.DESCRIPTION_MORE = re.sub(r"(?m)^ {4}(?!/)", "    /", f"{more}\n")
        for name, each in list(vars(cls).items()):
            if isinstance(each, Field):
                setattr(cls, name, part := each.metadata["switch"](cls.__annotations__[name]))
                if isinstance(part, Group):
                    part.__set_name__(cls, name)
        for words, about in VERBS.items():
            above, _, word = words.rpartition(" ")
            if class_name(words) == cls.__name__:
                cls.DESCRIPTION = about
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


class VerbOfVerbs(Verb):
    """Shows its help unless one of its verbs follows."""

    USAGE = "    {progname} SUBCOMMAND [SWITCHES] ...\n"

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
        return cli.SwitchAttr(names.split(", "), checked, default, repeats, argname, help=about, **more)

    return field(metadata={"switch": made})


def _check(its_type: Any) -> Any:  # noqa: ANN401 - any type
    """Return what reads a word as this type, or as what it is a list or an option of."""
    if get_origin(its_type) is Literal:
        return cli.Set(*get_args(its_type))
    inner = [each for each in get_args(its_type) if each not in {NoneType, ...}]
    return _check(inner[0]) if inner else its_type


def flag(typed: str, about: str, **more: Any) -> Any:  # noqa: ANN401 - as above
    """Return a field that is a switch without a word."""
    return field(metadata={"switch": lambda _: cli.Flag(typed.split(", "), help=about, **more)})


def group(of: type[T], **instead: Any) -> Any:  # noqa: ANN401 - as above
    """Return a field that is a group of switches."""
    return field(metadata={"switch": lambda _: Group(of, **instead)})


# plumbum's own knows the switches of `medley` alone, whatever the verb: see `medley completion`.
Verb.unbind_switches("completions")


class Medley(VerbOfVerbs):
    """One LLM server out of the NVIDIA boxes you own."""

    PROGNAME = "medley"
    VERSION = property(lambda _: own_version())  # it is read from a file: only where it is shown
    DESCRIPTION = "One LLM server out of the NVIDIA boxes you own."
    DESCRIPTION_MORE = """
Examples:
    medley facts            what this host is
    medley serve demo       serve a tiny model made on the spot, without a GPU
    medley ask "Hello"      talk to it, from another terminal
    medley serve --help     more about a verb
"""
    USAGE = "    {progname} VERB [SWITCHES] ...\n"
