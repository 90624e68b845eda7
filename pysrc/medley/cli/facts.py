"""`medley facts`: what this host is, which kind of host that makes it, and why."""

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli import replay
from medley.cli.verb import Verb
from medley.problem import Problem

if TYPE_CHECKING:  # imported by main alone, to keep `medley --help` fast
    from medley.facts import Facts as Found
    from medley.kind import Kind


class Facts(Verb):
    DESCRIPTION = "Say what this host is: processor, memory, GPUs, system, and the kind of host it makes."
    DESCRIPTION_MORE = """
A transcript is the text of the questions asked and of the host's answers. It replays anywhere, so send it
with a bug report; serial numbers, addresses and names in it are replaced.

Examples:
    /medley facts
    /medley facts --json
    /medley facts --transcript > spark-1.txt
    /medley facts --from spark-1.txt
    /medley facts --json --from spark-1.txt spark-2.txt

"""

    # plumbum starts a line of its help anew only at a bullet; of these, / alone is not printed.
    as_json = cli.Flag("--json", help="print one JSON object; of several files, a list")
    as_transcript = cli.Flag("--transcript", help="print the transcript, redacted", excludes=["--json"])
    replayed = cli.SwitchAttr(
        "--from", str, list=True, argname="FILE", help="replay transcripts; ask nothing of this host"
    )

    def main(self, *more: str) -> int:
        files = (*self.replayed, *more)
        if self.as_transcript:
            _print_transcript(files)
        elif self.as_json:
            hosts = [_table(found, _kind(found)) for _, found in replay.found(files)]
            print(json.dumps(hosts if len(files) > 1 else hosts[0]))
        else:
            for name, found in replay.found(files):
                if len(files) > 1:
                    print(f"{name}:")
                _show(found, _kind(found))
        return 0


def _print_transcript(files: tuple[str, ...]) -> None:
    from medley import transcript
    from medley.errands.examine import examined
    from medley.recognised import answers
    from medley.redaction import Redactor, here

    if len(files) > 1:
        raise Problem(
            "a transcript is of one host",
            cause=f"--from names {len(files)} files",
            fix=f"medley facts --transcript --from {files[0]}",
        )
    said = answers(files[0]) if files else examined(None)
    print(transcript.text((Redactor() if files else here()).transcript(said)), end="")


def _kind(found: "Found") -> "Kind | Problem":
    """A host of no kind still has facts, and they are what its user needs now."""
    from medley import config
    from medley.kind import kind

    try:
        return kind(found, config.hosts())
    except Problem as problem:
        return problem


def _table(found: "Found", chosen: "Kind | Problem") -> dict[str, Any]:
    table = {"system": found.system, **dataclasses.asdict(found)}
    if isinstance(chosen, Problem):
        problem = {"what": chosen.what, "cause": chosen.cause, "fix": chosen.fix}
        return {"kind": None, "problem": problem, **table}
    about = {"name": chosen.name, "title": chosen.host.title, "why": chosen.why, "warning": chosen.warning}
    return {"kind": about, "problem": None, **table}


def _show(found: "Found", chosen: "Kind | Problem") -> None:
    from rich.table import Table

    from medley.cli import terminal
    from medley.facts.summary import summary

    table = Table.grid(padding=(0, 2))
    for name, value in summary(found, chosen):
        table.add_row(name, value)
    terminal.console(sys.stdout).print(table)
