"""The wire is the interface, and this host's address on it, by which a cluster reaches this host."""

import ipaddress
import json
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote
from typing import Any

from medley.problem import Problem
from medley.variables import Variable

ADDRESSES = "ip -json -4 address show up"
# Interfaces of containers, tunnels and Jetson's USB gadget: no other host is to be reached by them.
_NEVER = (
    *("lo", "docker", "br-", "veth", "virbr", "cni", "flannel", "cali"),
    *("tailscale", "wg", "tun", "zt", "usb", "l4tbr", "rndis"),
)


@dataclass(frozen=True)
class Wire:
    interface: str
    address: str


def route_question(head: str) -> str:
    """Never the route to an address of the internet: a cluster may have none."""
    return f"ip -json route get {quote(head)}"


def wires(ip_json: str) -> tuple[Wire, ...]:
    """Every IPv4 address that other hosts may reach this one at."""
    return tuple(_wires(json.loads(ip_json or "[]")))


def _wires(links: list[dict[str, Any]]) -> Iterator[Wire]:
    for link in links:
        name = link["ifname"]
        if name.startswith(_NEVER) or "LOOPBACK" in link.get("flags", ()):
            continue
        for address in link.get("addr_info", ()):
            if address.get("family") == "inet":
                yield Wire(name, address["local"])


def own(found: tuple[Wire, ...], asked: str | None) -> Wire:
    """The wire of a head: as asked, by address or by interface, else the only one there is."""
    shown = ", ".join(f"{wire.address} ({wire.interface})" for wire in found) or "none"
    if asked is not None:
        for wire in found:
            if asked in (wire.address, wire.interface):
                return wire
        raise Problem(
            f"this host has no {asked} that others could reach",
            cause=f"its addresses are {shown}",
            fix="give one of these as --address, or bring the link up: ip -brief address",
        )
    match found:
        case [wire]:
            return wire
        case []:
            raise Problem(
                "this host has no address that others could reach",
                cause="every interface that is up is a loopback, a container's or a tunnel's",
                fix="bring a link up (ip -brief link), or name an address: --address 192.168.1.10",
            )
        case _:
            raise Problem(
                "this host has several addresses, and the cluster needs one",
                cause=f"they are {shown}",
                fix=f"name the one on the fast wire: medley ray-head --address {found[0].address}",
            )


def towards(head: str, ip_json: str) -> Wire:
    """The wire of a worker: where its kernel sends what goes to the head."""
    try:
        route = json.loads(ip_json)[0]
        wire = Wire(route["dev"], route["prefsrc"])
    except (ValueError, LookupError, TypeError) as error:
        raise Problem(
            f"this host has no route to {head}",
            cause="ip route get finds none",
            fix=f"join their network: ip route get {head}; ip -brief address",
        ) from error
    if ipaddress.ip_address(wire.address).is_loopback:
        raise Problem(
            f"{head} is this host itself",
            cause=f"the way there is {wire.interface}, the loopback",
            fix="run ray-worker on the other hosts; the head takes part without it",
        )
    return wire


def variables(wire: Wire) -> Iterator[Variable]:
    """What binds every library that talks between hosts to this wire."""
    why = "the wire to the head; else each library guesses an interface of its own"
    # NCCL matches by prefix, so that eth1 would take eth10 too, unless the name begins with =.
    yield Variable("NCCL_SOCKET_IFNAME", f"={wire.interface}", why)
    yield Variable("GLOO_SOCKET_IFNAME", wire.interface, why)
    yield Variable("TP_SOCKET_IFNAME", wire.interface, why)
    yield Variable("UCX_NET_DEVICES", wire.interface, why)
