"""Decide what is wrong with a measured link: lost packets, the MTU, less than half of its speed."""

from collections.abc import Iterator

from medley.errors import Problem
from medley.measurement.link.result import LinkMeasurement, format_mbit
from medley.measurement.link.tools import Ping
from medley.network.fabric.speed import format_speed

_BUSY_CPU_PERCENT = 90


def find_problems(link: LinkMeasurement) -> Iterator[Problem]:
    """Yield what is wrong with the link; it has to carry half of its expected speed."""
    if are_lost_at_mtu(link.ping, link.full_ping):
        yield mtu_problem(link.host, link.interface, link.mtu)
    elif (ping := link.ping) and 0 < ping.received < ping.sent:
        yield Problem(
            f"{link.interface} loses packets",
            cause=f"{ping.sent - ping.received} of {ping.sent} pings to {link.host} were not answered",
            fix=f"reseat or change the cable; then see its errors on both hosts: medley link watch   "
            f"# or: ethtool -S {link.interface}",
        )
    promised_mbit = link.promised_mbit or 0
    if min(link.there.mbit, link.back.mbit) < promised_mbit / 2:
        yield _slow_problem(link)
    if link.rdma and link.rdma.mbit < promised_mbit / 2:
        yield Problem(
            f"{link.rdma.device} carries less than half of what it should",
            cause=f"RDMA to {link.host}: {format_mbit(link.rdma.mbit)} of {format_speed(promised_mbit)}",
            fix="on both hosts, the lanes in use: medley facts; a Spark with 2 instead of 4: "
            "sudo fwupdmgr update; then its errors under load: medley link watch",
        )


def are_lost_at_mtu(short: Ping | None, full: Ping | None) -> bool:
    return bool(short and short.received and full and not full.received)


def mtu_problem(host: str, interface: str, mtu: int) -> Problem:
    return Problem(
        f"packets of {mtu} bytes do not get through to {host}",
        cause=f"short pings are answered, and those that fill {interface}'s MTU are lost: the other "
        "end or a switch has a smaller one",
        fix=f"one MTU for both ends (and the switch): medley link setup --interface {interface} --mtu N",
    )


def _slow_problem(link: LinkMeasurement) -> Problem:
    slower = min(link.there, link.back, key=lambda direction: direction.mbit)
    if slower.cpu_percent >= _BUSY_CPU_PERCENT:
        fix = "the processor is the limit, not the link: iperf3 3.16 or later uses several cores (iperf3 -v)"
    elif slower.retransmits:
        fix = (
            "packets are lost: medley link watch on both hosts while this runs names the link and its errors"
        )
    else:
        command = f"ethtool {link.interface} | grep -E 'Speed|Duplex'; tc qdisc show dev {link.interface}"
        fix = f"compare both ends: {command}"
    retransmits = "" if slower.retransmits is None else f", {slower.retransmits} segments sent again"
    return Problem(
        f"{link.interface} carries less than half of what it should",
        cause=f"TCP to {link.host}: {format_mbit(link.there.mbit)} there, {format_mbit(link.back.mbit)} "
        f"back, of {format_speed(link.promised_mbit or 0)}; "
        f"iperf3 used {slower.cpu_percent:.0f} % of a core{retransmits}",
        fix=fix,
    )
