"""What /proc says of processor, memory, links and TCP, read from its text."""

import re
from collections.abc import Mapping

from medley.monitor.sample import Cpu, Memory

# Linux' USER_HZ, in which /proc/stat counts: https://man7.org/linux/man-pages/man5/proc_stat.5.html
TICKS = 100
_IDLE = (3, 4)
"""The fields `idle` and `iowait`; guest time, the ninth on, is counted in the first two already."""
_OWN_TIME = 8
_LINK_FIELDS = {
    "rx_bytes": 0,
    "rx_errors": 2,
    "rx_dropped": 3,
    "tx_bytes": 8,
    "tx_errors": 10,
    "tx_dropped": 11,
}


def cpu(stat: str, loadavg: str = "") -> Cpu:
    """Of /proc/stat and /proc/loadavg."""
    rows = [line.split() for line in stat.splitlines() if line.startswith("cpu")]
    ticks = [int(each) for each in rows[0][1:][:_OWN_TIME]] if rows else [0] * _OWN_TIME
    idle = sum(ticks[at] for at in _IDLE if at < len(ticks))
    load = re.match(r"([0-9.]+) ", loadavg)
    return Cpu(
        threads=len(rows) - 1 if len(rows) > 1 else 1,
        busy_s=(sum(ticks) - idle) / TICKS,
        idle_s=idle / TICKS,
        load=float(load[1]) if load else None,
    )


def memory(meminfo: str) -> Memory:
    """Of /proc/meminfo, which says kB and means KiB."""
    found = {
        key: int(kib) << 10 for key, kib in re.findall(r"^(\w+):\s+(\d{1,15}) kB", meminfo, re.MULTILINE)
    }
    return Memory(
        total_bytes=found.get("MemTotal", 0),
        available_bytes=found.get("MemAvailable", found.get("MemFree", 0)),
        swap_total_bytes=found.get("SwapTotal", 0),
        swap_free_bytes=found.get("SwapFree", 0),
    )


def links(dev: str) -> Mapping[str, Mapping[str, int]]:
    """Of /proc/net/dev, by interface: a name may hold anything but a space or a slash."""
    found = {}
    for line in dev.splitlines()[2:]:
        name, colon, rest = line.rpartition(":")
        values = rest.split()
        if colon and len(values) > max(_LINK_FIELDS.values()) and all(each.isdecimal() for each in values):
            found[name.strip()] = {key: int(values[at]) for key, at in _LINK_FIELDS.items()}
    return found


def retransmits(snmp: str) -> int | None:
    """Of /proc/net/snmp, which has a line of names above the line of values."""
    rows = [line.split() for line in snmp.splitlines() if line.startswith("Tcp:")]
    if len(rows) != 2:  # noqa: PLR2004 - names and values
        return None
    told = dict(zip(*rows, strict=False)).get("RetransSegs", "")
    return int(told) if told.isdecimal() else None
