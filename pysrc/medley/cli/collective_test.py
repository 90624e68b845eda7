"""`medley collective-test`: a real all-reduce over the hosts of the cluster, and who holds it up."""

import json
from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.verb import Verb

if TYPE_CHECKING:
    from rich.table import Table

    from medley.collective import Result

_LIMIT_S = 60
_KIB = 1 << 10
_GBIT = 1000


class CollectiveTest(Verb):
    DESCRIPTION = "All-reduce over every host of the running Ray cluster: right sums, speed, and who is slow."
    DESCRIPTION_MORE = """
Over NCCL where every host has a free GPU (so far not run on hardware), else over Gloo, which also runs beside
a served model. Sums first, then latency and bandwidth of each size, then messages between each two hosts.
Every step has a limit. Exit code 1 where a host or a pair is slow, broken or silent: it is named. The result
is kept in ~/.local/state/medley/collective.json.

Examples:
    /medley collective-test
    /medley collective-test --hosts 2 --sizes 64K,1M
    /medley collective-test --limit 300         over a slow network
    /medley collective-test --json

"""
    hosts = cli.SwitchAttr(
        "--hosts", cli.Range(2, 1024), argname="N", help="over so many, this one first; default: all"
    )
    sizes = cli.SwitchAttr(
        "--sizes", str, argname="SIZES", default="8,64K,1M,16M", help="of messages, in bytes; K, M and G"
    )
    limit = cli.SwitchAttr(
        "--limit", cli.Range(5, 3600), argname="SECONDS", default=_LIMIT_S, help="of each step"
    )
    as_json = cli.Flag("--json", help="print one JSON object: members, rates, pairs, and what is wrong")

    def main(self) -> None:
        from medley import collective, trial
        from medley.cli.progress import watch
        from medley.verdict import verdict

        sizes = collective.sizes(self.sizes)
        found = trial.cluster()
        seen = watch()
        chosen = trial.nodes(found, self.hosts, seen)
        result = trial.result(found, chosen, sizes, self.limit, seen)
        problem = verdict(result)
        table = result.tables(problem)
        trial.keep(table, found)
        if self.as_json:
            print(json.dumps(table))
        else:
            _show(result)
        if result.skipped:
            seen.note(f"no time was left for {len(result.skipped)} pairs; each step gets more with --limit")
        if problem:
            raise problem
        if not self.as_json:
            hosts, pairs = len(result.members), len(result.pairs)
            print(f"all is well: {hosts} hosts agree on every sum, and none of {pairs} pairs falls short")


def _show(result: "Result") -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if result.backend:
        console.print(f"{len(result.members)} hosts, {result.backend}: {result.why}", markup=False)
    for table in (_rates(result), _pairs(result)):
        if table.row_count:
            console.print(table)


def _rates(result: "Result") -> "Table":
    from rich.table import Table

    table = Table("all-reduce", "latency", "algorithm", "bus", box=None, pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    for rate in result.rates:
        seconds = rate.seconds
        latency = f"{seconds * 1e6:.0f} µs" if seconds else "left out: it would take too long"
        table.add_row(_bytes(rate.bytes), latency, _mbit(rate.algorithm_mbit), _mbit(rate.bus_mbit))
    return table


def _pairs(result: "Result") -> "Table":
    from rich.table import Table

    from medley.verdict import expected_mbit, pairs_that_fall_short

    table = Table("pair", "there", "back", "latency", "its links", "", box=None, pad_edge=False)
    short = pairs_that_fall_short(result)
    for pair in result.pairs:
        names = " - ".join(result.members[address].name for address in (pair.one, pair.two))
        there, back = pair.mbit or (None, None)
        latency = f"{pair.latency_us:.0f} µs" if pair.latency_us else ""
        judged = "fails" if pair.said else "falls short" if pair in short else ""
        expected = _mbit(expected_mbit(result, pair)) or "unknown"
        table.add_row(names, _mbit(there), _mbit(back), latency, expected, judged)
    return table


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < _KIB:
            return f"{size:g} {unit}"
        size /= _KIB
    return f"{size:g} GiB"


def _mbit(mbit: float | None) -> str:
    return "" if mbit is None else f"{mbit:.3g} Mbit/s" if mbit < _GBIT else f"{mbit / 1000:.3g} Gbit/s"
