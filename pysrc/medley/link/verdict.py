"""A verdict holds what was measured on a wire against what its link should carry."""

from collections.abc import Iterator
from dataclasses import dataclass

from medley.fabric.speed import shown
from medley.link.iperf3 import Throughput
from medley.link.ping import Ping
from medley.problem import Problem

_BUSY_PERCENT = 90


@dataclass(frozen=True)
class Rdma:
    device: str
    mbit: float
    latency_us: float


@dataclass(frozen=True)
class Measured:
    host: str
    interface: str
    address: str
    """Of this end."""
    mtu: int
    reported_mbit: int | None
    """As the driver says."""
    promised_mbit: int | None
    """What it can really carry: of a Spark's half, half of what is reported."""
    ping: Ping | None
    full_ping: Ping | None
    """With packets as long as the MTU."""
    there: Throughput
    back: Throughput
    rdma: Rdma | None = None


def problems(found: Measured) -> Iterator[Problem]:
    """What is wrong with the wire; nothing, where it carries at least half of what it should."""
    if are_too_long(found.ping, found.full_ping):
        yield too_long(found.host, found.interface, found.mtu)
    elif found.ping and 0 < found.ping.received < found.ping.sent:
        yield _lossy(found, found.ping)
    promised = found.promised_mbit or 0
    if min(found.there.mbit, found.back.mbit) < promised / 2:
        yield _slow(found)
    if found.rdma and found.rdma.mbit < promised / 2:
        yield _slow_rdma(found, found.rdma)


def are_too_long(short: Ping | None, full: Ping | None) -> bool:
    return bool(short and short.received and full and not full.received)


def too_long(host: str, interface: str, mtu: int) -> Problem:
    return Problem(
        f"packets of {mtu} bytes do not get through to {host}",
        cause=f"short pings are answered, and those that fill {interface}'s MTU are lost: the other "
        "end or a switch has a smaller one",
        fix=f"one MTU for both ends (and the switch): medley link setup --interface {interface} --mtu N",
    )


def _lossy(found: Measured, ping: Ping) -> Problem:
    return Problem(
        f"{found.interface} loses packets",
        cause=f"{ping.lost} of {ping.sent} pings to {found.host} were not answered",
        fix=f"reseat or change the cable; then see its errors on both hosts: medley link watch   "
        f"# or: ethtool -S {found.interface}",
    )


def _slow(found: Measured) -> Problem:
    worse = min(found.there, found.back, key=lambda one: one.mbit)
    retransmits = "" if worse.retransmits is None else f", {worse.retransmits} segments sent again"
    return Problem(
        f"{found.interface} carries less than half of what it should",
        cause=f"TCP to {found.host}: {shown_mbit(found.there.mbit)} there, {shown_mbit(found.back.mbit)} "
        f"back, of {shown(found.promised_mbit or 0)}; "
        f"iperf3 used {worse.cpu_percent:.0f} % of a core{retransmits}",
        fix=_cure(found, worse),
    )


def _cure(found: Measured, worse: Throughput) -> str:
    if worse.cpu_percent >= _BUSY_PERCENT:
        return "the processor is the limit, not the wire: iperf3 3.16 or later uses several cores (iperf3 -v)"
    if worse.retransmits:
        return (
            "packets are lost: medley link watch on both hosts while this runs names the link and its errors"
        )
    return (
        f"compare both ends: ethtool {found.interface} | grep -E 'Speed|Duplex'; "
        f"tc qdisc show dev {found.interface}"
    )


def _slow_rdma(found: Measured, rdma: Rdma) -> Problem:
    return Problem(
        f"{rdma.device} carries less than half of what it should",
        cause=f"RDMA to {found.host}: {shown_mbit(rdma.mbit)} of {shown(found.promised_mbit or 0)}",
        fix="on both hosts, the lanes in use: medley facts; a Spark with 2 instead of 4: "
        "sudo fwupdmgr update; then its errors under load: medley link watch",
    )


def shown_mbit(mbit: float) -> str:
    """With three digits, in the unit that fits."""
    return f"{mbit / 1000:.3g} Gb/s" if mbit >= 1000 else f"{mbit:.3g} Mb/s"  # noqa: PLR2004 - of the unit
