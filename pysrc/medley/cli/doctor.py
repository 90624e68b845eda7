"""`medley doctor`: whether these hosts are fit to serve, and what to type where they are not."""

import json
import platform
import sys
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.clustered import Clustered
from medley.cli.wrapped import fit
from medley.problem import Problem

if TYPE_CHECKING:  # imported by main alone, to keep `medley --help` fast
    from medley.doctor.shapes import Case, Check, Mend, Rule
    from medley.everyone import Everyone

    Found = tuple[tuple[Rule, Check], ...]


class Doctor(Clustered):
    USAGE = "    {progname} [SWITCHES] [--from FILE...]\n"
    DESCRIPTION = "Look at every host before anything is started: a line a check, and what to type."
    DESCRIPTION_MORE = """
It asks the hosts of cluster.toml, or this one where there is none; or it reads what medley facts --transcript
wrote, as in a bug report. The exit code is 1 when something is wrong; what is better otherwise is no error.

Examples:
    /medley doctor
    /medley doctor --brief                 what is not well alone
    /medley doctor --fix                   make the safe changes, each after asking
    /medley doctor --model gpt-oss-120b    and whether that would fit
    /medley doctor --from spark-1.txt spark-2.txt

"""
    replayed = cli.SwitchAttr("--from", str, list=True, argname="FILE", help="replay transcripts; ask nobody")
    model = cli.SwitchAttr("--model", str, argname="NAME", help="look at what this model asks for, too")
    brief = cli.Flag("--brief", help="leave out what is well or not known")
    as_json = cli.Flag("--json", help="print one JSON object: checks, and how many are of each state")
    fix = cli.Flag("--fix", help="make the safe changes after asking, and look again", excludes=["--from"])
    yes = cli.Flag("--yes", help="with --fix: do not ask", requires=["--fix"])
    dry_run = cli.Flag("--dry-run", help="with --fix: show the changes; change nothing", requires=["--fix"])

    def main(self, *more: str) -> int:
        from medley.cli import replay
        from medley.cli.progress import watch
        from medley.everyone import Everyone
        from medley.examining import of_transcripts, wanted

        files, without = (*self.replayed, *more), tuple(self.without)
        if more and not self.replayed:
            raise Problem(
                f"{more[0]!r} is one word too many",
                cause="words are files after --from",
                fix=f"medley doctor --from {' '.join(more)}",
            )
        if files:
            return self._told(self._looked(of_transcripts(replay.answers_by_host(files)), files))
        named: Any = self.cluster
        meant = wanted(named, without)
        if meant is None:
            return self._attended(None)
        with Everyone(meant, watch()) as everyone:
            return self._attended(everyone)

    def _attended(self, everyone: "Everyone | None") -> int:
        """Of hosts that answer, which can be mended too."""
        found = self._looked(self._case(everyone))
        if not self.fix:
            return self._told(found)
        done = self._mended(found, everyone)
        if not done:
            return self._told(found)
        print("medley: looking again", file=sys.stderr)
        return self._told(self._looked(self._case(everyone)))

    def _case(self, everyone: "Everyone | None") -> "Case":
        from medley.cli.progress import watch
        from medley.examining import of_cluster, of_this

        return of_this(platform.node()) if everyone is None else of_cluster(everyone, watch())

    def _looked(self, case: "Case", files: tuple[str, ...] = ()) -> "Found":
        from dataclasses import replace

        from medley.cli.fitting import fits
        from medley.doctor.rules import checks

        named: Any = self.model
        if named:
            case = replace(case, fits=fits(named, case, self.typed, files))
        return tuple(checks(case))

    def _told(self, found: "Found") -> int:
        from medley.doctor import told

        if self.as_json:
            print(json.dumps(told.table(found)))
        else:
            print(fit("\n".join(told.lines(found, brief=bool(self.brief)))))
        return told.status(found)

    def _mended(self, found: "Found", everyone: "Everyone | None") -> int:
        """How many changes were made."""
        from medley.cli.progress import watch
        from medley.cli.talking import agrees
        from medley.doctor import told
        from medley.examining import mend

        done, seen = 0, watch()
        for each in told.mends(found):
            print(f"{_where(each, everyone)}{each.shown}", file=sys.stderr)
            if self.dry_run or not (self.yes or _asked(agrees)):
                continue
            problem = mend(each, everyone, seen)
            if problem:
                print(fit(f"medley: {problem}", sys.stderr), file=sys.stderr)
            else:
                done += 1
        return done


def _where(mend: "Mend", everyone: "Everyone | None") -> str:
    return f"on {mend.host}: " if everyone else ""


def _asked(agrees: Any) -> bool:  # noqa: ANN401 - a function that is imported late
    from medley.cli import talking

    if not talking.is_possible():
        raise Problem(
            "nobody is there to consent",
            cause="this is no terminal",
            fix="read the change above, then: medley doctor --fix --yes",
        )
    return bool(agrees("do this?", default=False))
