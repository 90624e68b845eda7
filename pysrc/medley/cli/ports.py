"""`medley ports`."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import gethostname
from typing import Any, Literal

from medley import process_identity
from medley.cli import Verb, flag, switch
from medley.cli.output import format_table, print_message, print_result
from medley.cluster import membership
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import Facts
from medley.host.kind import load_answers
from medley.network import firewall, ports, tcp
from medley.network.fabric import per_host
from medley.network.fabric.choice import NetworkOptions
from medley.network.firewall import ClusterInterface, FirewallProgram, PortRanges
from medley.network.ports import Port
from medley.serving import server_records

_PORT_RANGE = (1, 65_535)
_MAX_SHOWN_PROCESSES = 2


class PortsVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [ROLE...]\n"
    as_json: bool = flag("--json", "one JSON object", excludes=["--firewall"])
    firewall: Literal["nftables", "ufw", "iptables"] | None = switch(
        "--firewall KIND", "rules to print: nftables, ufw or iptables"
    )
    link: list[str] = switch(
        "--link LINK", "interface, address or network of the cluster, or none", requires=["--firewall"]
    )
    open_ports: list[int] = switch(
        "--open PORT", "port to leave open to everyone", _PORT_RANGE, requires=["--firewall"]
    )
    connection_limit: int | None = switch(
        "--limit N",
        "connections that one address may have to a port of --open",
        (1, 65_535),
        requires=["--open"],
    )
    api_ports: list[int] = switch("--port PORT", "port of a served model [default: 8000]", _PORT_RANGE)
    undo: bool = flag("--undo", "print commands that remove the rules", requires=["--firewall"])

    def main(self, *roles: str) -> None:
        unknown_roles = set(roles) - set(ports.ROLES)
        if unknown_roles:
            raise Problem(
                f"{', '.join(sorted(unknown_roles))} is not a role",
                cause=f"roles are {', '.join(ports.ROLES)}",
                fix="medley ports",
            )
        all_ports = ports.list_ports(
            api=tuple(self.api_ports) or (ports.API_PORT,), ephemeral=tcp.read_ephemeral_range()
        )
        if self.firewall:
            self._print_rules(self.firewall, ports.list_closed_ranges(all_ports))
            return
        chosen_ports = tuple(
            map(
                _add_bound_addresses,
                (each for each in all_ports if not roles or set(each.roles) & set(roles)),
            )
        )
        reachable_ports, listeners = sorted(tcp.list_reachable_ports()), list(tcp.list_listeners())
        rows = [
            {
                **chosen_port.to_table(),
                "auth": _find_auth(chosen_port),
                "outside": chosen_port.is_reachable,
                "now": [
                    number
                    for number in reachable_ports
                    if chosen_port.is_reachable and chosen_port.first <= number <= chosen_port.last
                ],
                "listening": [
                    {"port": port, "pid": pid, "process": Path(words.split()[0]).name if pid else words}
                    for port, pid, words in listeners
                    if chosen_port.first <= port <= chosen_port.last
                    and ("top" in chosen_port.roles) == ("--web" in words)
                ],
            }
            for chosen_port in chosen_ports
        ]
        print_result({"ports": rows}, _list_lines(chosen_ports, rows), as_json=self.as_json)

    def _print_rules(self, program: FirewallProgram, closed_ranges: PortRanges) -> None:
        host_facts = facts.read_facts(load_answers())
        open_ports = {
            *firewall.list_ssh_ports(process_identity.read_environments().values()),
            *self.open_ports,
        }
        if program == "ufw" and self.connection_limit:
            raise Problem(
                "ufw cannot limit the connections of one address",
                cause="its own limit counts attempts: 6 within 30 s",
                fix="--firewall nftables, or iptables",
            )
        limited_ports = tuple(sorted(self.open_ports)) if self.connection_limit else ()
        rules = firewall.FirewallRules(
            self._find_interfaces(host_facts),
            closed_ranges,
            tuple(sorted(open_ports)),
            limited_ports,
            self.connection_limit or 0,
        )
        print(firewall.write_rules(program, rules, undo=self.undo), end="")
        for note in (
            () if self.undo else firewall.list_notes(rules, host_facts.net, tcp.list_reachable_ports())
        ):
            print_message(note)
        if sys.stdout.isatty():
            print_message(f"nothing was changed; to apply the rules: … | {firewall.APPLY_COMMANDS[program]}")

    def _find_interfaces(self, host_facts: Facts) -> tuple[ClusterInterface, ...]:
        """Return the interfaces of --link; else the one that the cluster uses, or would use."""
        if self.undo and not self.link and self.firewall == "nftables":
            return ()  # its table goes as a whole
        if self.link:
            return firewall.resolve_interfaces([link for link in self.link if link != "none"], host_facts.net)
        if joined := membership.find_membership():
            return firewall.resolve_interfaces([joined.interface], host_facts.net)
        head_network = per_host.choose_head_network(gethostname(), host_facts, NetworkOptions(), os.environ)
        print_message(next(head_network.describe()))
        return firewall.resolve_interfaces(
            head_network.endpoint.lanes or (head_network.endpoint.interface,), host_facts.net
        )


def _add_bound_addresses(port: Port) -> Port:
    """Return a model's API with the addresses where it listens now, if it does."""
    addresses = tcp.list_bound_addresses(port.first) if port.what == ports.MODEL_API else []
    return port.replace(bound=", ".join(addresses)) if addresses else port


def _find_auth(port: Port) -> str:
    """Return how a port checks its users: by the record of a running server, because --api-key changes it."""
    server = server_records.find_server(port.first) if port.what == ports.MODEL_API else None
    if server is None:
        return port.auth
    return "API key" if server.key else "none"


def _list_lines(listed_ports: tuple[Port, ...], rows: list[dict[str, Any]]) -> Iterator[str]:
    headers = ("PORT", "BIND", "PROTOCOL", "WHO", "AUTH", "USE", "LISTENING NOW")
    table_rows = (
        (port.numbers, port.bound, "TCP", port.by, row["auth"], port.what, _format_processes(row))
        for port, row in zip(listed_ports, rows, strict=True)
    )
    yield from format_table(headers, table_rows)
    yield "\nOther hosts reach a port unless it is bound to 127.0.0.1. To close it: medley ports --firewall"


def _format_processes(row: dict[str, Any]) -> str:
    """Return the processes that listen there, with their port if the row is a range."""
    processes = [
        f"{listener['port']} {listener['process']}" + (f" (pid {listener['pid']})" if listener["pid"] else "")
        for listener in row["listening"]
    ]
    if row["first"] == row["last"]:
        processes = [process.partition(" ")[2] for process in processes]
    count_text = (
        [f"{len(processes) - _MAX_SHOWN_PROCESSES} more"] if len(processes) > _MAX_SHOWN_PROCESSES else []
    )
    return ", ".join([*processes[:_MAX_SHOWN_PROCESSES], *count_text]) or "-"
