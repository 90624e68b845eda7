"""Write facts as lines of text for people."""

from collections.abc import Iterator

from medley.errors import Problem
from medley.host.facts import GIB, Facts
from medley.host.facts.gpu import Gpu
from medley.host.facts.network import Interface
from medley.host.facts.rdma import RdmaPort
from medley.host.kind import Kind, find_gpu_capability, find_gpu_memory_bytes
from medley.host_schema import HostTable

_LINK_KINDS = {"ethernet", "infiniband", "wifi", "bond", "vlan", "bridge"}
"""The kinds of links that may lead to another host; each link has a line."""


def describe_facts(facts: Facts, chosen: Kind | Problem) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for each line; `chosen` is the host's kind, or the Problem without one."""
    yield from _describe_kind(chosen)
    software, board, cpu, memory, driver = facts.software, facts.board, facts.cpu, facts.memory, facts.driver
    yield (
        "system",
        _join(
            facts.system,
            software.os_name,
            software.kernel and f"kernel {software.kernel}",
            software.libc,
            software.container and f"in a container ({software.container})",
        ),
    )
    l4t = f"L4T {board.l4t.release}" if board.l4t else None
    if board_text := _join(board.model, board.soc, l4t, board.dgx):
        yield "board", board_text
    yield (
        "CPU",
        _join(
            cpu.model,
            f"{cpu.cores} cores" if cpu.cores else None,
            f"{cpu.threads} threads",
            f"{cpu.numa_nodes} NUMA nodes" if (cpu.numa_nodes or 1) > 1 else None,
            " ".join(cpu.flags),
        ),
    )
    shm_text = (
        None if memory.shm_bytes is None else f"{_format_gib(memory.shm_bytes)} for shared memory (/dev/shm)"
    )
    yield (
        "memory",
        _join(_format_gib(memory.total_bytes), f"{_format_gib(memory.available_bytes)} available", shm_text),
    )
    table = chosen.table if isinstance(chosen, Kind) else None
    for gpu in facts.gpus:
        yield f"GPU {gpu.index}", _describe_gpu(gpu, table, facts)
    if driver.version or driver.error:
        yield "driver", _join(driver.version, driver.cuda and f"for CUDA {driver.cuda}", driver.error)
    # Links that lead to no other host, by kind.
    others: dict[str, list[str]] = {}
    for link in facts.net.links:
        if link.kind in _LINK_KINDS:
            yield f"link {link.name}", _describe_link(link, facts)
        elif link.kind != "loopback":
            others.setdefault(link.kind, []).append(link.name)
    if others:
        yield "other links", "; ".join(f"{kind}: {' '.join(names)}" for kind, names in others.items())
    for port in facts.rdma:
        yield f"RDMA {port.device}", _describe_port(port)
    if software.environments:
        yield "environments", " ".join(software.environments)
    yield "programs", " ".join(software.programs) or "none of those we may use"


def _describe_kind(chosen: Kind | Problem) -> Iterator[tuple[str, str]]:
    if isinstance(chosen, Problem):
        yield "kind", f"none: {chosen.what}"
        yield "", f"cause: {chosen.cause}"
        yield "", f"fix: {chosen.fix}"
        return
    yield "kind", f"{chosen.name}: {chosen.table.title}"
    yield "", f"because: {chosen.why}"
    if chosen.warning:
        yield "", f"but: {chosen.warning}"


def _describe_gpu(gpu: Gpu, table: HostTable | None, facts: Facts) -> str:
    memory = find_gpu_memory_bytes(gpu, table, facts)
    capability = find_gpu_capability(gpu, table)
    shared = " shared with the CPU" if memory and gpu.memory_bytes is None else ""
    return _join(
        gpu.name,
        capability and f"capability {capability}",
        f"{_format_gib(memory)}{shared}" if memory else "memory unknown",
        f"{_format_gib(gpu.memory_free_bytes)} free" if gpu.memory_free_bytes is not None else None,
        gpu.bus_id,
    )


def _describe_link(link: Interface, facts: Facts) -> str:
    return _join(
        link.kind if link.kind != "ethernet" else None,
        "up" if link.up else "down",
        _format_speed(link.mbit),
        f"MTU {link.mtu}" if link.mtu else None,
        " ".join(str(address.cidr) for address in link.addresses),
        "default route" if link.name in facts.net.default_links else None,
        f"part of {link.master}" if link.master else None,
        link.pci or link.driver,
    )


def _describe_port(port: RdmaPort) -> str:
    layer = "RoCE" if port.link_layer == "Ethernet" else port.link_layer
    pcie = [f"PCIe x{port.pcie_width}"] if port.pcie_width else []
    if pcie and port.pcie_gt:
        pcie.append(f"at {port.pcie_gt:g} GT/s")
    gids = (f"GID {gid.index} is {gid.address}" for gid in port.gids if gid.address and gid.type == "RoCE v2")
    return _join(
        "active" if port.active else "down",
        _format_speed(port.mbit),
        " ".join(filter(None, (layer, port.interface and f"on {port.interface}"))),
        " ".join(pcie),
        *gids,
    )


def _format_speed(mbit: int | None) -> str | None:
    if mbit is None:
        return None
    return f"{mbit / 1000:g} Gbit/s" if mbit >= 1000 else f"{mbit} Mbit/s"  # noqa: PLR2004 - what giga is


def _format_gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB"


def _join(*parts: str | None) -> str:
    return ", ".join(filter(None, parts))
