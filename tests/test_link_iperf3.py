"""iperf3's JSON: recorded from iperf 3.12 between two hosts of the rack, over 200 Mb/s, two streams."""

from pathlib import Path

import pytest

from medley.link.iperf3 import client, server, throughput
from medley.problem import Problem

RECORDED = Path(__file__).parent / "links"
REFUSED = (
    '{"start": {}, "intervals": [], "end": {}, "error": "unable to connect to server: Connection refused"}'
)


def test_what_was_received_counts() -> None:
    """48190472 bytes in 2.007817 s; what was sent and not yet received would be 203 Mb/s."""
    found = throughput((RECORDED / "iperf3.json").read_text(), "10.78.0.2")
    assert found.mbit == pytest.approx(192.01, abs=0.01)
    assert (found.retransmits, round(found.cpu_percent, 1)) == (0, 2.3)


def test_the_other_direction() -> None:
    found = throughput((RECORDED / "iperf3-reverse.json").read_text(), "10.78.0.2")
    assert 150 < found.mbit < 210


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        pytest.param(
            REFUSED, "nothing answers at host2:5201", "on host2: medley link test --serve", id="nobody"
        ),
        pytest.param(
            '{"error": "unable to connect to server: Connection timed out"}',
            "nothing answers",
            "firewall",
            id="a firewall",
        ),
        pytest.param(
            '{"error": "error - the server is busy running a test. try again later"}',
            "host2 is in another test",
            "medley link test host2",
            id="busy",
        ),
        pytest.param('{"error": "unable to send control message"}', "cannot measure", "ping", id="another"),
        pytest.param("", "cannot measure", "iperf3 --version", id="nothing"),
        pytest.param("iperf3: unrecognized option", "cannot measure", "iperf3 --version", id="an old one"),
        pytest.param("[" * 100_000, "cannot measure", "iperf3 --version", id="deep"),
        pytest.param("[]", "cannot measure", "iperf3 --version", id="a list"),
        pytest.param('{"end": {"sum_received": {}}}', "cannot measure", "iperf3 --version", id="no result"),
    ],
)
def test_no_result_is_a_problem(text: str, what: str, fix: str) -> None:
    with pytest.raises(Problem) as raised:
        throughput(text, "host2")
    assert what in raised.value.what
    assert fix in raised.value.fix


def test_commands() -> None:
    assert str(server("10.0.0.2")) == "iperf3 -s -B 10.0.0.2 -p 5201"
    there = client("10.0.0.2", source="10.0.0.1", seconds=5, streams=4, reverse=False)
    words = "iperf3 -c 10.0.0.2 -p 5201 -B 10.0.0.1 --connect-timeout 3000 -J -i 0 -t 5 -P 4"
    assert str(there) == words
    back = client("10.0.0.2", source="10.0.0.1", seconds=5, streams=4, reverse=True)
    assert str(back) == f"{words} -R"
