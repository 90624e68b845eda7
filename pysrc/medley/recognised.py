"""What this host is: its facts, asked now, and the kind they make it."""

from medley import config, facts, machine
from medley.kind import Kind, kind
from medley.problem import Problem
from medley.transcript import Transcript


def recognised(named: str | None = None, answers: Transcript | None = None) -> tuple[facts.Facts, Kind]:
    """The facts of this host, asked now unless given, and its kind; `named` takes one on the user's word."""
    found = facts.facts(machine.ask(facts.QUESTIONS) if answers is None else answers)
    hosts = config.hosts()
    if named is None:
        return found, kind(found, hosts)
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
    return found, Kind(named, host, "as --kind says")
