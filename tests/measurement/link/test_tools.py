"""iperf3's JSON: recorded from iperf 3.12 between two hosts of the rack, over 200 Mb/s, two streams.

Bandwidth: linux-rdma/perftest's issue 234 and outputs of owners of ConnectX cards, with the remark about the
processor's frequency between names and figures. Latency: Spiderpool's RDMA documentation.
"""

from pathlib import Path

import pytest

from medley.errors import Problem
from medley.measurement.link import tools
from medley.measurement.link.tools import Adapter, build_client_command, build_server_command, read_throughput
from tests.problems import raises_problem

RECORDED = Path(__file__).parents[2] / "measurement" / "link" / "results"
REFUSED = (
    '{"start": {}, "intervals": [], "end": {}, "error": "unable to connect to server: Connection refused"}'
)


def test_what_was_received_counts() -> None:
    """48190472 bytes in 2.007817 s; what was sent and not yet received would be 203 Mb/s."""
    result = read_throughput((RECORDED / "iperf3.json").read_text(), "10.78.0.2")
    assert result.mbit == pytest.approx(192.01, abs=0.01)
    assert (result.retransmits, round(result.cpu_percent, 1)) == (0, 2.3)


def test_the_other_direction() -> None:
    result = read_throughput((RECORDED / "iperf3-reverse.json").read_text(), "10.78.0.2")
    assert 150 < result.mbit < 210


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
        read_throughput(text, "host2")
    assert what in raised.value.what
    assert fix in raised.value.fix


def test_commands() -> None:
    assert str(build_server_command("10.0.0.2")) == "iperf3 -s -B 10.0.0.2 -p 5201"
    forward = build_client_command("10.0.0.2", source="10.0.0.1", seconds=5, streams=4, reverse=False)
    expected = "iperf3 -c 10.0.0.2 -p 5201 -B 10.0.0.1 --connect-timeout 3000 -J -i 0 -t 5 -P 4"
    assert str(forward) == expected
    backward = build_client_command("10.0.0.2", source="10.0.0.1", seconds=5, streams=4, reverse=True)
    assert str(backward) == f"{expected} -R"


RULE = "-" * 87
HEAD = f"""\
{RULE}
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : rocep1s0f0
 Number of qps   : 4\t\tTransport type : IB
 Link type       : Ethernet
 GID index       : 3
{RULE}
 local address: LID 0000 QPN 0x008a PSN 0xfffb6d RKey 0x238f86 VAddr 0x007dd5a3cfd000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:100:10
{RULE}
"""
BANDWIDTH = f"""{HEAD}\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 1500.000000 != 3300.016000. CPU Frequency is not max.
 65536      560845           0.00               98.02                0.186950
{RULE}
"""
LATENCY = f"""{HEAD}\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
99% percentile[usec]   99.9% percentile[usec]
Conflicting CPU frequency values detected: 2200.000000 != 1040.353000. CPU Frequency is not max.
 2       1000          6.88           16.81        7.04              7.06         0.31      7.38        16.81
{RULE}
"""


def test_bandwidth() -> None:
    assert tools.read_mbit(BANDWIDTH, "host2") == pytest.approx(98_020)


def test_latency() -> None:
    assert tools.read_latency_us(LATENCY, "host2") == pytest.approx(7.04)


@pytest.mark.parametrize(
    ("text", "cause", "fix"),
    [
        pytest.param(
            "Couldn't connect to 10.0.0.2:18515\nUnable to open file descriptor",
            "connect",
            "medley link test --serve",
            id="nobody",
        ),
        pytest.param("Couldn't allocate MR\nfailed to create mr", "allocate MR", "ulimit -l", id="memlock"),
        pytest.param("IB device rocep9 not found", "not found", "rdma link", id="no device"),
        pytest.param("", "nothing", "rdma link", id="nothing"),
        pytest.param(BANDWIDTH.replace("Gb/sec", "MiB/sec"), "98.02", "rdma link", id="another unit"),
        pytest.param(BANDWIDTH.replace("98.02", ""), "0.00", "rdma link", id="a figure is missing"),
    ],
)
def test_link_perftest_no_result_is_a_problem(text: str, cause: str, fix: str) -> None:
    with raises_problem("RDMA ", "host2", cause=cause, fix=fix):
        tools.read_mbit(text, "host2")


def test_link_perftest_commands() -> None:
    """Both sides are told the same, but for the device and its GID."""
    roce, infiniband = Adapter("rocep1s0f0", 1, 3), Adapter("mlx5_0", 2, None)
    assert (
        str(tools.build_bandwidth_command(roce, "10.0.0.2"))
        == "ib_write_bw -d rocep1s0f0 -i 1 -x 3 -F --report_gbits -D 5 -q 4 -p 18515 10.0.0.2"
    )
    assert (
        str(tools.build_bandwidth_command(infiniband, None))
        == "ib_write_bw -d mlx5_0 -i 2 -F --report_gbits -D 5 -q 4 -p 18515"
    )
    assert (
        str(tools.build_latency_command(infiniband, None))
        == "ib_write_lat -d mlx5_0 -i 2 -F -n 1000 -p 18516"
    )
