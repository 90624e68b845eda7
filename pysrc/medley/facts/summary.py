"""A summary of facts for people: a name and a sentence per line."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from medley.facts import Facts
from medley.facts.gpu import Gpu
from medley.facts.net import Link
from medley.facts.rdma import RdmaPort
from medley.kind import Kind, gpu_capability, gpu_memory_bytes
from medley.problem import Problem

if TYPE_CHECKING:
    from medley.tables import Host

_GIB = 1 << 30
# Those that may lead to another host, each worth a line.
_WIRES = {"ethernet", "infiniband", "wifi", "bond", "vlan", "bridge"}


def summary(facts: Facts, chosen: Kind | Problem) -> Iterator[tuple[str, str]]:
    yield from _kind(chosen)
    yield "system", _system(facts)
    if board := _board(facts):
        yield "board", board
    yield "CPU", _cpu(facts)
    yield "memory", _memory(facts)
    host = chosen.host if isinstance(chosen, Kind) else None
    for gpu in facts.gpus:
        yield f"GPU {gpu.index}", _gpu(gpu, host, facts)
    if facts.driver.version or facts.driver.error:
        cuda = facts.driver.cuda
        yield "driver", _said(facts.driver.version, cuda and f"for CUDA {cuda}", facts.driver.error)
    for link in facts.net.links:
        if link.kind in _WIRES:
            yield f"link {link.name}", _link(link, facts)
    if others := _others(facts):
        yield "other links", others
    for port in facts.rdma:
        yield f"RDMA {port.device}", _port(port)
    if facts.software.environments:
        yield "environments", " ".join(facts.software.environments)
    yield "programs", " ".join(facts.software.programs) or "none of those we may use"


def _kind(chosen: Kind | Problem) -> Iterator[tuple[str, str]]:
    if isinstance(chosen, Problem):
        yield "kind", f"none: {chosen.what}"
        yield "", f"cause: {chosen.cause}"
        yield "", f"fix: {chosen.fix}"
        return
    yield "kind", f"{chosen.name}: {chosen.host.title}"
    yield "", f"because: {chosen.why}"
    if chosen.warning:
        yield "", f"but: {chosen.warning}"


def _system(facts: Facts) -> str:
    software = facts.software
    return _said(
        facts.system,
        software.os_name,
        software.kernel and f"kernel {software.kernel}",
        software.libc,
        software.container and f"in a container ({software.container})",
    )


def _board(facts: Facts) -> str:
    board = facts.board
    l4t = f"L4T {board.l4t.release}" if board.l4t else None
    return _said(board.model, board.soc, l4t, board.dgx)


def _cpu(facts: Facts) -> str:
    cpu = facts.cpu
    nodes = cpu.numa_nodes or 1
    return _said(
        cpu.model,
        f"{cpu.cores} cores" if cpu.cores else None,
        f"{cpu.threads} threads",
        f"{nodes} NUMA nodes" if nodes > 1 else None,
        " ".join(cpu.flags),
    )


def _memory(facts: Facts) -> str:
    memory = facts.memory
    shm = memory.shm_bytes
    return _said(
        _gib(memory.total_bytes),
        f"{_gib(memory.available_bytes)} available",
        f"{_gib(shm)} for shared memory (/dev/shm)" if shm is not None else None,
    )


def _gpu(gpu: Gpu, host: "Host | None", facts: Facts) -> str:
    memory = gpu_memory_bytes(gpu, host, facts) if host else gpu.memory_bytes
    capability = gpu_capability(gpu, host) if host else gpu.capability
    shared = " shared with the CPU" if memory and gpu.memory_bytes is None else ""
    return _said(
        gpu.name,
        capability and f"capability {capability}",
        f"{_gib(memory)}{shared}" if memory else "memory not told",
        f"{_gib(gpu.memory_free_bytes)} free" if gpu.memory_free_bytes is not None else None,
        gpu.bus_id,
    )


def _link(link: Link, facts: Facts) -> str:
    default = any(each.destination == "default" and each.interface == link.name for each in facts.net.routes)
    return _said(
        link.kind if link.kind != "ethernet" else None,
        "up" if link.up else "down",
        _speed(link.mbit),
        f"MTU {link.mtu}" if link.mtu else None,
        " ".join(f"{address.ip}/{address.prefix}" for address in link.addresses),
        "default route" if default else None,
        f"part of {link.master}" if link.master else None,
        link.pci or link.driver,
    )


def _others(facts: Facts) -> str:
    """Those that lead to no other host, by kind."""
    kinds: dict[str, list[str]] = {}
    for link in facts.net.links:
        if link.kind not in {*_WIRES, "loopback"}:
            kinds.setdefault(link.kind, []).append(link.name)
    return "; ".join(f"{kind}: {' '.join(names)}" for kind, names in kinds.items())


def _port(port: RdmaPort) -> str:
    layer = "RoCE" if port.link_layer == "Ethernet" else port.link_layer
    pcie = port.pcie_width and f"PCIe x{port.pcie_width}"
    gids = (f"GID {gid.index} is {gid.address}" for gid in port.gids if gid.address and gid.type == "RoCE v2")
    return _said(
        "active" if port.active else "down",
        _speed(port.mbit),
        _worded(layer, port.interface and f"on {port.interface}"),
        _worded(pcie or None, pcie and port.pcie_gt and f"at {port.pcie_gt:g} GT/s"),
        *gids,
    )


def _speed(mbit: int | None) -> str | None:
    if mbit is None:
        return None
    return f"{mbit / 1000:g} Gb/s" if mbit >= 1000 else f"{mbit} Mb/s"  # noqa: PLR2004 - what giga is


def _worded(*parts: str | float | None) -> str:
    return " ".join(str(part) for part in parts if part)


def _gib(count: int) -> str:
    return f"{count / _GIB:.1f} GiB"


def _said(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)
