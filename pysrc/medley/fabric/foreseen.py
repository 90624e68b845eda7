"""What a host may expect of a fabric before it knows others: as if its like were at each of its links."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface

from medley.fabric import fabric
from medley.fabric.readdressed import readdressed
from medley.fabric.shapes import Fabric, Wishes
from medley.fabric.ways import ways
from medley.facts import Facts
from medley.problem import Problem

_PEER = "its like"  # no host has this name


def foreseen(host: str, facts: Facts, wishes: Wishes) -> Fabric:
    """The fabric of this host and its mirror image, without the image; a Problem where nothing leads out."""
    found, rejected = ways(host, facts, wishes)
    if not found:
        shown = "; ".join(f"{one.interface}: {one.why}" for one in rejected)
        raise Problem(
            "this host has no address that others could reach",
            cause=shown or "it has no network interface",
            fix="bring a link up (ip -brief link), or name one: --link INTERFACE",
        )
    one_sided = replace(wishes, link={host: wishes.link} if isinstance(wishes.link, str) else wishes.link)
    both = fabric({host: facts, _PEER: readdressed(facts, _neighbour)}, one_sided)
    return replace(
        both,
        ends={host: both.ends[host]},
        findings=(),
        rejected=tuple(one for one in both.rejected if one.host == host),
    )


def _neighbour(at: IPv4Interface) -> str:
    """The address after it; the one before, where that is the network's last."""
    following = IPv4Address(int(at.ip) + 1) if int(at.ip) < 2**32 - 1 else at.ip
    fits = following in at.network and following != at.network.broadcast_address
    return str(following if fits else IPv4Address(int(at.ip) - 1))
