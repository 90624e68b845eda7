"""Ping tells how long a packet takes there and back, and whether one of the full MTU gets through."""

import re
from dataclasses import dataclass

from medley.command import Command

_HEADERS_BYTES = 28  # of IPv4 and ICMP
_INTERVAL_S = 0.2
_LIMIT_S = 1
_MS = r"(\d{1,9}(?:\.\d{1,9})?)"


@dataclass(frozen=True)
class Ping:
    sent: int
    received: int
    average_ms: float | None = None
    worst_ms: float | None = None

    @property
    def lost(self) -> int:
        return self.sent - self.received


def command(host: str, *, source: str, count: int, mtu: int | None = None) -> Command:
    """With `mtu` each packet fills it and must not be split on the way."""
    full = () if mtu is None else ("-M", "do", "-s", str(mtu - _HEADERS_BYTES))
    how = ("-c", str(count), "-i", str(_INTERVAL_S), "-W", str(_LIMIT_S))
    return Command(("ping", "-n", "-I", source, *how, *full, "--", host))


def ping(text: str) -> Ping | None:
    """None where it said something else, as that it may not open a socket."""
    counts = re.search(r"(\d{1,6}) packets transmitted, (\d{1,6}) (?:packets )?received", text)
    if counts is None:
        return None
    times = re.search(rf"= {_MS}/{_MS}/{_MS}(?:/{_MS})? ms", text)
    sent, received = int(counts[1]), int(counts[2])
    return Ping(sent, received, float(times[2]), float(times[3])) if times else Ping(sent, received)
