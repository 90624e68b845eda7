"""What this host is: its facts, asked now, and the kind they make it."""

from pathlib import Path

from medley import config, facts, machine, transcript
from medley.kind import Kind, kind
from medley.problem import Problem, in_words
from medley.transcript import Transcript


def answers(file: str | None = None) -> Transcript:
    """What this host answers now, or what a recorded one answered."""
    if file is None:
        return machine.ask(facts.QUESTIONS)
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{file} cannot be read",
            cause=in_words(error),
            fix="name a file that medley facts --transcript wrote",
        ) from error
    try:
        return transcript.parse(text)
    except Problem as problem:
        raise Problem(f"{file} is no transcript", cause=problem.cause, fix=problem.fix) from problem


def recognised(named: str | None = None, said: Transcript | None = None) -> tuple[facts.Facts, Kind]:
    """The facts of this host, asked now unless given, and its kind; `named` takes one on the user's word."""
    found = facts.facts(answers() if said is None else said)
    return found, kind_of(found, named)


def kind_of(found: facts.Facts, named: str | None = None) -> Kind:
    """The kind that these facts make a host, or that somebody says it is."""
    hosts = config.hosts()
    if named is None:
        return kind(found, hosts)
    if named not in hosts:
        raise Problem(
            f"there is no kind of host {named!r}", cause=f"hosts/ has {', '.join(hosts)}", fix="medley facts"
        )
    host = hosts[named]
    if host.device == "cuda" and not found.gpus:
        raise Problem(
            f"this host cannot be {named}",
            cause=f"it needs an NVIDIA GPU, and nvidia-smi shows none: {found.driver.error or 'not found'}",
            fix="run nvidia-smi and mend what it says, or: --kind cpu",
        )
    return Kind(named, host, "as --kind says")
