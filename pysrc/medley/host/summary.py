"""Facts for people."""

from collections.abc import Iterator

from medley.errors import Problem
from medley.host.facts import GIB, Facts
from medley.host.facts.gpu import Gpu
from medley.host.facts.network import Interface
from medley.host.facts.rdma import RdmaPort
from medley.host.kind import Kind, gpu_capability, gpu_memory_bytes
from medley.host_schema import HostTable

# Those that may lead to another host, each worth a line.
_WIRES = {"ethernet", "infiniband", "wifi", "bond", "vlan", "bridge"}


def summary(facts: Facts, chosen: Kind | Problem) -> Iterator[tuple[str, str]]:
    yield from _kind(chosen)
    software, board, cpu, memory, driver = facts.software, facts.board, facts.cpu, facts.memory, facts.driver
    yield (
        "system",
        _joined(
            facts.system,
            software.os_name,
            software.kernel and f"kernel {software.kernel}",
            software.libc,
            software.container and f"in a container ({software.container})",
        ),
    )
    l4t = f"L4T {board.l4t.release}" if board.l4t else None
    if said := _joined(board.model, board.soc, l4t, board.dgx):
        yield "board", said
    yield (
        "CPU",
        _joined(
            cpu.model,
            f"{cpu.cores} cores" if cpu.cores else None,
            f"{cpu.threads} threads",
            f"{cpu.numa_nodes} NUMA nodes" if (cpu.numa_nodes or 1) > 1 else None,
            " ".join(cpu.flags),
        ),
    )
    shm = None if memory.shm_bytes is None else f"{_gib(memory.shm_bytes)} for shared memory (/dev/shm)"
    yield "memory", _joined(_gib(memory.total_bytes), f"{_gib(memory.available_bytes)} available", shm)
    host = chosen.host if isinstance(chosen, Kind) else None
    for gpu in facts.gpus:
        yield f"GPU {gpu.index}", _gpu(gpu, host, facts)
    if driver.version or driver.error:
        yield "driver", _joined(driver.version, driver.cuda and f"for CUDA {driver.cuda}", driver.error)
    # Those that lead to no other host, by kind.
    others: dict[str, list[str]] = {}
    for link in facts.net.links:
        if link.kind in _WIRES:
            yield f"link {link.name}", _link(link, facts)
        elif link.kind != "loopback":
            others.setdefault(link.kind, []).append(link.name)
    if others:
        yield "other links", "; ".join(f"{kind}: {' '.join(names)}" for kind, names in others.items())
    for port in facts.rdma:
        yield f"RDMA {port.device}", _port(port)
    if software.environments:
        yield "environments", " ".join(software.environments)
    yield "programs", " ".join(software.programs) or "none of those we may use"


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


def _gpu(gpu: Gpu, host: HostTable | None, facts: Facts) -> str:
    memory = gpu_memory_bytes(gpu, host, facts)
    capability = gpu_capability(gpu, host)
    shared = " shared with the CPU" if memory and gpu.memory_bytes is None else ""
    return _joined(
        gpu.name,
        capability and f"capability {capability}",
        f"{_gib(memory)}{shared}" if memory else "memory unknown",
        f"{_gib(gpu.memory_free_bytes)} free" if gpu.memory_free_bytes is not None else None,
        gpu.bus_id,
    )


def _link(link: Interface, facts: Facts) -> str:
    return _joined(
        link.kind if link.kind != "ethernet" else None,
        "up" if link.up else "down",
        _speed(link.mbit),
        f"MTU {link.mtu}" if link.mtu else None,
        " ".join(str(each.at) for each in link.addresses),
        "default route" if link.name in facts.net.default_links else None,
        f"part of {link.master}" if link.master else None,
        link.pci or link.driver,
    )


def _port(port: RdmaPort) -> str:
    layer = "RoCE" if port.link_layer == "Ethernet" else port.link_layer
    pcie = [f"PCIe x{port.pcie_width}"] if port.pcie_width else []
    if pcie and port.pcie_gt:
        pcie.append(f"at {port.pcie_gt:g} GT/s")
    gids = (f"GID {gid.index} is {gid.address}" for gid in port.gids if gid.address and gid.type == "RoCE v2")
    return _joined(
        "active" if port.active else "down",
        _speed(port.mbit),
        " ".join(filter(None, (layer, port.interface and f"on {port.interface}"))),
        " ".join(pcie),
        *gids,
    )


def _speed(mbit: int | None) -> str | None:
    if mbit is None:
        return None
    return f"{mbit / 1000:g} Gbit/s" if mbit >= 1000 else f"{mbit} Mbit/s"  # noqa: PLR2004 - what giga is


def _gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB"


def _joined(*parts: str | None) -> str:
    return ", ".join(filter(None, parts))
