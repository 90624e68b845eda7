"""Recorded hosts, and a recorded host once more at other addresses."""

import re
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path

from medley.host.facts import Facts, read_facts
from medley.transcript import parse_transcript

HOSTS = Path(__file__).parents[1] / "host" / "recorded"


# A second host of a sort that was recorded once; what has the same address on each such host keeps it.
AGAIN = {
    "cpu-rack": {"bond0.40": "10.40.0.8", "eno1": "192.168.1.61"},
    "rtx-vpn-docker": {
        "enp5s0": "192.168.1.33 192.168.1.133",
        "wlp6s0": "192.168.1.233",
        "tailscale0": "100.101.102.104",
        "wg0": "10.8.0.3",
        "tun0": "10.9.0.7",
        "zt5u4yabcd": "10.147.17.6",
    },
    "rtx-wifi": {"wlp2s0": "192.168.1.34"},
    "spark-link-local": {
        "enP7s7": "192.168.1.11",
        "enp1s0f1np1": "169.254.17.11",
        "enP2p1s0f1np1": "169.254.33.11",
    },
}


@cache
def recorded(name: str) -> Facts:
    return read_facts(parse_transcript((HOSTS / f"{name}.txt").read_text()))


@cache
def moved(name: str, **addresses: str) -> Facts:
    """The same host with other addresses, by interface: in its answers of ip and its GIDs alike."""
    said = (HOSTS / f"{name}.txt").read_text()
    old = {link.name: link.addresses for link in recorded(name).net.links}
    for interface, new in addresses.items():
        for one, other in zip(old[interface], new.split(), strict=True):
            said = re.sub(rf"(?<![\d.]){re.escape(one.ip)}(?!\d)", other, said)
            said = said.replace(f":ffff:{_hex(one.ip)}", f":ffff:{_hex(other)}")
    return read_facts(parse_transcript(said))


@cache
def with_networks() -> dict[str, Facts]:
    """Every recording that answers what its links are."""
    found = {file.stem: recorded(file.stem) for file in sorted(HOSTS.glob("*.txt"))}
    return {name: facts for name, facts in found.items() if facts.net.links}


def hosts(names: tuple[str, ...]) -> dict[str, Facts]:
    """By name; `again`: a second host of that sort."""
    found = {}
    for name in names:
        sort, _, again = name.partition(" ")
        found[name] = moved(sort, **AGAIN[sort]) if again else recorded(sort)
    return found


def _hex(ip: str) -> str:
    packed = IPv4Address(ip).packed.hex()
    return f"{packed[:4]}:{packed[4:]}"
