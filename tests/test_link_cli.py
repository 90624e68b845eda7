"""What `medley link` prints: lines and a table that fit 80 columns, with what is wrong in red."""

import io

import pytest
from rich.console import Console

from medley.cli.link import test, watch
from medley.link.iperf3 import Throughput
from medley.link.ping import Ping
from medley.link.traffic import Rate, Traffic
from medley.link.verdict import Measured, Rdma

BUSY = Rate("enP2p1s0f1np1", rdma=False, in_mbit=97_280.0, out_mbit=0.0125, bad={}, total_bytes=9)
QUIET = Rate("enp1s0f1np1", rdma=False, in_mbit=0.0, out_mbit=0.0, bad={}, total_bytes=9)
LINK = "link    enp1s0f0np0 192.168.100.1, MTU 9000, should carry 100 Gb/s, though it reports 200 Gb/s"
BAD = {"out_of_sequence": 12, "packet_seq_err": 3, "roce_adp_retrans": 99_999, "np_cnp_sent": 5}
SICK = Rate("roceP2p1s0f1/1", rdma=True, in_mbit=1.5, out_mbit=0.0, bad=BAD, total_bytes=9)


def test_lines_are_of_the_links_that_carried_something() -> None:
    assert list(watch.lines(Traffic(2.0, (BUSY, QUIET, SICK), 7))) == [
        "enP2p1s0f1np1    in   97.3 Gb/s  out   12.5 kb/s",
        "roceP2p1s0f1/1   in    1.5 Mb/s  out           0",
        "  ! np_cnp_sent 5, out_of_sequence 12, packet_seq_err 3, roce_adp_retrans 99999",
        "TCP, all links   7 segments sent again",
    ]
    assert list(watch.lines(Traffic(2.0, (QUIET,), 0))) == ["no traffic on 1 links in 2 s"]


def test_the_table_fits_and_shows_what_is_wrong_in_red() -> None:
    shown = io.StringIO()
    console = Console(
        file=shown, width=80, force_terminal=True, color_system="standard", legacy_windows=False
    )
    console.print(watch.table(Traffic(2.0, (BUSY, QUIET, SICK), 7)))
    plain = Console(file=io.StringIO(), width=80)
    plain.print(watch.table(Traffic(2.0, (BUSY, QUIET, SICK), 7)))
    assert isinstance(plain.file, io.StringIO)
    text = plain.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "roceP2p1s0f1/1" in text
    assert "99999" in text
    red = [line for line in shown.getvalue().splitlines() if "\x1b[1;31m" in line]
    assert "roceP2p1s0f1/1" in red[0]
    assert not any("enP2p1s0f1np1" in line for line in red)


@pytest.mark.parametrize(
    ("ping", "rdma", "expected"),
    [
        pytest.param(
            Ping(10, 9, 0.1, 0.25),
            Rdma("rocep1s0f0", 92_570, 2.05),
            [
                LINK,
                "ping    0.100 ms, 0.250 at worst; 9 of 10 came back",
                "TCP     50 Gb/s there, 50% of it; 0 segments sent again",
                "TCP     940 Mb/s back, 1% of it",
                "RDMA    92.6 Gb/s there, 93% of it; 2.05 µs one way (rocep1s0f0)",
            ],
            id="a half of a Spark's cage",
        ),
        pytest.param(
            None,
            None,
            [
                LINK,
                "ping    not answered, which a firewall may do",
                "TCP     50 Gb/s there, 50% of it; 0 segments sent again",
                "TCP     940 Mb/s back, 1% of it",
            ],
            id="TCP alone",
        ),
    ],
)
def test_what_was_measured(ping: Ping | None, rdma: Rdma | None, expected: list[str]) -> None:
    there, back = Throughput(50_000, 0, 10), Throughput(940, None, 10)
    ends = ("192.168.100.2", "enp1s0f0np0", "192.168.100.1", 9000)
    found = Measured(*ends, 200_000, 100_000, ping, None, there, back, rdma)
    assert list(test.lines(found)) == expected
