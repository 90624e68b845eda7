"""A survey is what a group of hosts offers a layout: their devices, and the links between each two."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from medley.fabric import Wishes, fabric
from medley.fabric.readdressed import readdressed
from medley.facts import Facts
from medley.facts.gpu import Gpu
from medley.kind import Kind, gpu_capability, gpu_memory_bytes
from medley.layout.devices import device_facts
from medley.layout.engine_memory import usable_bytes
from medley.layout.shapes import Device, Link
from medley.measured import NOTHING, Measured
from medley.problem import Problem
from medley.speeds import Unit

# One way, for a small message between two GPUs. RDMA: perftest shows about 2 us between ConnectX-7; NCCL adds
# its proxy thread. TCP: some 25 us by kernel and switch, and as much again by NCCL's socket threads.
_RDMA_US = 8.0
_TCP_US = 50.0
_LEAST_MBIT = 100
"""Of a link whose driver does not say."""


def devices(hosts: Mapping[str, tuple[Facts, Kind]], measured: Measured = NOTHING) -> Iterator[Device]:
    """Every GPU of every host, or the CPU of one without, in the order of names; as measured if it was."""
    for name in sorted(hosts):
        facts, kind = hosts[name]
        stated = _stated(name, facts, kind)
        for device, unit in zip(stated, units(facts, kind), strict=True):
            known = measured.speed(name, unit.index, unit.name, unit.memory_bytes)
            yield (
                replace(device, bandwidth_gb_s=known.gb_s, bf16_tflops=known.tflops, measured=True)
                if known
                else device
            )


def reasons(hosts: Mapping[str, tuple[Facts, Kind]], measured: Measured) -> Iterator[str]:
    """For a plan: what was measured, and what would have counted without."""
    for was, now in zip(devices(hosts), devices(hosts, measured), strict=True):
        known = measured.speeds.get((now.host, now.index)) if now.measured else None
        if known:
            yield (
                f"{now.host} {now.index}: measured {known.gb_s:.3g} GB/s and {known.tflops:.3g} TFLOPS "
                f"on {known.day}; stated {was.bandwidth_gb_s:.3g} and {was.bf16_tflops:.3g}"
            )


def units(facts: Facts, kind: Kind) -> Iterator[Unit]:
    """The same devices, as a measurement knows them again."""
    if kind.host.device == "cpu":
        yield Unit(0, facts.cpu.model or "", facts.memory.total_bytes)
        return
    for gpu in facts.gpus:
        yield Unit(gpu.index, gpu.name, gpu_memory_bytes(gpu, kind.host, facts) or 0, gpu.uuid)


def _stated(name: str, facts: Facts, kind: Kind) -> Iterator[Device]:
    if kind.host.device == "cpu":
        yield _cpu(name, facts, kind)
    else:
        yield from (_gpu(name, gpu, facts, kind) for gpu in facts.gpus)


def _cpu(name: str, facts: Facts, kind: Kind) -> Device:
    memory = facts.memory
    bandwidth, tflops = device_facts("cpu")
    usable = usable_bytes("cpu", memory.total_bytes, memory.available_bytes)
    return Device(name, 0, kind.name, usable, bandwidth, tflops, facts.cpu.model or "")


def _gpu(name: str, gpu: Gpu, facts: Facts, kind: Kind) -> Device:
    total = gpu_memory_bytes(gpu, kind.host, facts) or 0
    shared = kind.host.memory.unified
    free = facts.memory.available_bytes if shared else (gpu.memory_free_bytes or total)
    bandwidth, tflops = device_facts(
        kind.name, gpu.name, capability=gpu_capability(gpu, kind.host), memory_bytes=total
    )
    usable = usable_bytes(kind.name, total, free)
    return Device(name, gpu.index, kind.name, usable, bandwidth, tflops, gpu.name, total or None)


def link_of(
    hosts: Mapping[str, Facts], wishes: Wishes, measured: Measured = NOTHING
) -> Callable[[str, str], Link | None]:
    """The link between two hosts, as the fabric of these two has it; None where they cannot talk.

    What was measured counts only where it went the way that the engine's collectives will go. Hosts that are
    alike but for their numbers in each network have the same links, and are looked at once.
    """
    alike = _alike(hosts, wishes)
    known: dict[tuple[int, int], Link | None] = {}

    def stated(one: str, other: str) -> Link | None:
        pair = (alike[one], alike[other])
        if pair not in known:
            known[pair] = _link({one: hosts[one], other: hosts[other]}, wishes)
        return known[pair]

    def link(one: str, other: str) -> Link | None:
        found, wire = stated(one, other), measured.wire(one, other)
        backend = "nccl" if hosts[one].gpus and hosts[other].gpus else "gloo"
        if found and wire and wire.backend == backend:
            return Link(max(1, int(wire.mbit)), wire.latency_us, found.rdma, measured=True)
        return found

    return link


def _link(both: Mapping[str, Facts], wishes: Wishes) -> Link | None:
    try:
        found = fabric(both, wishes)
    except Problem:
        return None
    mbit = min(end.mbit or _LEAST_MBIT for end in found.ends.values())
    rdma = found.transport == "rdma"
    return Link(mbit, _RDMA_US if rdma else _TCP_US, rdma)


def _alike(hosts: Mapping[str, Facts], wishes: Wishes) -> dict[str, int]:
    """A number for each host, equal where nothing that the fabric looks at differs."""
    seen: dict[str, int] = {}
    found = {}
    for name, facts in hosts.items():
        bare = readdressed(facts, lambda at: str(at.network.network_address))
        wish = (wishes.joined or {}).get(name) or wishes.link_of(name)
        meant = [
            link.name for link in facts.net.links for each in link.addresses if wish in {each.ip, link.name}
        ]
        key = repr((bare.net, bare.rdma, meant or wish))
        found[name] = seen.setdefault(key, len(seen))
    return found
