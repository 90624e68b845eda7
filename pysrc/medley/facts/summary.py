"""A summary of facts for people: a name and a sentence per line."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from medley.facts import Facts
from medley.facts.gpu import Gpu
from medley.kind import Kind, gpu_capability, gpu_memory_bytes
from medley.problem import Problem

if TYPE_CHECKING:
    from medley.tables import Host

_GIB = 1 << 30


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
        yield "driver", _said(facts.driver.version, facts.driver.error)
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


def _gib(count: int) -> str:
    return f"{count / _GIB:.1f} GiB"


def _said(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)
