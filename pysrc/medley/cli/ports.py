"""`medley ports`."""

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from socket import gethostname
from typing import Any, Literal

from medley import process_identity, serving
from medley.cli import Verb, flag, switch
from medley.cli.output import format_table, print_result, say
from medley.cluster import membership
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import Facts
from medley.host.kind import load_answers
from medley.network import firewall, ports, tcp
from medley.network.fabric import per_host
from medley.network.fabric.types import NetworkOptions
from medley.network.firewall import ClusterInterface, Program, Ranges
from medley.network.ports import Port

_PORT = (1, 65_535)
_MOST = 2


class PortsVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [ROLE...]\n"
    as_json: bool = flag("--json", "one JSON object", excludes=["--firewall"])
    firewall: Literal["nftables", "ufw", "iptables"] | None = switch(
        "--firewall KIND", "rules to print: nftables, ufw or iptables"
    )
    link: list[str] = switch(
        "--link LINK", "interface, address or network of the cluster, or none", requires=["--firewall"]
    )
    opened: list[int] = switch(
        "--open PORT", "port to leave open to everyone", _PORT, requires=["--firewall"]
    )
    limit: int | None = switch(
        "--limit N",
        "connections that one address may have to a port of --open",
        (1, 65_535),
        requires=["--open"],
    )
    api: list[int] = switch("--port PORT", "port of a served model [default: 8000]", _PORT)
    undo: bool = flag("--undo", "print commands that remove the rules", requires=["--firewall"])

    def main(self, *roles: str) -> None:
        wrong = set(roles) - set(ports.ROLES)
        if wrong:
            raise Problem(
                f"{', '.join(sorted(wrong))} is not a role",
                cause=f"roles are {', '.join(ports.ROLES)}",
                fix="medley ports",
            )
        found = ports.list_ports(
            api=tuple(self.api) or (ports.API_PORT,), ephemeral=tcp.read_ephemeral_range()
        )
        if self.firewall:
            self._close(self.firewall, ports.list_closed_ranges(found))
            return
        chosen = tuple(map(_as_bound, (each for each in found if not roles or set(each.roles) & set(roles))))
        outside, listening = sorted(tcp.list_reachable_ports()), list(tcp.list_listeners())
        rows = [
            {
                **asdict(each),
                "auth": _auth(each),
                "outside": each.is_reachable,
                "now": [
                    number for number in outside if each.is_reachable and each.first <= number <= each.last
                ],
                "listening": [
                    {"port": port, "pid": pid, "process": Path(words.split()[0]).name if pid else words}
                    for port, pid, words in listening
                    if each.first <= port <= each.last and ("top" in each.roles) == ("--web" in words)
                ],
            }
            for each in chosen
        ]
        print_result({"ports": rows}, _lines(chosen, rows), as_json=self.as_json)

    def _close(self, program: Program, closed: Ranges) -> None:
        found = facts.read_facts(load_answers())
        opened = {*firewall.list_ssh_ports(process_identity.read_environments().values()), *self.opened}
        if program == "ufw" and self.limit:
            raise Problem(
                "ufw cannot limit the connections of one address",
                cause="its own limit counts attempts: 6 within 30 s",
                fix="--firewall nftables, or iptables",
            )
        limited = tuple(sorted(self.opened)) if self.limit else ()
        rules = firewall.Rules(self._wires(found), closed, tuple(sorted(opened)), limited, self.limit or 0)
        print(firewall.write_rules(program, rules, undo=self.undo), end="")
        for note in () if self.undo else firewall.list_notes(rules, found.net, tcp.list_reachable_ports()):
            say(note)
        if sys.stdout.isatty():
            say(f"nothing was changed; to apply the rules: … | {firewall.APPLY_COMMANDS[program]}")

    def _wires(self, found: Facts) -> tuple[ClusterInterface, ...]:
        """Those that were named; else the one that the cluster is on, or would be."""
        if self.undo and not self.link and self.firewall == "nftables":
            return ()  # its table goes as a whole
        if self.link:
            return firewall.resolve_interfaces([each for each in self.link if each != "none"], found.net)
        if joined := membership.find_membership():
            return firewall.resolve_interfaces([joined.interface], found.net)
        wired = per_host.choose_head_network(gethostname(), found, NetworkOptions(), os.environ)
        say(next(wired.describe()))
        return firewall.resolve_interfaces(wired.endpoint.lanes or (wired.endpoint.interface,), found.net)


def _as_bound(port: Port) -> Port:
    """A model's API with the addresses where it listens now, if it does."""
    found = tcp.list_bound_addresses(port.first) if port.what == ports.MODEL_API else []
    return replace(port, bound=", ".join(found)) if found else port


def _auth(port: Port) -> str:
    """Of a running server by its record, because --api-key changes it."""
    server = serving.find_server(port.first) if port.what == ports.MODEL_API else None
    return port.auth if server is None else "API key" if server.key else "none"


def _lines(found: tuple[Port, ...], rows: list[dict[str, Any]]) -> Iterator[str]:
    headers = ("PORT", "BIND", "PROTOCOL", "WHO", "AUTH", "USE", "LISTENING NOW")
    drawn = (
        (port.numbers, port.bound, "TCP", port.by, row["auth"], port.what, _now(row))
        for port, row in zip(found, rows, strict=True)
    )
    yield from format_table(headers, drawn)
    yield "\nOther hosts reach a port unless it is bound to 127.0.0.1. To close it: medley ports --firewall"


def _now(row: dict[str, Any]) -> str:
    """The processes that listen there, with their port where the row is a range."""
    shown = [
        f"{each['port']} {each['process']}" + (f" (pid {each['pid']})" if each["pid"] else "")
        for each in row["listening"]
    ]
    if row["first"] == row["last"]:
        shown = [each.partition(" ")[2] for each in shown]
    more = [f"{len(shown) - _MOST} more"] if len(shown) > _MOST else []
    return ", ".join([*shown[:_MOST], *more]) or "-"
