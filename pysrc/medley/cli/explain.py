"""`medley explain`: what failed, out of logs."""

import json
import sys
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.verb import Verb
from medley.cli.wrapped import fit
from medley.problem import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from medley.explain.chosen import Explained, Found


class Explain(Verb):
    DESCRIPTION = (
        "Say what failed, why, and what to type, out of the logs of an engine, Ray, NCCL or the kernel."
    )
    DESCRIPTION_MORE = """
Several logs are those of several hosts or ranks: what came first is named. Without one it reads what medley
itself kept last on this host; - is standard input. The exit code is 1 where something is wrong.

Examples:
    /medley explain
    /medley explain head.log spark-2.log
    /docker logs vllm 2>&1 | medley explain -
    /medley explain --json serve.log
    /medley explain --report report.txt serve.log

"""
    USAGE = "    {progname} [SWITCHES] [LOG...]\n"

    as_json = cli.Flag("--json", help="print one JSON object: a list of problems, empty where there is none")
    report = cli.SwitchAttr(
        "--report", str, argname="FILE", help="write a report to attach: this host, the log, no secrets"
    )

    def _parse_args(self, argv: list[str]) -> Any:  # noqa: ANN401 - plumbum's own matter, passed on
        """Plumbum takes - for a switch."""
        from medley.kept_logs import STANDARD_INPUT

        return super()._parse_args([STANDARD_INPUT if word == "-" else word for word in argv])

    def main(self, *logs: str) -> int:
        from medley import kept_logs
        from medley.explain import explained

        found = explained(kept_logs.named(logs) if logs else kept_logs.newest())
        self._say_what_is_empty(found)
        written = self._reported(found)
        if self.as_json:
            print(json.dumps({**_table(found), **({"report": str(written)} if written else {})}))
        else:
            _print(found)
            if written:
                print(fit(f"a report to attach, without secrets: {written}"))
        return 1 if found.problems else 0

    def _say_what_is_empty(self, found: "Explained") -> None:
        """Of a program's answer it takes nothing away: in an empty log no problem is known."""
        empty = [scan.name for scan in found.scans if scan.empty]
        if empty and len(empty) == len(found.scans) and not self.as_json:
            raise _empty(empty)
        for name in empty:
            print(f"medley: {name} is empty", file=sys.stderr)

    def _reported(self, found: "Explained") -> "Path | None":
        from pathlib import Path

        from medley import reported

        asked: Any = self.report
        if not asked and not found.unknown:
            return None
        return reported.write(found, Path(asked) if asked else None)


def _empty(names: list[str]) -> Problem:
    return Problem(
        f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} empty",
        cause="what a program writes to its standard error is often left out: it needs 2>&1",
        fix="medley explain              # what medley itself kept last on this host\n"
        "docker logs NAME 2>&1 | medley explain -\n"
        "journalctl -u UNIT | medley explain -",
    )


def _table(found: "Explained") -> dict[str, Any]:
    return {"problems": [each.table for each in found.problems]}


def _print(found: "Explained") -> None:
    for each in found.problems:
        print(fit(_text(each)))
    if not found.problems:
        lines = sum(scan.lines for scan in found.scans)
        print(fit(f"no failure is in {', '.join(scan.name for scan in found.scans)} ({lines} lines)"))


def _text(found: "Found") -> str:
    table = found.table
    lead = "then, and perhaps because of it: " if found.follows else ""
    sure = "" if found.confidence == "high" else f"\n  sure:  {found.confidence}"
    also = "".join(f"\n  also:  {place}" for place in found.also)
    where = f"{table['file']}:{table['line_number']}"
    return f"{lead}{found.problem()}\n  line:  {where}: {table['line']}{also}{sure}"
