"""Devices and links of hosts, from facts, fabric and measurements."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TypedDict

from medley import json_shape, storage
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.hypothetical import readdressed
from medley.host.kind import Kind, gpu_capability, gpu_memory_bytes
from medley.network.fabric import fabric
from medley.network.fabric.types import NetworkOptions
from medley.planner import Device, GroupLink, HostLink
from medley.planner.device_specs import stated
from medley.planner.memory import most_bytes, usable_bytes

# One way, for a small message between two GPUs. RDMA: perftest shows about 2 us between ConnectX-7; NCCL adds
# its proxy thread. TCP: some 25 us by kernel and switch, and as much again by NCCL's socket threads.
_RDMA_US = 8.0
_TCP_US = 50.0
_LEAST_MBIT = 100
"""Of a link whose driver does not say."""


@dataclass(frozen=True)
class DeviceSpeed:
    """What one device reached by itself, with the weights of a model in 16 bits."""

    host: str
    """As a plan names it: `spark-1 (10.0.0.1)` in a cluster, `spark-1` outside of one."""
    index: int
    name: str
    """The device's own; with its memory it tells whether this is still the same device."""
    memory_bytes: int
    gb_s: float
    """Of weights, read for one token."""
    few_tflops: float
    """With 8 tokens at once."""
    tflops: float
    """With 256."""
    dtype: str
    threads: int
    when: str
    """UTC, ISO 8601."""
    torch: str
    ray: str | None = None
    weights_bytes: int | None = None
    """Of the weights that were read; None of a measurement before they were noted."""


@dataclass(frozen=True)
class LinkSpeed:
    """Between two hosts, as their collectives use it."""

    one: str
    two: str
    backend: str
    """gloo or nccl."""
    mbit: float
    """The slower way."""
    latency_us: float
    """One way, of 8 bytes."""
    when: str

    @property
    def ends(self) -> frozenset[str]:
        return frozenset((self.one, self.two))


@dataclass(frozen=True)
class Measurements:
    speeds: Mapping[tuple[str, int], DeviceSpeed] = field(default_factory=dict)
    """By host and the device's index."""
    wires: Mapping[frozenset[str], LinkSpeed] = field(default_factory=dict)

    def speed(self, host: str, index: int, name: str, memory_bytes: int) -> DeviceSpeed | None:
        """None too where another device was measured there."""
        found = self.speeds.get((host, index))
        return found if found and (found.name, found.memory_bytes) == (name, memory_bytes) else None

    def wire(self, one: str, other: str) -> LinkSpeed | None:
        return self.wires.get(frozenset((one, other)))

    def having(self, speeds: Iterable[DeviceSpeed], wires: Iterable[LinkSpeed]) -> "Measurements":
        """With these in place of older ones."""
        return Measurements(
            {(each.host, each.index): each for each in chain(self.speeds.values(), speeds)},
            {each.ends: each for each in chain(self.wires.values(), wires)},
        )


NO_MEASUREMENTS = Measurements()


class _File(TypedDict):
    speeds: list[DeviceSpeed]
    wires: list[LinkSpeed]


def read_measurements() -> Measurements:
    """What is kept here; nothing where it was written by another medley, for it can be measured again."""
    table = storage.table(_path()) or {}
    if not json_shape.fits(table, _File):
        return NO_MEASUREMENTS
    links = [LinkSpeed(**each) for each in table["wires"]]
    return NO_MEASUREMENTS.having([DeviceSpeed(**each) for each in table["speeds"]], links)


def keep_measurements(speeds: Iterable[DeviceSpeed], wires: Iterable[LinkSpeed]) -> None:
    known = read_measurements().having(speeds, wires)
    table = {"speeds": [*map(asdict, known.speeds.values())], "wires": [*map(asdict, known.wires.values())]}
    storage.write(_path(), json.dumps(table, indent=1))


def _path() -> Path:
    return storage.state() / "measured.json"


Hosts = Mapping[str, tuple[Facts, Kind]]


def devices(hosts: Hosts, measured: Measurements = NO_MEASUREMENTS) -> Iterator[Device]:
    """Every GPU of every host, or the CPU of one without, in the order of names; as measured if it was."""
    for device, known in _known(hosts, measured):
        yield (
            replace(device, bandwidth_gb_s=known.gb_s, bf16_tflops=known.tflops, measured=True)
            if known
            else device
        )


def reasons(hosts: Hosts, measured: Measurements) -> Iterator[str]:
    """For a plan: what was measured, and what would have counted without."""
    for device, known in _known(hosts, measured):
        if known:
            yield (
                f"{device.host} {device.index}: measured {known.gb_s:.3g} GB/s and {known.tflops:.3g} TFLOPS "
                f"on {known.when[:10]}; stated {device.bandwidth_gb_s:.3g} and {device.bf16_tflops:.3g}"
            )


def _known(hosts: Hosts, measured: Measurements) -> Iterator[tuple[Device, DeviceSpeed | None]]:
    """Each device as its maker states it, and its measurement if there is one of this very device."""
    for name in sorted(hosts):
        facts, kind = hosts[name]
        for unit in units(facts, kind):
            known = measured.speed(name, unit.index, unit.name, unit.memory_bytes)
            yield _stated(name, unit, facts, kind), known


@dataclass(frozen=True)
class MeasuredDevice:
    """A device as its host's facts have it."""

    index: int
    name: str
    memory_bytes: int
    uuid: str | None = None


def units(facts: Facts, kind: Kind) -> Iterator[MeasuredDevice]:
    """The same devices, as a measurement knows them again."""
    if kind.host.device == "cpu":
        yield MeasuredDevice(0, facts.cpu.model or "", facts.memory.total_bytes)
        return
    for gpu in facts.gpus:
        yield MeasuredDevice(gpu.index, gpu.name, gpu_memory_bytes(gpu, kind.host, facts) or 0, gpu.uuid)


def _stated(name: str, unit: MeasuredDevice, facts: Facts, kind: Kind) -> Device:
    free, total, shown = facts.memory.available_bytes, unit.memory_bytes, None
    if kind.host.device == "cpu":
        specs = stated("cpu")
    else:
        gpu = next(each for each in facts.gpus if each.index == unit.index)
        if not kind.host.memory.unified:
            free = gpu.memory_free_bytes or total
        capability = gpu_capability(gpu, kind.host)
        specs, shown = stated(kind.name, gpu.name, capability=capability, memory_bytes=total), total or None
    usable = usable_bytes(kind.name, total, free)
    speeds = specs.bandwidth_gb_s, specs.bf16_tflops
    most = most_bytes(kind.name, total, free)
    return Device(name, unit.index, kind.name, usable, *speeds, unit.name, shown, most_bytes=most)


def link_of(
    hosts: Mapping[str, Facts], wishes: NetworkOptions, measured: Measurements = NO_MEASUREMENTS
) -> Callable[[str, str], HostLink | None]:
    """The link between two hosts, as the fabric of these two has it; None where they cannot talk.

    What was measured counts only where it went the way that the engine's collectives will go. Hosts that are
    alike but for their numbers in each network have the same links, and are looked at once.
    """
    alike = {name: _alike(name, facts, wishes) for name, facts in hosts.items()}
    between = group_link(hosts, wishes)
    known: dict[tuple[str, str], HostLink | None] = {}

    def link(one: str, other: str) -> HostLink | None:
        pair = (alike[one], alike[other])
        if pair not in known:
            carried = between(frozenset((one, other)))
            known[pair] = carried if isinstance(carried, HostLink) else None
        found, seen = known[pair], measured.wire(one, other)
        backend = "nccl" if hosts[one].gpus and hosts[other].gpus else "gloo"
        if found and seen and seen.backend == backend:
            return HostLink(max(1, int(seen.mbit)), seen.latency_us, found.rdma, measured=True)
        return found

    return link


def group_link(hosts: Mapping[str, Facts], wishes: NetworkOptions) -> GroupLink:
    """What carries between all of these hosts, as their fabric has it; why nothing does, in words."""

    def link(names: frozenset[str]) -> HostLink | str:
        try:
            found = fabric({name: hosts[name] for name in sorted(names)}, wishes)
        except Problem as problem:
            return problem.what
        rdma = found.transport == "rdma"
        mbit = min(end.mbit or _LEAST_MBIT for end in found.ends.values())
        return HostLink(mbit, _RDMA_US if rdma else _TCP_US, rdma)

    return link


def _alike(name: str, facts: Facts, wishes: NetworkOptions) -> str:
    """Equal for hosts where nothing that the fabric looks at differs."""
    bare = readdressed(facts, lambda at: str(at.network.network_address))
    wish = (wishes.joined or {}).get(name) or wishes.link_of(name)
    meant = [link.name for link in facts.net.links for each in link.addresses if wish in {each.ip, link.name}]
    return repr((bare.net, bare.rdma, meant or wish))
