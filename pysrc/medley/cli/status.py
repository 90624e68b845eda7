"""`medley status`: the cluster this host is in, and what is served here."""

import json
from pathlib import Path
from typing import Any

from plumbum import cli

from medley.cli.verb import Verb


class Status(Verb):
    DESCRIPTION = "Show the Ray cluster this host is in, its hosts and slots, and what is served here."
    DESCRIPTION_MORE = """
Examples:
    /medley status
    /medley status --json

"""
    as_json = cli.Flag("--json", help="print one JSON object")

    def main(self) -> None:
        from medley import membership, serving, spreading

        found, server = membership.noted(), serving.newest()
        nodes: list[dict[str, Any]] = []
        if found:
            nodes = membership.ask(spreading.environment(found), Path(found.token), "read", found.head)[
                "nodes"
            ]
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
        print(f"serving {server.model} at {server.url}" if server else "nothing is served here")
