"""Read from a log whether its ranks are on one host or on several."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from medley.explain.flags import read_flags

NCCL_HOSTS, NCCL_RANKS = "nccl_hosts", "nccl_ranks"
"""Keys of figures: the hosts that NCCL's lines name, and the ranks that they show, each once."""
_MAX_NAMES = 64
_RING_HOSTS = 3
_NODES_FLAG = "--nnodes"
_P2P_OFF = re.compile(r"\bNCCL_P2P_DISABLE(?:=| set by environment to )1\b|\bNCCL_P2P_LEVEL=LOC\b")
_RANK = re.compile(r"\brank (\d+) nranks (\d+)\b")


class Hosts(NamedTuple):
    """Where the ranks are, in words; only one of the first two is set, and both are None if unknown."""

    one_host: str | None = None
    several_hosts: str | None = None
    ring: str | None = None
    """Three hosts or more, each with two RDMA ports, as in a ring without a switch."""


def collect_nccl_line(figures: dict[str, str], host: str | None, text: str) -> None:
    """Add the host and rank of a line of NCCL."""
    rank = _RANK.search(text)
    for key, name in ((NCCL_HOSTS, host), (NCCL_RANKS, rank and rank[1])):
        names = figures.get(key, "").split()
        if name and name not in names and len(names) < _MAX_NAMES:
            figures[key] = " ".join([*names, name])


def read_hosts(figures: Mapping[str, str], arguments: str) -> Hosts:
    """Return where the ranks of a log are."""
    names = figures.get(NCCL_HOSTS, "").split()
    nodes = _read_number(read_flags(arguments, (_NODES_FLAG,)).get(_NODES_FLAG, "").rpartition(" ")[2])
    nodes = nodes or _read_number(figures.get("nccl_nodes", ""))
    if len(names) > 1 or nodes > 1 or "across_hosts" in figures:
        count = max(len(names), nodes)
        return Hosts(
            several_hosts=f"{count} hosts" if count > 1 else "several hosts",
            ring=_describe_ring(count, figures),
        )
    ranks = max(_read_number(figures.get("ranks", "")), _read_number(figures.get("world", "")))
    if ranks > 1 and (
        nodes == 1 or "loopback" in figures or len(figures.get(NCCL_RANKS, "").split()) == ranks
    ):
        return Hosts(one_host=f"its {ranks} ranks are on one host")
    return Hosts()


def find_p2p_off(settings: str) -> str | None:
    """Return the setting by which NCCL uses no direct access between GPUs."""
    match = _P2P_OFF.search(settings)
    return match and match[0].replace(" set by environment to ", "=")


def _describe_ring(count: int, figures: Mapping[str, str]) -> str | None:
    ports = [figures[name] for name in ("rdma_first", "rdma_second") if name in figures]
    if count < _RING_HOSTS or not ports:
        return None
    return f"{count} hosts use two RDMA ports each ({' and '.join(ports)})"


def _read_number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
