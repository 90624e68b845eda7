"""`medley up`, `down`, `status`."""

import json
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from medley import cluster, serving
from medley.cli import flag, terminal
from medley.cli.cluster_options import Clustered, columns, print_problems, tables
from medley.cli.progress import watch as progress
from medley.cluster import membership, ray_serving, status
from medley.cluster.bringup import Bringup
from medley.cluster.fleet import Fleet, withdraw


class UpVerb(Clustered):
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
    dry_run: bool = flag("--dry-run", help="print the command of each host; build and start nothing")
    as_json: bool = flag("--json", help="print one JSON object: hosts, addresses, slots, problems")

    def main(self) -> int:
        seen = progress()
        with Fleet(self.wanted(), seen) as fleet:
            bringup = Bringup(fleet, seen)
            try:
                self._steps(bringup)
            except BaseException:
                withdraw(fleet, bringup.begun, seen)
                raise
            if not self.dry_run:
                self._show(bringup)
            return print_problems(fleet.failed.values())

    def _steps(self, bringup: Bringup) -> None:
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

    def _foretell(self, bringup: Bringup) -> None:
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

    def _show(self, bringup: Bringup) -> None:
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


class DownVerb(Clustered):
    DESCRIPTION_MORE = """
Logs, engine environments and models stay. It can be said twice; a host that does not answer is named, and the
others are ended.

Examples:
    /medley down
    /medley down --without spark-2

"""
    as_json: bool = flag("--json", help="print one JSON object: processes ended by host, problems")

    def main(self) -> int:
        seen, found = progress(), cluster.read(self.cluster)
        with Fleet(found.without(tuple(self.without)), seen) as fleet, seen.stage("end the cluster"):
            ended = fleet.ask("end", lambda _: {"part": False}, limit_s=180)
        if self.as_json:
            print(json.dumps({"ended": ended, "problems": tables(fleet.failed)}))
        else:
            for name, each in ended.items():
                left = f", left are {each['left']}" if each["left"] else ""
                print(f"{name}: {'ended' if each['ended'] else 'nothing of medley ran'}{left}")
        return print_problems(fleet.failed.values())


class StatusVerb(Clustered):
    DESCRIPTION_MORE = """
Without a cluster.toml it shows the cluster that this host is in, and what is served here.

Examples:
    /medley status
    /medley status --watch
    /medley status --json

"""
    watch: bool = flag("--watch", help="look again every 3 seconds, until Ctrl-C")
    as_json: bool = flag("--json", help="print one JSON object; with --watch one a line")

    def main(self) -> int:
        if not self.cluster and cluster.file() is None:
            self._here()
            return 0
        with Fleet(self.wanted()) as fleet:
            while True:
                text = "\n".join(self._lines(fleet))
                if self.watch and sys.stdout.isatty() and not self.as_json:
                    terminal.clear()
                print(text, flush=True)
                if not self.watch:
                    return 0 if self.as_json else print_problems(fleet.failed.values())
                time.sleep(3)

    def _lines(self, fleet: Fleet) -> list[str]:
        head = fleet.cluster.head
        told = fleet.ask("tell", lambda name: {"nodes": name == head}, limit_s=45)
        found = list(status.host_statuses(fleet.cluster, told, fleet.failed))
        if self.as_json:
            return [json.dumps({"head": head, "hosts": told, "problems": tables(fleet.failed)})]
        closed = self._closed(fleet, status.lost(found, told), told)
        more = list(status.findings(found, told, closed, head))
        return [*columns([status.HEADINGS, *found]), *([""] if more else []), *more]

    def _closed(self, fleet: Fleet, lost: Iterable[str], told: Mapping[str, Any]) -> dict[str, str]:
        """Of hosts that the head lost, why they do not reach it."""
        asked = {}
        for name in lost:
            if part := told[name]["membership"]:
                address, port = part["head"].split(":")
                asked[name] = {"address": part["address"], "places": [["head", address, int(port)]]}
        said = fleet.ask("connect", lambda name: asked[name], limit_s=10, among=list(asked))
        return {name: each["closed"][0][-1] for name, each in said.items() if each["closed"]}

    def _here(self) -> None:
        found, server = membership.noted(), serving.newest()
        nodes = ray_serving.nodes(found) if found else []
        if self.as_json:
            table = {"role": found and found.role, "head": found and found.head, "nodes": nodes}
            print(json.dumps({**table, "serving": server and {"url": server.url, "model": server.model}}))
            return
        print(
            f"this host is the {found.role} of the cluster at {found.head}"
            if found
            else "this host is in no cluster"
        )
        for node in nodes:
            role, state = ("head" if node["head"] else "worker"), ("alive" if node["alive"] else "gone")
            slots = f"{node['slots']} slots, {node['free']} free"
            print(f"  {node['address']:<15}  {node['name']:<16}  {role:<6}  {slots}  {state}")
        how = f" ({server.state})" if server and server.state != "ready" else ""
        print(f"serving {server.model} at {server.url}{how}" if server else "nothing is served here")
