"""perftest's text. None was recorded by us: the shapes are those of published outputs.

Bandwidth: linux-rdma/perftest's issue 234 and outputs of owners of ConnectX cards, with the remark about the
processor's frequency between names and figures. Latency: Spiderpool's RDMA documentation.
"""

import pytest

from medley.link import perftest
from medley.link.perftest import Adapter
from medley.problem import Problem

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
    assert perftest.mbit(BANDWIDTH, "host2") == pytest.approx(98_020)


def test_latency() -> None:
    assert perftest.latency_us(LATENCY, "host2") == pytest.approx(7.04)


@pytest.mark.parametrize(
    ("text", "cause", "fix"),
    [
        pytest.param(
            "Couldn't connect to 10.0.0.2:18515\nUnable to open file descriptor",
            "connect",
            "--serve",
            id="nobody",
        ),
        pytest.param("Couldn't allocate MR\nfailed to create mr", "allocate MR", "ulimit -l", id="memlock"),
        pytest.param("IB device rocep9 not found", "not found", "rdma link", id="no device"),
        pytest.param("", "nothing", "rdma link", id="nothing"),
        pytest.param(BANDWIDTH.replace("Gb/sec", "MiB/sec"), "98.02", "rdma link", id="another unit"),
        pytest.param(BANDWIDTH.replace("98.02", ""), "0.00", "rdma link", id="a figure is missing"),
    ],
)
def test_no_result_is_a_problem(text: str, cause: str, fix: str) -> None:
    with pytest.raises(Problem, match="RDMA to host2 cannot be measured") as raised:
        perftest.mbit(text, "host2")
    assert cause in raised.value.cause
    assert fix in raised.value.fix


def test_commands() -> None:
    """Both sides are told the same, but for the device and its GID."""
    roce, infiniband = Adapter("rocep1s0f0", 1, 3), Adapter("mlx5_0", 2, None)
    assert (
        str(perftest.bandwidth(roce, "10.0.0.2"))
        == "ib_write_bw -d rocep1s0f0 -i 1 -x 3 -F --report_gbits -D 5 -q 4 -p 18515 10.0.0.2"
    )
    assert (
        str(perftest.bandwidth(infiniband, None))
        == "ib_write_bw -d mlx5_0 -i 2 -F --report_gbits -D 5 -q 4 -p 18515"
    )
    assert str(perftest.latency(infiniband, None)) == "ib_write_lat -d mlx5_0 -i 2 -F -n 1000 -p 18516"
