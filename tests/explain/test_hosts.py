"""A log shows whether its ranks are on one host or on several."""

import pytest

from medley.explain.hosts import Hosts, collect_nccl_line, find_p2p_off, read_hosts


@pytest.mark.parametrize(
    ("figures", "arguments", "expected"),
    [
        ({"world": "2", "loopback": "127."}, "", Hosts("its 2 ranks are on one host")),
        ({"ranks": "4", "nccl_nodes": "1"}, "", Hosts("its 4 ranks are on one host")),
        ({"ranks": "2", "nccl_ranks": "0 1", "nccl_hosts": "a"}, "", Hosts("its 2 ranks are on one host")),
        ({"ranks": "2", "nccl_ranks": "0", "nccl_hosts": "a"}, "", Hosts()),
        ({"ranks": "1", "loopback": "127."}, "", Hosts()),
        ({"world": "2"}, "server_args=ServerArgs(tp_size=2, nnodes=2, node_rank=0)", Hosts(None, "2 hosts")),
        ({"world": "2"}, "server_args=ServerArgs(tp_size=2, nnodes=1)", Hosts("its 2 ranks are on one host")),
        ({"across_hosts": "spans"}, "", Hosts(None, "several hosts")),
        (
            {"nccl_hosts": "a b c", "rdma_first": "r0", "rdma_second": "r1"},
            "",
            Hosts(None, "3 hosts", "3 hosts use two RDMA ports each (r0 and r1)"),
        ),
        ({"nccl_hosts": "a b", "rdma_first": "r0", "rdma_second": "r1"}, "", Hosts(None, "2 hosts")),
    ],
)
def test_hosts_are_counted(figures: dict[str, str], arguments: str, expected: Hosts) -> None:
    assert read_hosts(figures, arguments) == expected


def test_each_host_and_rank_of_nccl_counts_once() -> None:
    figures: dict[str, str] = {}
    for host, rank in (("a", 0), ("a", 0), ("b", 1)):
        collect_nccl_line(figures, host, f"comm 0x1 rank {rank} nranks 2 cudaDev 0")
    assert figures == {"nccl_hosts": "a b", "nccl_ranks": "0 1"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("NCCL_P2P_DISABLE=1 vllm serve m", "NCCL_P2P_DISABLE=1"),
        ("NCCL_P2P_DISABLE set by environment to 1.", "NCCL_P2P_DISABLE=1"),
        ("NCCL_P2P_DISABLE=0", None),
        ("", None),
    ],
)
def test_p2p_that_is_off_is_named(settings: str, expected: str | None) -> None:
    assert find_p2p_off(settings) == expected
