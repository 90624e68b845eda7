"""`medley collective-test`: what each host can do, a real all-reduce over them, and who holds it up."""

import json
import sys
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.verb import Verb

if TYPE_CHECKING:
    from rich.table import Table

    from medley.collective import Result
    from medley.membership import Membership
    from medley.speeds import Speeds

_LIMIT_S = 60
_KIB = 1 << 10
_GBIT = 1000


class CollectiveTest(Verb):
    DESCRIPTION = "Test the cluster's hosts, each alone and all together: speed, right sums, and who is slow."
    DESCRIPTION_MORE = """
First how fast each GPU, or the CPU of a host without, reads weights and multiplies (4 s; hosts that serve a
model are left out). Then an all-reduce over NCCL where every host has a free GPU (so far not run on
hardware), else over Gloo, which also runs beside a served model: sums, latency and bandwidth of each size,
messages between each two. Every step has a limit. Exit code 1 where a host or a pair is slow, broken or
silent: it is named.

The results are kept in ~/.local/state/medley: collective.json, and measured.json, with which medley plan and
serve count on this host. Outside of a cluster --only speed measures this host.

Examples:
    /medley collective-test
    /medley collective-test --only speed
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
    only = cli.SwitchAttr(
        "--only",
        cli.Set("speed", "wire"),
        argname="WHAT",
        help="speed: of each host alone; wire: between them",
    )
    as_json = cli.Flag(
        "--json", help="print one JSON object: speeds, members, rates, pairs, and what is wrong"
    )

    def main(self) -> None:
        from medley import collective, measuring, membership, trial
        from medley.cli.progress import watch

        sizes, seen = collective.sizes(self.sizes), watch()
        if self.only == "speed" and membership.noted() is None:
            self._end(measuring.of_this_host(seen), None)
            return
        found = trial.cluster()
        chosen = trial.nodes(found, self.hosts, seen, least=1 if self.only == "speed" else 2)
        speeds = result = None
        if self.only != "wire":
            speeds = measuring.of_cluster(found, chosen, self.limit, seen)
            for host in speeds.busy:
                seen.note(f"{host} serves a model, so its speed was not measured")
        if self.only != "speed":
            result = trial.result(found, chosen, sizes, self.limit, seen)
            if result.skipped:
                seen.note(
                    f"no time was left for {len(result.skipped)} pairs; each step gets more with --limit"
                )
        self._end(speeds, result, found)

    def _end(
        self, speeds: "Speeds | None", result: "Result | None", found: "Membership | None" = None
    ) -> None:
        """Keep and show all of it, then what is wrong: first with the wire, for nothing works without."""
        from medley import measured, trial
        from medley.speeds import verdict as of_hosts
        from medley.verdict import verdict as of_wire

        problem = (result and of_wire(result)) or (speeds and of_hosts(speeds)) or None
        measured.keep(speeds.devices if speeds else (), result.wires(trial.now()) if result else ())
        table: dict[str, Any] = {"problem": problem and problem.table}
        table |= (speeds.tables() if speeds else {}) | (result.tables() if result else {})
        if result and found:
            trial.keep(table, found)
        if self.as_json:
            print(json.dumps(table))
        else:
            _show(speeds, result)
        if problem:
            raise problem
        if not self.as_json:
            _all_is_well(speeds, result)


def _all_is_well(speeds: "Speeds | None", result: "Result | None") -> None:
    if result:
        hosts, pairs = len(result.members), len(result.pairs)
        print(f"all is well: {hosts} hosts agree on every sum, and none of {pairs} pairs falls short")
    elif speeds and len(speeds.devices) > 1:
        print("all is well: no device is far below its equals")


def _show(speeds: "Speeds | None", result: "Result | None") -> None:
    from medley.cli.terminal import console as terminal

    console = terminal(sys.stdout)
    if speeds and speeds.devices:
        console.print(_speeds(speeds))
    if result is None:
        return
    if result.backend:
        console.print(f"{len(result.members)} hosts, {result.backend}: {result.why}")
    for table in (_rates(result), _pairs(result)):
        if table.row_count:
            console.print(table)


def _speeds(speeds: "Speeds") -> "Table":
    from rich.table import Table

    from medley.speeds import slow

    table = Table("host", "", "device", "reads", "8 tokens", "256 tokens", "", box=None, pad_edge=False)
    for column in table.columns[:3]:
        column.no_wrap = True
    short = [each for each, _ in slow(speeds)]
    for each in speeds.devices:
        rates = (f"{each.few_tflops:.3g} TFLOPS", f"{each.tflops:.3g} TFLOPS")
        judged = "slow" if each in short else ""
        table.add_row(each.host, str(each.index), each.name, f"{each.gb_s:.3g} GB/s", *rates, judged)
    return table


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
