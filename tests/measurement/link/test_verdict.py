"""Measured links against their expected speeds; ping's output; programs that are missing."""

import pytest

from medley.measurement.link import tools
from medley.measurement.link.measure import find_adapter, find_endpoint
from medley.measurement.link.result import LinkMeasurement, RdmaSpeed
from medley.measurement.link.tools import Ping, Throughput, build_ping_command, read_ping
from medley.measurement.link.verdict import find_problems
from tests.network import networks
from tests.problems import raises_problem

ANSWERED = """\
PING 10.78.0.2 (10.78.0.2) 56(84) bytes of data.
64 bytes from 10.78.0.2: icmp_seq=1 ttl=64 time=0.059 ms

--- 10.78.0.2 ping statistics ---
3 packets transmitted, 3 received, 0% packet loss, time 410ms
rtt min/avg/max/mdev = 0.059/0.067/0.080/0.009 ms
"""
TOO_LONG = """\
ping: local error: message too long, mtu=1500

--- 10.78.0.2 ping statistics ---
2 packets transmitted, 0 received, +2 errors, 100% packet loss, time 204ms
"""
BUSYBOX = """\
2 packets transmitted, 2 packets received, 0% packet loss
round-trip min/avg/max = 0.059/0.067/0.080 ms
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(ANSWERED, Ping(3, 3, 0.067, 0.080), id="answered"),
        pytest.param(TOO_LONG, Ping(2, 0), id="too long"),
        pytest.param(BUSYBOX, Ping(2, 2, 0.067, 0.080), id="busybox"),
        pytest.param("ping: socktype: SOCK_RAW\nOperation not permitted", None, id="not allowed"),
    ],
)
def test_ping(text: str, expected: Ping | None) -> None:
    assert read_ping(text) == expected


def test_a_full_ping_is_the_mtu_less_its_headers() -> None:
    assert "-M do -s 8972 -- 10.0.0.2" in str(
        build_ping_command("10.0.0.2", source="10.0.0.1", count=3, mtu=9000)
    )


FINE = Throughput(9400, 12, 60)
GOOD = LinkMeasurement(
    host="10.0.0.2",
    interface="eth0",
    address="10.0.0.1",
    mtu=9000,
    reported_mbit=10_000,
    promised_mbit=10_000,
    ping=Ping(10, 10, 0.1, 0.2),
    full_ping=Ping(3, 3, 0.1, 0.2),
    there=FINE,
    back=FINE,
)


@pytest.mark.parametrize(
    ("measurement", "expected"),
    [
        pytest.param(GOOD, [], id="as it should be"),
        pytest.param(GOOD.replace(there=Throughput(5000, 0, 1)), [], id="half is enough"),
        pytest.param(
            GOOD.replace(promised_mbit=None, there=Throughput(1, 0, 1)), [], id="nothing is promised"
        ),
        pytest.param(GOOD.replace(ping=Ping(10, 0), full_ping=Ping(3, 0)), [], id="a firewall against pings"),
        pytest.param(GOOD.replace(rdma=RdmaSpeed("mlx5_0", 9000, 2)), [], id="RDMA, too"),
        pytest.param(
            GOOD.replace(back=Throughput(940, 0, 20)),
            [("eth0 carries less than half", "940 Mbit/s back, of 10 Gbit/s", "compare both ends")],
            id="one direction",
        ),
        pytest.param(
            GOOD.replace(there=Throughput(940, 7000, 20)),
            [("eth0 carries less than half", "7000 segments sent again", "packets are lost")],
            id="with losses",
        ),
        pytest.param(
            GOOD.replace(there=Throughput(4000, 3, 99)),
            [("eth0 carries less than half", "99 % of a core", "the processor is the limit")],
            id="the processor",
        ),
        pytest.param(
            GOOD.replace(full_ping=Ping(3, 0)),
            [("packets of 9000 bytes do not get through", "fill eth0's MTU", "--interface eth0 --mtu N")],
            id="MTU",
        ),
        pytest.param(
            GOOD.replace(ping=Ping(10, 8, 0.1, 0.2)),
            [("eth0 loses packets", "2 of 10", "reseat")],
            id="pings are lost",
        ),
        pytest.param(
            GOOD.replace(rdma=RdmaSpeed("mlx5_0", 4900, 2)),
            [("mlx5_0 carries less than half", "4.9 Gbit/s of 10 Gbit/s", "fwupdmgr update")],
            id="RDMA is slow",
        ),
    ],
)
def test_problems(measurement: LinkMeasurement, expected: list[tuple[str, str, str]]) -> None:
    problems = list(find_problems(measurement))
    assert len(problems) == len(expected)
    for problem, (title, cause, fix) in zip(problems, expected, strict=True):
        assert title in problem.what
        assert cause in problem.cause
        assert fix in problem.fix


def test_a_half_of_a_spark_promises_half_of_what_it_reports() -> None:
    """Both its PCIe lanes and its half of the cage are known here: 4 x 32 GT/s."""
    endpoint = find_endpoint(networks.spark(1), None)
    assert (endpoint.link.name, endpoint.link.mbit) == ("enp1s0f0np0", 200_000)
    assert 100_000 <= endpoint.mbit <= 126_100
    assert find_adapter(endpoint, tcp_only=True) is None
    adapter = find_adapter(endpoint, tcp_only=False)
    assert adapter is not None
    assert (adapter.device, adapter.gid_index) == ("rocep1s0f0", 3)


def test_the_end_that_was_asked_for_is_taken() -> None:
    assert str(find_endpoint(networks.spark(1), "enP2p1s0f0np0").ip) == "192.168.101.1"
    with raises_problem("eth7", cause="enP2p1s0f0np0 192.168.101.1/24", fix="ip -brief address"):
        find_endpoint(networks.spark(1), "eth7")
    with raises_problem(cause="lo: ", fix=("ip -brief link", "medley link setup")):
        find_endpoint(networks.host(()), None)


@pytest.mark.parametrize(
    ("names", "what", "fix"),
    [
        pytest.param(
            ("iperf3",),
            "iperf3 is not installed",
            "sudo apt-get install iperf3\nor: nix shell nixpkgs#iperf3",
            id="one",
        ),
        pytest.param(
            ("ib_write_bw", "ib_write_lat"),
            "ib_write_bw and ib_write_lat are not installed",
            "sudo apt-get install perftest\nor: nix shell nixpkgs#perftest; or leave RDMA out: --tcp",
            id="two of one package",
        ),
    ],
)
def test_missing_programs(names: tuple[str, ...], what: str, fix: str) -> None:
    problem = tools.missing_programs_problem(names)
    assert (problem.what, problem.fix) == (what, fix)
