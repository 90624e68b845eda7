"""Hardware as published rows name it: hosts, GPUs and wires out of words."""

import re
from collections.abc import Iterator

from medley.planner import Device, HostLink, Layout, Stage
from medley.planner.device_specs import find_stated_speed

_GIB = 1 << 30
# Kinds of hosts by words of the column `hw`; memory only decides which Orin it is.
_KINDS = (
    (r"spark|gb10|ascent gx10|ai top atom", "spark"),
    (r"thor", "thor"),
    (r"orin", "orin"),
    (r"rtx|geforce|blackwell", "rtx"),
    (r"cpu|xeon|epyc", "cpu"),
)
# Memory in GB, where the row does not say it.
_MEMORY = ((r"spark|gb10|thor", 128), (r"pro 6000", 96))
# Devices medley does not serve, for rows of comparison: (GB/s, dense bf16 TFLOPS) as their makers state.
_FOREIGN = (
    (r"8060s|strix halo|ai max", (256.0, 59.0)),  # source: AMD Ryzen AI Max+ 395, Radeon 8060S
    (r"m[34] ultra", (819.0, 57.0)),  # source: Apple Mac Studio 2025; twice an M3 Max
    (r"7900 xtx", (960.0, 123.0)),  # source: AMD Radeon RX 7900 XTX
    (r"r9700", (640.0, 96.0)),  # source: AMD Radeon AI PRO R9700
    (r"mi300x", (5300.0, 1307.0)),  # source: AMD Instinct MI300X
    (r"m[12] ultra", (800.0, 27.0)),  # source: Apple Mac Studio 2022, 2023
    (r"m4 max", (546.0, 34.0)),  # source: Apple MacBook Pro 2024
)
_TCP_LATENCY_US, _RDMA_LATENCY_US = 30.0, 2.0  # sources: usual of a LAN; perftest ib_write_lat on two Sparks


def layout(row: dict[str, str], layers: int) -> Layout:
    """As the row's tp and pp say, over the hosts it names; what is left of them is further copies."""
    tp, pp = _count(row["tp"]), _count(row["pp"])
    nodes = _count(row["nodes"])
    copies = max(1, nodes // (tp * pp))
    devices = list(_devices(row["hw"], nodes, tp * pp * copies))
    first, *others = [
        _stages(devices[at : at + tp * pp], tp, layers) for at in range(0, tp * pp * copies, tp * pp)
    ]
    return Layout(first, link(row["link"]) if nodes > 1 else None, tuple(others))


def _count(words: str) -> int:
    try:
        return max(1, int(float(words)))
    except ValueError:
        return 1


def _stages(devices: list[Device], tp: int, layers: int) -> tuple[Stage, ...]:
    groups = [tuple(devices[at : at + tp]) for at in range(0, len(devices), tp)]
    return tuple(Stage(group, cut) for group, cut in zip(groups, _cuts(layers, groups), strict=True))


def _cuts(layers: int, groups: list[tuple[Device, ...]]) -> list[int]:
    """Layers by bandwidth, at least one each."""
    speed = [sum(device.bandwidth_gb_s for device in group) for group in groups]
    edges = [round(layers * sum(speed[: at + 1]) / sum(speed)) for at in range(len(speed))]
    return [max(1, edge - before) for before, edge in zip([0, *edges], edges, strict=False)]


def _devices(hw: str, nodes: int, needed: int) -> Iterator[Device]:
    names = [name.strip() for name in re.split(r"\s\+\s|\s&\s", hw)]
    for index in range(max(needed, nodes)):
        per_host = -(-needed // nodes)
        host = index // per_host
        name = names[min(host, len(names) - 1)] if len(names) > 1 else names[0]
        yield _device(f"host-{host + 1}", index % per_host, re.sub(r"^\d+\s*[x\u00d7]\s*", "", name))


def _device(host: str, index: int, name: str) -> Device:
    kind = next((kind for pattern, kind in _KINDS if re.search(pattern, name.lower())), "other")
    memory = re.search(r"(\d+)\s*gb", name.lower())
    usual = next((size for pattern, size in _MEMORY if re.search(pattern, name.lower())), 64)
    memory_bytes = (int(memory[1]) if memory else usual) * _GIB
    foreign = next((facts for pattern, facts in _FOREIGN if re.search(pattern, name.lower())), None)
    facts = find_stated_speed(kind, name, memory_bytes=memory_bytes)
    if not foreign and facts.assumed and kind != "cpu":
        kind = "?"
    if kind == "other" and not foreign:
        kind = "cuda"  # a GPU of NVIDIA's that medley serves without a kind of its own
    bandwidth, tflops = foreign or (facts.bandwidth_gb_s, facts.bf16_tflops)
    return Device(host, index, kind, memory_bytes, bandwidth, tflops, name)


def link(words: str) -> HostLink:
    """The wire between hosts; ten gigabits of TCP where nothing is said."""
    said = words.lower()
    speed = re.search(r"(\d+(?:\.\d+)?)\s*g", said)
    fast = speed is not None and float(speed[1]) >= 100  # noqa: PLR2004  nobody buys that for sockets
    rdma = (
        fast or re.search(r"roce|rdma|infiniband|cx-?[67]|connectx", said) is not None
    ) and "tcp" not in said
    mbit = int(float(speed[1]) * 1000) if speed else (200_000 if rdma else 10_000)
    return HostLink(mbit, _RDMA_LATENCY_US if rdma else _TCP_LATENCY_US, rdma)
