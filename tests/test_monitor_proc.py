"""What /proc says, as proc(5) has it."""

import pytest

from medley.monitor import proc
from medley.monitor.sample import Cpu, Memory

STAT = """cpu  100 20 30 1000 50 4 6 0 77 0
cpu0 50 10 15 500 25 2 3 0 40 0
cpu1 50 10 15 500 25 2 3 0 37 0
intr 5
"""
DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  240309     310    0    0    0     0          0         0   240309     310    0    0    0     0       0          0
eth0:1:11556      46    1    2    0     0          0         0     3939      31    3    4    0     0       0          0
"""  # noqa: E501 - as the kernel writes it


def test_busy_and_idle_are_all_there_is() -> None:
    """By hand: 100+20+30+4+6 = 160 ticks busy, 1050 idle; guest time is in the first two already."""
    assert proc.cpu(STAT, "0.25 0.30 0.28 1/300 4242\n") == Cpu(2, 1.6, 10.5, 0.25)


@pytest.mark.parametrize("stat", ["", "cpu\n", "intr 5\n"])
def test_without_a_processor_nothing_is_busy(stat: str) -> None:
    assert (proc.cpu(stat).busy_s, proc.cpu(stat).load) == (0, None)


def test_memory() -> None:
    said = (
        "MemTotal:  127600704 kB\nMemFree: 5 kB\nMemAvailable: 121217332 kB\nSwapTotal: 8 kB\nSwapFree: 6 kB"
    )
    assert proc.memory(said) == Memory(127600704 << 10, 121217332 << 10, 8 << 10, 6 << 10)
    assert proc.memory("") == Memory(0, 0)


def test_links_have_names_with_colons_and_no_space_before_their_numbers() -> None:
    found = proc.links(DEV)
    assert list(found) == ["lo", "eth0:1"]
    assert found["eth0:1"] == {
        "rx_bytes": 11556,
        "rx_errors": 1,
        "rx_dropped": 2,
        "tx_bytes": 3939,
        "tx_errors": 3,
        "tx_dropped": 4,
    }
    assert proc.links("") == {}


def test_retransmits() -> None:
    assert proc.retransmits("Ip: a b\nIp: 1 2\nTcp: RtoMin RetransSegs InErrs\nTcp: 1 292 0\n") == 292
    assert proc.retransmits("Ip: a b\n") is None
