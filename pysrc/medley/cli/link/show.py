"""`medley link show`: which wire a group of hosts would take, why, and why not the others."""

import json
from typing import TYPE_CHECKING, Any, Literal, cast

from plumbum import cli

from medley.cli import replay
from medley.cli.verb import Verb

if TYPE_CHECKING:  # imported by main alone, to keep `medley --help` fast
    from collections.abc import Iterable

    from medley.fabric import Wishes
    from medley.facts import Facts


class Show(Verb):
    USAGE = "    {progname} [SWITCHES] [--from FILE...]\n"
    DESCRIPTION = "Show which wire these hosts would take, why, and why not their other links."
    DESCRIPTION_MORE = """
Each FILE is what `medley facts --transcript` wrote on one host, which is then called after its file. Without
any, it is about the links of this host: what it would bring to a group, the best first.

Examples:
    /medley link show
    /medley link show --from spark-1.txt spark-2.txt
    /medley link show --link enP7s7 --from spark-1.txt spark-2.txt
    /medley link show --json --from spark-1.txt spark-2.txt

"""

    # plumbum starts a line of its help anew only at a bullet; of these, / alone is not printed.
    as_json = cli.Flag("--json", help="print one JSON object, with the variables of each host and the group")
    replayed = cli.SwitchAttr(
        "--from", str, list=True, argname="FILE", help="replay transcripts; ask nothing of this host"
    )
    link = cli.SwitchAttr(
        "--link", str, argname="LINK", help="take this one: an interface, an address, or a network as in CIDR"
    )
    exclude = cli.SwitchAttr(
        "--exclude", str, list=True, argname="IF", help="never take this interface, on any host"
    )
    transport = cli.SwitchAttr(
        "--transport", cli.Set("tcp", "rdma"), argname="tcp|rdma", help="what the data is to go by"
    )

    def main(self, *more: str) -> int:
        from medley.fabric import Wishes

        transport = cast("Literal['tcp', 'rdma'] | None", self.transport)
        wishes = Wishes(self.link, frozenset(self.exclude), transport)
        hosts = replay.by_host((*self.replayed, *more))
        if self.as_json:
            print(json.dumps(_table(hosts, wishes)))
        else:
            _show(hosts, wishes)
        return 0


def _show(hosts: "dict[str, Facts]", wishes: "Wishes") -> None:
    from medley.fabric import fabric, shown
    from medley.fabric.alone import alone

    if len(hosts) > 1:
        _print(shown.lines(fabric(hosts, wishes)))
        return
    for name, facts in hosts.items():
        _print(shown.lines_of_one(alone(name, facts, wishes)))


def _print(lines: "Iterable[tuple[str, str]]") -> None:
    """A heading stands once before lines that share it; nothing is folded, for a fix is to be copied."""
    rows = list(lines)
    width = max(len(heading) for heading, _ in rows)
    before = ("", *(heading for heading, _ in rows))
    for (heading, text), last in zip(rows, before, strict=False):
        print(f"{heading if heading != last else '':<{width}}  {text}")


def _table(hosts: "dict[str, Facts]", wishes: "Wishes") -> dict[str, Any]:
    from medley.fabric import fabric, shown
    from medley.fabric.alone import alone

    table = shown.table(fabric(hosts, wishes), hosts)
    if len(hosts) > 1:
        return table
    ((name, facts),) = hosts.items()
    # Its loopback is what one host uses by itself; what it would bring to a group was asked for.
    return {**table, **shown.table_of_one(alone(name, facts, wishes))}
