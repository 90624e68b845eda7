"""Find the devices and links of hosts, from facts, fabric and measurements."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypedDict

from msgspec import field

from medley import json_shape, storage
from medley.host.facts import Facts
from medley.host.kind import Kind, SiteHost, find_gpu_capability, find_gpu_memory_bytes
from medley.planner import Device
from medley.planner.device_specs import find_stated_speed
from medley.planner.memory import compute_max_unified_bytes, compute_usable_bytes
from medley.unusable_file import skip_unusable_file
from medley.values import Value


class DeviceSpeed(Value):
    """The measured speed of one device alone, with the weights of a model in 16 bits."""

    host: str
    """The host's name in a plan: `spark-1 (10.0.0.1)` in a cluster, `spark-1` outside of one."""
    index: int
    name: str
    """The device's own name; name and memory show whether this is still the same device."""
    memory_bytes: int
    gb_s: float
    """The rate in GB/s at which weights are read for one token."""
    few_tflops: float
    """TFLOPS with 8 tokens in a batch."""
    tflops: float
    """TFLOPS with 256 tokens in a batch."""
    dtype: str
    threads: int
    when: str
    """UTC, ISO 8601."""
    torch: str
    ray: str | None = None
    weights_bytes: int | None = None
    """The size of the weights that were read; None in older records."""


class LinkSpeed(Value):
    """The measured speed between two hosts, as their collectives use it."""

    one: str
    two: str
    backend: str
    """gloo or nccl."""
    mbit: float
    """The speed in the slower direction."""
    latency_us: float
    """The latency one way, of 8 bytes."""
    when: str

    @property
    def ends(self) -> frozenset[str]:
        """The names of both hosts."""
        return frozenset((self.one, self.two))


class Measurements(Value):
    """The measured speeds of devices, and of links between hosts."""

    speeds: Mapping[tuple[str, int], DeviceSpeed] = field(default_factory=dict)
    """The speed of each device, by its host and index."""
    links: Mapping[frozenset[str], LinkSpeed] = field(default_factory=dict)

    def find_speed(self, host: str, index: int, name: str, memory_bytes: int) -> DeviceSpeed | None:
        """Return the speed of this device; None where it was not measured, or another device was."""
        speed = self.speeds.get((host, index))
        return speed if speed and (speed.name, speed.memory_bytes) == (name, memory_bytes) else None

    def find_link(self, first: str, second: str) -> LinkSpeed | None:
        """Return the measured link of two hosts, in any order; None where it was not measured."""
        return self.links.get(frozenset((first, second)))

    def merge(self, speeds: Iterable[DeviceSpeed], links: Iterable[LinkSpeed]) -> "Measurements":
        """Return all measurements; these replace older ones of the same devices and links."""
        return Measurements(
            {(speed.host, speed.index): speed for speed in chain(self.speeds.values(), speeds)},
            {link.ends: link for link in chain(self.links.values(), links)},
        )


NO_MEASUREMENTS = Measurements()


class _MeasurementsFile(TypedDict):
    """The content of measured.json; `wires` has the links, under the name of the first release."""

    speeds: list[DeviceSpeed]
    wires: list[LinkSpeed]


def read_measurements() -> Measurements:
    """Return the stored measurements of this host; none if another release of medley wrote the file."""
    table: dict[str, Any] = {}
    with skip_unusable_file():
        table = storage.read_table(_find_measurements_file()) or {}
    if not json_shape.has_type(table, _MeasurementsFile):
        return NO_MEASUREMENTS
    links = [LinkSpeed(**link) for link in table["wires"]]
    return NO_MEASUREMENTS.merge([DeviceSpeed(**speed) for speed in table["speeds"]], links)


def add_measurements(speeds: Iterable[DeviceSpeed], links: Iterable[LinkSpeed]) -> None:
    """Add these speeds to the stored measurements."""
    measurements = read_measurements().merge(speeds, links)
    table = {
        "speeds": [speed.to_table() for speed in measurements.speeds.values()],
        "wires": [link.to_table() for link in measurements.links.values()],
    }
    storage.write_text(_find_measurements_file(), json.dumps(table, indent=1))


def _find_measurements_file() -> Path:
    return storage.find_state_folder() / "measured.json"


Hosts = Mapping[str, SiteHost]


def list_devices(hosts: Hosts, measurements: Measurements = NO_MEASUREMENTS) -> Iterator[Device]:
    """Yield each GPU of each host, or the CPU of a host without one, by name and with measured speeds."""
    for device, speed in _list_with_speeds(hosts, measurements):
        if speed:
            yield device.replace(bandwidth_gb_s=speed.gb_s, bf16_tflops=speed.tflops, measured=True)
        else:
            yield device


def explain_measurements(hosts: Hosts, measurements: Measurements) -> Iterator[str]:
    """Yield for a plan's reasons each measured speed, and the stated speed that it replaces."""
    for device, speed in _list_with_speeds(hosts, measurements):
        if speed:
            yield (
                f"{device.host} {device.index}: measured {speed.gb_s:.3g} GB/s and {speed.tflops:.3g} TFLOPS "
                f"on {speed.when[:10]}; stated {device.bandwidth_gb_s:.3g} and {device.bf16_tflops:.3g}"
            )


def _list_with_speeds(
    hosts: Hosts, measurements: Measurements
) -> Iterator[tuple[Device, DeviceSpeed | None]]:
    """Yield each device with the speed that its maker states, and its measurement if there is one."""
    for name in sorted(hosts):
        facts, kind = hosts[name]
        for identity in list_device_identities(facts, kind):
            speed = measurements.find_speed(name, identity.index, identity.name, identity.memory_bytes)
            yield _build_stated_device(name, identity, facts, kind), speed


class DeviceIdentity(Value):
    """The properties by which a measurement recognizes a device, from its host's facts."""

    index: int
    name: str
    memory_bytes: int
    uuid: str | None = None


def list_device_identities(facts: Facts, kind: Kind) -> Iterator[DeviceIdentity]:
    """Yield the identity of each GPU of a host, or of its CPU if it has no GPU."""
    if kind.table.device == "cpu":
        yield DeviceIdentity(0, facts.cpu.model or "", facts.memory.total_bytes)
        return
    for gpu in facts.gpus:
        yield DeviceIdentity(
            gpu.index, gpu.name, find_gpu_memory_bytes(gpu, kind.table, facts) or 0, gpu.uuid
        )


def _build_stated_device(name: str, identity: DeviceIdentity, facts: Facts, kind: Kind) -> Device:
    free_bytes, total_bytes, gpu_bytes = facts.memory.available_bytes, identity.memory_bytes, None
    if kind.table.device == "cpu":
        specs = find_stated_speed("cpu")
    else:
        gpu = next(gpu for gpu in facts.gpus if gpu.index == identity.index)
        if not kind.table.memory.unified:
            free_bytes = gpu.memory_free_bytes or total_bytes
        capability = find_gpu_capability(gpu, kind.table)
        specs = find_stated_speed(kind.name, gpu.name, capability=capability, memory_bytes=total_bytes)
        gpu_bytes = total_bytes or None
    return Device(
        name,
        identity.index,
        kind.name,
        compute_usable_bytes(kind.name, total_bytes, free_bytes),
        specs.bandwidth_gb_s,
        specs.bf16_tflops,
        identity.name,
        gpu_bytes,
        most_bytes=compute_max_unified_bytes(kind.name, total_bytes, free_bytes),
    )
