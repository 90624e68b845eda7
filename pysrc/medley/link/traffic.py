"""Traffic is what the kernel's counters say of links and RDMA ports: readings, and the rates between two."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from medley.facts.answers import first, lines, number, readings
from medley.problem import Problem
from medley.transcript import Transcript

# Of the same moment as the counters, which a clock on our side of the shell is not.
CLOCK = "cut -d ' ' -f 1 /proc/uptime"
_OF_LINKS = ("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
_OF_PORTS = (
    *("counters/port_rcv_data", "counters/port_xmit_data"),
    *("counters/port_rcv_errors", "counters/port_xmit_discards"),
    *("hw_counters/out_of_sequence", "hw_counters/packet_seq_err"),
    *("hw_counters/np_cnp_sent", "hw_counters/roce_adp_retrans"),
)


def _question(folder: str, files: Iterable[str]) -> str:
    """One grep, which passes over what a device does not have."""
    return f"cd {folder} && grep -Hs '' {' '.join(files)} | sed 's/:/ /'"


LINKS = _question("/sys/class/net", ("*/ifindex", *(f"*/statistics/{name}" for name in _OF_LINKS)))
PORTS = _question("/sys/class/infiniband", (f"*/ports/*/{name}" for name in _OF_PORTS))
TCP = "grep '^Tcp:' /proc/net/snmp"

QUESTIONS = (CLOCK, LINKS, PORTS, TCP)

_PORT_WORD_BYTES = 4
"""port_rcv_data and port_xmit_data count words of 32 bits (InfiniBand's PortCounters)."""


@dataclass(frozen=True)
class Reading:
    at_s: float
    links: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By interface, its counters by the kernel's names."""
    ports: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By RDMA device and port, as in `rocep1s0f0/1`."""
    tcp_retransmits: int | None = None


@dataclass(frozen=True)
class Rate:
    """What one link or port did between two readings."""

    name: str
    rdma: bool
    in_mbit: float
    out_mbit: float
    bad: Mapping[str, int]
    """Errors, drops and signs of loss or congestion since the reading before; only those that grew."""
    total_bytes: int
    """Since it is there, both ways."""

    @property
    def quiet(self) -> bool:
        return not (self.in_mbit or self.out_mbit or self.bad)


@dataclass(frozen=True)
class Traffic:
    seconds: float
    rates: tuple[Rate, ...]
    tcp_retransmits: int
    """Of the whole host, whatever the link."""


def reading(answers: Transcript) -> Reading:
    clock = first(answers, CLOCK)
    if clock is None or not clock.replace(".", "", 1).isdigit():
        raise Problem(
            "this host's counters cannot be read",
            cause=f"/proc/uptime says {clock!r}",
            fix="cat /proc/uptime; ls /sys/class/net",
        )
    links: dict[str, dict[str, int]] = {}
    ports: dict[str, dict[str, int]] = {}
    for path, value in (*readings(answers, LINKS), *readings(answers, PORTS)):
        count = _count(value)
        match path.split("/"):
            case [name, *_, counter] if count is not None and "ports" not in path.split("/"):
                links.setdefault(name, {})[counter] = count
            case [device, "ports", port, _, counter] if count is not None:
                ports.setdefault(f"{device}/{port}", {})[counter] = count
    return Reading(float(clock), links, ports, _retransmits(answers))


def _count(value: str) -> int | None:
    """A counter has up to 20 digits, more than other facts do."""
    return int(value) if value.isdecimal() and len(value) <= 20 else None  # noqa: PLR2004 - of 2**64


def _retransmits(answers: Transcript) -> int | None:
    """/proc/net/snmp has a line of names above the line of values."""
    rows = [line.split() for line in lines(answers, TCP)]
    if len(rows) != 2:  # noqa: PLR2004 - names and values
        return None
    return number(dict(zip(*rows, strict=False)).get("RetransSegs"))


def traffic(before: Reading, after: Reading) -> Traffic:
    """The rates between two readings; what was not there in both has none."""
    seconds = after.at_s - before.at_s
    if seconds <= 0:
        raise Problem(
            "no time has passed between two readings",
            cause=f"this host's clock went from {before.at_s} to {after.at_s} s since its start",
            fix="read again, or less often: medley link watch --interval 2",
        )
    rates = (*_links(before, after, seconds), *_ports(before, after, seconds))
    was, now = before.tcp_retransmits, after.tcp_retransmits
    return Traffic(seconds, rates, 0 if was is None or now is None else max(0, now - was))


def _links(before: Reading, after: Reading, seconds: float) -> Iterator[Rate]:
    for name, now in sorted(after.links.items()):
        was = before.links.get(name)
        if was is None or was.get("ifindex") != now.get("ifindex"):
            continue  # a new interface, of an old one's name perhaps
        grown = _grown(was, now)
        yield Rate(
            name=name,
            rdma=False,
            in_mbit=_mbit(grown.get("rx_bytes", 0), seconds),
            out_mbit=_mbit(grown.get("tx_bytes", 0), seconds),
            bad={key: n for key, n in grown.items() if n and not key.endswith(("_bytes", "ifindex"))},
            total_bytes=now.get("rx_bytes", 0) + now.get("tx_bytes", 0),
        )


def _ports(before: Reading, after: Reading, seconds: float) -> Iterator[Rate]:
    for name, now in sorted(after.ports.items()):
        if name not in before.ports:
            continue
        grown = _grown(before.ports[name], now)
        words = now.get("port_rcv_data", 0) + now.get("port_xmit_data", 0)
        yield Rate(
            name=name,
            rdma=True,
            in_mbit=_mbit(grown.get("port_rcv_data", 0) * _PORT_WORD_BYTES, seconds),
            out_mbit=_mbit(grown.get("port_xmit_data", 0) * _PORT_WORD_BYTES, seconds),
            bad={key: n for key, n in grown.items() if n and not key.endswith("_data")},
            total_bytes=words * _PORT_WORD_BYTES,
        )


def _grown(was: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {key: growth(was[key], value) for key, value in now.items() if key in was}


def growth(was: int, now: int) -> int:
    """By how much a counter grew that may have begun anew.

    It wrapped if it was in the upper half of its 32 or 64 bits; else the driver was loaded again, and it
    counts from zero.
    """
    if now >= was:
        return now - was
    bits = 32 if was < 1 << 32 else 64
    return now - was + (1 << bits) if was >= 1 << (bits - 1) else now


def _mbit(count_bytes: int, seconds: float) -> float:
    return count_bytes * 8 / 1e6 / seconds
