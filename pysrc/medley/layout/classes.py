"""A class is a set of hosts that are equal: as many devices each, of one kind and about one speed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from medley.layout.shapes import Device

_ABOUT = 0.9
"""Speeds that differ by less are one speed: measured ones are never equal."""


@dataclass(frozen=True)
class Class:
    hosts: tuple[tuple[Device, ...], ...]
    """Each host's devices of this class; those with the most memory first."""

    @property
    def each(self) -> int:
        """Devices on each host."""
        return len(self.hosts[0])

    @property
    def slowest_gb_s(self) -> float:
        return min(device.bandwidth_gb_s for host in self.hosts for device in host)

    @property
    def cpu(self) -> bool:
        return self.hosts[0][0].kind == "cpu"


def classes(devices: Iterable[Device]) -> tuple[Class, ...]:
    """The fastest first. A host of unlike GPUs stands in several."""
    ordered = sorted(devices, key=lambda device: (device.kind, device.name, *_fastest_first(device)))
    found = [
        each
        for _, alike in groupby(ordered, key=lambda device: (device.kind, device.name))
        for speed in _of_one_speed(list(alike))
        for each in _by_count(speed)
    ]
    return tuple(sorted(found, key=lambda one: _fastest_first(one.hosts[0][0])))


def _of_one_speed(devices: Sequence[Device]) -> Iterator[list[Device]]:
    """Devices of one kind, the fastest first, cut where one is slower than the first of its group."""
    group: list[Device] = []
    for device in devices:
        if group and not _about(group[0], device):
            yield group
            group = []
        group.append(device)
    yield group


def _about(first: Device, other: Device) -> bool:
    return (
        other.bandwidth_gb_s >= _ABOUT * first.bandwidth_gb_s
        and _ABOUT * first.bf16_tflops <= other.bf16_tflops <= first.bf16_tflops / _ABOUT
    )


def _by_count(devices: Iterable[Device]) -> Iterator[Class]:
    """Hosts with equally many devices are equal."""
    by_host: dict[str, list[Device]] = {}
    for device in devices:
        by_host.setdefault(device.host, []).append(device)
    hosts = [tuple(sorted(held, key=lambda device: device.index)) for held in by_host.values()]
    hosts.sort(key=lambda host: (-len(host), -min(one.memory_bytes for one in host), host[0].host))
    for _, alike in groupby(hosts, key=len):
        yield Class(tuple(alike))


def _fastest_first(device: Device) -> tuple[float, float, int, str, int]:
    return (-device.bandwidth_gb_s, -device.bf16_tflops, -device.memory_bytes, device.host, device.index)
