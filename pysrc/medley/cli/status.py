"""`medley status`: the cluster of cluster.toml beside how it was wanted, or the one this host is in."""

import json
import sys
import time
from typing import Any

from plumbum import cli

from medley.cli.clustered import Clustered, columns, tables, tell


class Status(Clustered):
    DESCRIPTION = "Show the cluster: hosts, links, Ray, what is served, and what differs from cluster.toml."
    DESCRIPTION_MORE = """
Without a cluster.toml it shows the cluster that this host is in, and what is served here.

Examples:
    /medley status
    /medley status --watch
    /medley status --json

"""
    watch = cli.Flag("--watch", help="look again every 3 seconds, until Ctrl-C")
    as_json = cli.Flag("--json", help="print one JSON object; with --watch one a line")

    def main(self) -> int:
        from medley import cluster

        asked: Any = self.cluster
        if not asked and cluster.file() is None:
            self._here()
            return 0
        return self._watched() if self.watch else self._all()

    def _watched(self) -> int:
        from medley.cli import terminal
        from medley.everyone import Everyone

        with Everyone(self.wanted()) as everyone:
            while True:
                text = "\n".join(self._lines(everyone))
                if sys.stdout.isatty() and not self.as_json:
                    terminal.clear()
                print(text, flush=True)
                time.sleep(3)

    def _all(self) -> int:
        from medley.everyone import Everyone

        with Everyone(self.wanted()) as everyone:
            print("\n".join(self._lines(everyone)))
            return 0 if self.as_json else tell(everyone.failed.values())

    def _lines(self, everyone: Any) -> list[str]:  # noqa: ANN401 - Everyone, which is imported late
        from medley import standing

        head = everyone.cluster.head
        told = everyone.ask("tell", lambda name: {"nodes": name == head}, limit_s=45)
        found = list(standing.standings(everyone.cluster, told, everyone.failed))
        if self.as_json:
            failed = tables(everyone.failed)
            return [json.dumps({"head": head, "hosts": told, "problems": failed})]
        closed = self._closed(everyone, standing.lost(found, told), told)
        more = list(standing.findings(found, told, closed, head))
        return [*columns([standing.HEADINGS, *(each.row for each in found)]), *([""] if more else []), *more]

    def _closed(self, everyone: Any, lost: list[str], told: Any) -> dict[str, str]:  # noqa: ANN401 - the same
        """Of hosts that the head lost, why they do not reach it."""
        asked = {name: _to_head(told[name]["membership"]) for name in lost if told[name]["membership"]}
        said = everyone.ask("connect", lambda name: asked[name], limit_s=10, among=list(asked))
        return {name: each["closed"][0][-1] for name, each in said.items() if each["closed"]}

    def _here(self) -> None:
        from medley import membership, serving, spreading

        found, server = membership.noted(), serving.newest()
        nodes = spreading.nodes(found) if found else []
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


def _to_head(part: dict[str, Any]) -> dict[str, Any]:
    address, port = part["head"].split(":")
    return {"address": part["address"], "places": [["head", address, int(port)]]}
