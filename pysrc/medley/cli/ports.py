"""`medley ports`: what medley's things listen on, and how to close it to all but the cluster."""

import dataclasses
import json
import os
import sys
from socket import gethostname
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.verb import Verb
from medley.cli.wrapped import fit
from medley.problem import Problem

if TYPE_CHECKING:  # imported when the verb runs, to keep `medley --help` fast
    from medley.facts import Facts
    from medley.firewall import Ranges, Wire
    from medley.ports import Port

_PORT = cli.Range(1, 65_535)


class Ports(Verb):
    DESCRIPTION = "Show every port that medley's things listen on, or print what closes them."
    DESCRIPTION_MORE = """
ROLE is head, worker, serve, join, pull, test (medley link test) or top (its --web); all of them, if none is
named.

With --firewall it prints rules, and changes nothing itself: who comes by a cluster's wire reaches every port,
and nobody else reaches any of ours. ssh and what is connected already stay as they are. The wire is the one
that this host's cluster has, or that medley would take.

Examples:
    /medley ports
    /medley ports head worker --json
    /medley ports --firewall nftables --link 192.168.100.0/24 | sudo nft -f -
    /medley ports --firewall nftables --open 8000 | sudo nft -f -
    /medley ports --firewall ufw --link enp1s0f0np0 | sudo sh -e
    /medley ports --firewall nftables --undo | sudo nft -f -

"""
    USAGE = "    {progname} [SWITCHES] [ROLE...]\n"
    as_json = cli.Flag("--json", help="print one JSON object", excludes=["--firewall"])
    firewall = cli.SwitchAttr(
        "--firewall",
        cli.Set("nftables", "ufw", "iptables"),
        argname="nftables|ufw|iptables",
        help="print rules for it; iptables is for kernels without nftables, as some Jetsons' are",
    )
    link = cli.SwitchAttr(
        "--link",
        str,
        list=True,
        argname="LINK",
        requires=["--firewall"],
        help="a cluster's wire: an interface, an address or a network; none: no wire",
    )
    opened = cli.SwitchAttr(
        "--open", _PORT, list=True, argname="PORT", requires=["--firewall"], help="leave it open to everyone"
    )
    api = cli.SwitchAttr(
        "--port", _PORT, list=True, argname="PORT", help="where a model is served, if not at 8000"
    )
    undo = cli.Flag("--undo", requires=["--firewall"], help="print what takes the rules back")

    def main(self, *roles: str) -> None:
        from medley import port, ports

        wrong = set(roles) - set(ports.ROLES)
        if wrong:
            raise Problem(
                f"{', '.join(sorted(wrong))} is no role",
                cause=f"there are {', '.join(ports.ROLES)}",
                fix="medley ports",
            )
        asked: Any = self.api
        found = ports.ports(api=tuple(asked) or (ports.API,), picked=port.picked())
        if self.firewall:
            self._close(ports.closed(found))
            return
        chosen = tuple(each for each in found if not roles or set(each.roles) & set(roles))
        _show(chosen, as_json=self.as_json)

    def _close(self, closed: "Ranges") -> None:
        from medley import facts, family, firewall, port
        from medley.recognised import answers

        program: Any = self.firewall
        asked: Any = self.opened
        found = facts.facts(answers())
        opened = {*firewall.ssh_ports(family.environments().values()), *asked}
        rules = firewall.Rules(self._wires(found), closed, tuple(sorted(opened)))
        print(firewall.text(program, rules, undo=self.undo), end="")
        for note in () if self.undo else firewall.notes(rules, found.net, port.outside()):
            print(f"medley: {note}", file=sys.stderr)
        if sys.stdout.isatty():
            print(f"medley: nothing was changed; for that: … | {firewall.APPLIED[program]}", file=sys.stderr)

    def _wires(self, found: "Facts") -> "tuple[Wire, ...]":
        """Those that were named; else the one that the cluster is on, or would be."""
        from medley import firewall, membership, wiring
        from medley.fabric import Wishes

        if self.undo and not self.link and self.firewall == "nftables":
            return ()  # its table goes as a whole
        if self.link:
            return firewall.wires([each for each in self.link if each != "none"], found.net)
        joined = membership.noted()
        if joined:
            return firewall.wires([joined.interface], found.net)
        wired = wiring.of_head(gethostname(), found, Wishes(), os.environ)
        print(f"medley: {next(wired.said())}", file=sys.stderr)
        return firewall.wires(wired.end.lanes or (wired.end.interface,), found.net)


def _show(found: "tuple[Port, ...]", *, as_json: bool) -> None:
    from medley import port

    outside = sorted(port.outside())
    if as_json:
        rows = [
            {
                **dataclasses.asdict(each),
                "outside": each.outside,
                "now": [number for number in outside if each.outside and each.first <= number <= each.last],
            }
            for each in found
        ]
        print(json.dumps({"ports": rows}))
        return
    wide = max(len(each.numbers) for each in found), max(len(each.bound) for each in found)
    for each in found:
        print(
            fit(f"{each.numbers:<{wide[0]}}  {each.bound:<{wide[1]}}  {each.what} ({', '.join(each.roles)})")
        )
        print(fit(f"{'':<{wide[0]}}  for {each.by}: {each.why}"))
    print(fit("TCP, all of them. What is bound to the wire's address, others reach too: see --firewall."))
