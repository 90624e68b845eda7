"""`medley up`: one Ray cluster of the hosts in cluster.toml."""

import json
import sys
from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.clustered import Clustered, columns, tables, tell

if TYPE_CHECKING:
    from medley.bringup import Bringup


class Up(Clustered):
    DESCRIPTION = "Bring up the cluster that cluster.toml names: every host at once, over ssh."
    DESCRIPTION_MORE = """
It looks at every host, compares what must be alike, builds what is missing, finds the wire that all share and
whether they reach each other on it, and starts Ray as a unit that outlives this terminal. Say it whenever
unsure: what runs as it should is left alone. A host that cannot take part is named, and the others go on.

Examples:
    /medley up
    /medley up --dry-run            what would be started on each host, and why
    /medley up --without spark-2
    /medley up --cluster desk.toml --json

"""
    dry_run = cli.Flag("--dry-run", help="print the command of each host; build and start nothing")
    as_json = cli.Flag("--json", help="print one JSON object: hosts, addresses, slots, problems")

    def main(self) -> int:
        from medley.bringup import Bringup
        from medley.cli.progress import watch
        from medley.everyone import Everyone, withdraw

        wanted, seen = self.wanted(), watch()
        with Everyone(wanted, seen) as everyone:
            bringup = Bringup(everyone, seen)
            try:
                self._steps(bringup)
            except BaseException:
                withdraw(everyone, bringup.begun, seen)
                raise
            if not self.dry_run:
                self._show(bringup)
            return tell(everyone.failed.values())

    def _steps(self, bringup: "Bringup") -> None:
        bringup.look()
        bringup.wire()
        self.stood = bringup.standing
        for line in bringup.why:
            print(f"medley: {line}", file=sys.stderr)
        if bringup.to_begin and not self.dry_run:
            bringup.prepare()
            bringup.clear()
            bringup.reach()
        if self.dry_run:
            self._foretell(bringup)
            return
        bringup.begin()
        bringup.gather()
        bringup.settle_accounts()

    def _foretell(self, bringup: "Bringup") -> None:
        told = bringup.foretold()
        if self.as_json:
            print(json.dumps(told))
            return
        for name, each in told.items():
            print(f"{name}: {each['command']}\n")
            for what, why in each["why"]:
                print(f"    {what}\n        {why}")
        if not told:
            print("all of it runs already")

    def _show(self, bringup: "Bringup") -> None:
        nodes = {node["address"]: node for node in bringup.nodes if node["alive"]}
        if self.as_json:
            hosts = {
                name: {"address": end.address, "slots": nodes[end.address]["slots"]}
                for name, end in bringup.ends.items()
                if end.address in nodes
            }
            failed = tables(bringup.everyone.failed)
            print(json.dumps({"head": bringup.at, "hosts": hosts, "problems": failed}))
            return
        table = [("host", "role", "address", "wire", "slots", "state")]
        for name in bringup.everyone.cluster.hosts:
            end = bringup.ends.get(name)
            node = nodes.get(end.address) if end else None
            state = "failed" if name in bringup.everyone.failed else "was up" if name in self.stood else "up"
            wire = end.interface if end else "-"
            slots = str(node["slots"]) if node else "-"
            table.append((name, bringup.role(name), end.address if end else "-", wire, slots, state))
        print("\n".join(columns(table)))
        if not bringup.everyone.failed:
            print("\nmedley serve MODEL serves over it, medley status shows it, medley down ends it")
