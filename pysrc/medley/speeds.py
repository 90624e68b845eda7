"""Speeds are what the devices of some hosts reach, each by itself; one far below its equals holds all up."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any

from medley.measured import Speed
from medley.problem import Problem

_ENOUGH = 0.5
"""As of a wire (verdict.py): two runs on a busy host differ by less."""


@dataclass(frozen=True)
class Unit:
    """A device as its host's facts have it."""

    index: int
    name: str
    memory_bytes: int
    uuid: str | None = None


@dataclass(frozen=True)
class Measurable:
    """A host that is to be measured."""

    name: str
    units: tuple[Unit, ...]


@dataclass(frozen=True)
class Speeds:
    devices: tuple[Speed, ...] = ()
    busy: tuple[str, ...] = ()
    """Hosts that serve a model now, so that they were left alone."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """What each host said that could not be measured."""

    def tables(self) -> dict[str, Any]:
        """For programs."""
        return {"speeds": [asdict(each) for each in self.devices], "busy": self.busy, "failed": self.failed}


def folded(found: Speeds, event: Mapping[str, Any], hosts: Mapping[str, Measurable], when: str) -> Speeds:
    """The speeds, and what one event of inside/speed.py adds to them; `hosts` by address."""
    match event:
        case {"device": address, **about}:
            host = hosts[address]
            unit = _unit(host.units, about)
            if unit is None:
                return replace(found, failed={**found.failed, host.name: "its facts show no such device"})
            return replace(found, devices=(*found.devices, speed(host.name, unit, about, when)))
        case {"busy": address}:
            return replace(found, busy=(*found.busy, hosts[address].name))
        case {"failed": address, "said": said}:
            return replace(found, failed={**found.failed, hosts[address].name: said})
        case _:
            return found


def _unit(units: Sequence[Unit], about: Mapping[str, Any]) -> Unit | None:
    """A GPU is known by its uuid, which torch writes without nvidia-smi's prefix; a CPU is the only one."""
    if len(units) == 1:
        return units[0]
    uuid = str(about["uuid"])
    return next((unit for unit in units if unit.uuid and unit.uuid.removeprefix("GPU-") == uuid), None)


def speed(host: str, unit: Unit, about: Mapping[str, Any], when: str) -> Speed:
    kept = ("gb_s", "few_tflops", "tflops", "dtype", "threads", "torch", "ray")
    rest = {key: about[key] for key in kept if key in about}
    return Speed(host, unit.index, unit.name, unit.memory_bytes, when=when, **rest)


def slow(found: Speeds) -> Iterator[tuple[Speed, Speed]]:
    """Each device under half of the fastest of its name, and that one."""
    by_name = sorted(found.devices, key=lambda each: each.name)
    for _, equals in groupby(by_name, key=lambda each: each.name):
        group = list(equals)
        for each in group:
            best = max(group, key=lambda one: one.gb_s), max(group, key=lambda one: one.tflops)
            if each.gb_s < _ENOUGH * best[0].gb_s:
                yield each, best[0]
            elif each.tflops < _ENOUGH * best[1].tflops:
                yield each, best[1]


def verdict(found: Speeds) -> Problem | None:
    """What is wrong, or None."""
    if found.failed:
        return Problem(
            f"{', '.join(found.failed)} cannot be measured",
            cause="\n".join(f"{host}: {said}" for host, said in found.failed.items()),
            fix="there: medley env check; medley facts; or test the wire alone: "
            "medley collective-test --only wire",
        )
    blamed = list(slow(found))
    if not blamed:
        return None
    hosts = dict.fromkeys(each.host for each, _ in blamed)
    return Problem(
        f"{', '.join(hosts)} {'is' if len(hosts) == 1 else 'are'} slow, and would hold up the others",
        cause="\n".join(f"{said(each)}; {said(best)}, and it is the same device" for each, best in blamed),
        fix="look there for what else runs, a quota, heat or a power cap: top; nvidia-smi -q -d PERFORMANCE\n"
        "or leave it so: medley plan gives it as much as it can do",
    )


def said(each: Speed) -> str:
    return f"{each.host}: {each.gb_s:.3g} GB/s, {each.tflops:.3g} TFLOPS ({each.name or 'no name'})"
