"""The managers that may keep a host's addresses: which of them does, and what each has of ours."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from medley.facts.answers import first, lines
from medley.facts.software import MARKS
from medley.link import netplan
from medley.problem import Problem
from medley.transcript import NO_ANSWER, Transcript

NAMES = ("netplan", "networkmanager", "nixos", "ip")

PROGRAMS = "for p in netplan nmcli; do command -v $p; done"
NETPLANS = "ls /etc/netplan/*.yaml"
OUR_NETPLAN = f"cat {netplan.PATH}"
NETWORK_MANAGER = "nmcli -t -f RUNNING general"
ACTIVE = "nmcli -t -f UUID,DEVICE connection show --active"
OUR_PROFILES = (
    "nmcli -g NAME connection show | grep '^medley-' | while read -r n; do"
    ' echo "$n $(nmcli -g ipv4.addresses,802-3-ethernet.mtu connection show "$n" | tr "\\n" " ")"; done'
)
UP = "ip -brief link show up"

QUESTIONS = (MARKS, PROGRAMS, NETPLANS, OUR_NETPLAN, NETWORK_MANAGER, ACTIVE, OUR_PROFILES, UP)


@dataclass(frozen=True)
class Managers:
    usable: frozenset[str] = frozenset({"ip"})
    chosen: str = "ip"
    why: str = ""
    our_netplan: str | None = None
    """The text of our file; None where there is none."""
    readable: bool = True
    """Whether our file, where there is one, could be read."""
    profiles: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """NetworkManager's connections of ours, by interface: address and MTU."""
    active: Mapping[str, str] = field(default_factory=dict)
    """NetworkManager's connection of each interface, by its UUID."""
    up: frozenset[str] = frozenset()
    """Links that are administratively up, with a cable or without."""


def managers(answers: Transcript, named: str | None = None) -> Managers:
    usable, why = _usable(answers)
    if named is not None and named not in usable:
        raise Problem(
            f"{named} does not keep this host's addresses",
            cause=f"found are {', '.join(sorted(usable))}: {why}",
            fix=f"leave --with out, or: --with {min(usable)}",
        )
    ours = answers.get(OUR_NETPLAN, NO_ANSWER)
    there = str(netplan.PATH) in lines(answers, NETPLANS)
    return Managers(
        usable=usable,
        chosen=named or next(name for name in ("nixos", "netplan", "networkmanager", "ip") if name in usable),
        why="as --with says" if named else why,
        our_netplan=ours.text if there and not ours.status else None,
        readable=not (there and ours.status),
        profiles=dict(_profiles(answers)),
        active={device: uuid for uuid, _, device in (line.partition(":") for line in lines(answers, ACTIVE))},
        up=frozenset(line.split()[0].partition("@")[0] for line in lines(answers, UP)),
    )


def _usable(answers: Transcript) -> tuple[frozenset[str], str]:
    programs = {PurePosixPath(path).name for path in lines(answers, PROGRAMS)}
    found, why = {"ip"}, "neither netplan nor NetworkManager runs here"
    if "nmcli" in programs and first(answers, NETWORK_MANAGER) == "running":
        found.add("networkmanager")
        why = "NetworkManager runs, and /etc/netplan has no file"
    if "netplan" in programs and lines(answers, NETPLANS):
        found.add("netplan")
        why = "/etc/netplan has files"
    if "/etc/NIXOS" in lines(answers, MARKS):
        # Whatever else runs there, the configuration makes it.
        return frozenset({"nixos", "ip"}), "NixOS, whose configuration is the one place for it"
    return frozenset(found), why


def _profiles(answers: Transcript) -> list[tuple[str, tuple[str, str]]]:
    found = (re.fullmatch(r"medley-(\S+) (\S+) (\S+) *", line) for line in lines(answers, OUR_PROFILES))
    return [(each[1], (each[2], each[3])) for each in found if each]
