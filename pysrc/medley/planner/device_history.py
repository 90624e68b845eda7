"""Keep what a host's devices and links reached, and find which are slower than they were or should be."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import groupby
from statistics import median
from typing import Any

from medley import json_shape, storage
from medley.errors import Finding
from medley.planner import kinds
from medley.planner.devices import DeviceSpeed, MeasuredDevice

FILE = "device-history.jsonl"
_MOST = 60
_PAST, _LEAST_PAST = 20, 2
_OWN, _EQUAL, _STATED = 0.8, 0.5, 0.5
_CPU_HOURS = 1
"""For which a CPU must have been slow."""
_KEPT = ("gb_s", "few_tflops", "tflops", "dtype", "threads", "torch", "ray", "weights_bytes")
_CLOCK, _HEAT, _CAP = "clocks.sm", "temperature.gpu", "power.limit"
_WIDTH, _WIDEST = "pcie.link.width.current", "pcie.link.width.max"
_LOOK = "nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE  # then look for heat, a power cap, other users"
_COUNTER = ("/statistics/", "/counters/", "/hw_counters/")


@dataclass(frozen=True)
class Record:
    """One probe of a host."""

    when: str
    """UTC, ISO 8601."""
    speeds: tuple[dict[str, Any], ...] = ()
    """`DeviceSpeed` of each device that was measured."""
    gpus: dict[str, dict[str, str]] = field(default_factory=dict)
    """nvidia-smi's fields by index."""
    links: dict[str, int] = field(default_factory=dict)
    """Mbit/s by interface, or by RDMA device and port."""
    files: dict[str, int] = field(default_factory=dict)
    """Error counters and PCIe lanes by their paths below /sys/class."""
    driver: str | None = None
    kernel: str | None = None
    mode: str | None = None
    """A Jetson's power mode."""
    device: str = "cuda"
    """Or cpu, which other programs share."""
    stated: dict[str, float] = field(default_factory=dict)
    """Documented GB/s by index of a GPU."""
    kind: str | None = None
    """The host's kind; None in records before November 2026."""

    @property
    def devices(self) -> list[DeviceSpeed]:
        return [DeviceSpeed(**each) for each in self.speeds if json_shape.fits(each, DeviceSpeed)]


def speed_of(
    host: str, units: Sequence[MeasuredDevice], about: Mapping[str, Any], when: str
) -> DeviceSpeed | None:
    """Return an answer of payload/device_speed.py; None where the host's facts show no such device.

    A GPU is known by its uuid, which torch writes without nvidia-smi's prefix.
    """
    ours = (each for each in units if each.uuid and each.uuid.removeprefix("GPU-") == str(about["uuid"]))
    unit = units[0] if len(units) == 1 else next(ours, None)
    if unit is None:
        return None
    kept: dict[str, Any] = {key: about[key] for key in _KEPT if key in about}
    return DeviceSpeed(host, unit.index, unit.name, unit.memory_bytes, when=when, **kept)


def keep(record: Record) -> tuple[Record, ...]:
    """Add a record to this host's history, and return all of it."""
    file = storage.state() / FILE
    with storage.lock(file.with_suffix(".lock"), waits=lambda: None):
        found = (*history()[-_MOST + 1 :], record)
        storage.write(file, "".join(f"{json.dumps(asdict(each))}\n" for each in found))
    return found


def history() -> tuple[Record, ...]:
    """Return the records of this host, the oldest first."""
    with suppress(OSError):
        return parsed((storage.state() / FILE).read_text(encoding="utf-8", errors="replace").splitlines())
    return ()


def parsed(lines: Iterable[str]) -> tuple[Record, ...]:
    """Leave out lines of another medley, or that a power cut damaged."""
    tables = filter(None, map(json_shape.table, lines))
    return tuple(Record(**each) for each in tables if json_shape.fits(each, Record))


def slow(found: Iterable[DeviceSpeed]) -> Iterator[tuple[DeviceSpeed, DeviceSpeed]]:
    """Yield each device under half of the fastest of its name, and that one."""
    by_name = sorted(found, key=lambda each: each.name)
    for _, equals in groupby(by_name, key=lambda each: each.name):
        group = list(equals)
        reads, multiplies = max(group, key=lambda one: one.gb_s), max(group, key=lambda one: one.tflops)
        for each in group:
            if each.gb_s < _EQUAL * reads.gb_s:
                yield each, reads
            elif each.tflops < _EQUAL * multiplies.tflops:
                yield each, multiplies


def slower_than_equal(each: DeviceSpeed, best: DeviceSpeed, kind: str | None) -> Finding:
    """Compare a device of a host of this kind with a faster one of the same name on another host."""
    return Finding(
        f"{_called(each)} is slower than its equal in {best.host}",
        f"{_figures(each)} on {each.when[:10]}; there {_figures(best)} on {best.when[:10]}",
        _fix(kind),
    )


def findings(records: Sequence[Record]) -> Iterator[Finding]:
    """Compare the newest record with the earlier ones, and with documented figures."""
    if not records:
        return
    # A probe that measured nothing, as where memory was full, does not make a device well.
    measured = [each for each in records if each.speeds]
    for device in measured[-1].devices if measured else ():
        found = _own_past(measured, device, "gb_s", "GB/s") or _own_past(measured, device, "tflops", "TFLOPS")
        documented = measured[-1].stated.get(str(device.index), 0)
        if found:
            yield found
        elif device.gb_s < _STATED * documented:
            yield Finding(
                f"{_called(device)} is far below its documented speed",
                f"{device.gb_s:.3g} GB/s on {device.when[:10]}, documented {documented:.3g} GB/s"
                f"{_state(measured[-1], device.index)}",
                _fix(measured[-1].kind),
            )
    yield from _links(records)
    yield from _lanes(records)
    yield from _errors(records)


def _own_past(records: Sequence[Record], device: DeviceSpeed, figure: str, unit: str) -> Finding | None:
    """Records that were slow do not count as its past, so that it stays named until it is well again."""
    good, since, last = list[float](), None, records[-1]
    for record in records:
        same = record.driver == last.driver and record.mode == last.mode
        for speed in (each for each in record.devices if same and _measured_alike(each, device)):
            value = getattr(speed, figure)
            if len(good) >= _LEAST_PAST and value < _OWN * median(good[-_PAST:]):
                since = since or record
            else:
                good.append(value)
                since = None
    if since is None or (last.device == "cpu" and _hours(since, last) < _CPU_HOURS):
        return None
    before, now = median(good[-_PAST:]), getattr(device, figure)
    return Finding(
        f"{_called(device)} is slower than its own past",
        f"{now:.3g} {unit} on {device.when[:10]}, {now / before:.0%} of {before:.3g} {unit}, the median of "
        f"{len(good[-_PAST:])} earlier records; slow since {since.when[:16]}Z{_state(last, device.index)}",
        _fix(last.kind),
    )


def _measured_alike(one: DeviceSpeed, other: DeviceSpeed) -> bool:
    keys = ("index", "name", "memory_bytes", "dtype", "threads", "weights_bytes")
    return all(getattr(one, key) == getattr(other, key) for key in keys)


def _state(record: Record, index: int) -> str:
    gpu = record.gpus.get(str(index), {})
    units = {_CLOCK: "MHz", _HEAT: "°C", _CAP: "W at most"}
    found = [f"{gpu[name]} {unit}" for name, unit in units.items() if name in gpu]
    return f"; {', '.join(found)}" if found else ""


def _links(records: Sequence[Record]) -> Iterator[Finding]:
    for name, mbit in records[-1].links.items():
        best = max(records, key=lambda each: each.links.get(name, 0))
        if mbit < best.links.get(name, 0):
            yield Finding(
                f"Link {name} is slower than its own past",
                f"{mbit / 1000:g} Gbit/s on {records[-1].when[:10]}, {best.links[name] / 1000:g} Gbit/s on "
                f"{best.when[:10]}: both ends agreed on a lower speed",
                f"reseat or replace its cable, then: ethtool {name.partition(':')[0]}",
            )


def _lanes(records: Sequence[Record]) -> Iterator[Finding]:
    last = records[-1]
    for index, gpu in last.gpus.items():
        now, most = gpu.get(_WIDTH, ""), gpu.get(_WIDEST, "")
        if now.isdecimal() and most.isdecimal() and int(now) < int(most):
            yield Finding(
                f"GPU {index} has {now} of {most} PCIe lanes",
                f"on {last.when[:10]}; the slot has fewer, or the card does not sit well",
                "nvidia-smi -q -d PERFORMANCE  # then switch off, and reseat the card or use another slot",
            )
    for path, lanes in last.files.items():
        most_lanes = max(each.files.get(path, 0) for each in records)
        if path.endswith("/current_link_width") and lanes < most_lanes:
            yield Finding(
                f"{path.split('/')[1]} has {lanes} PCIe lanes, and had {most_lanes}",
                f"on {last.when[:10]}; the card does not sit well, or its firmware has changed",
                "switch the host off, reseat the card, and look again: medley collective-test --only speed",
            )


def _errors(records: Sequence[Record]) -> Iterator[Finding]:
    last, before = records[-1], records[-2] if records[1:] else records[-1]
    hours = _hours(before, last)
    for path, count in last.files.items():
        # A counter that is lower began again when the host did.
        rose = count - before.files.get(path, count)
        if any(part in path for part in _COUNTER) and hours > 0 and rose / hours >= 1:
            link = path.split("/")[1]
            yield Finding(
                f"Errors on {link} rise: {path.rpartition('/')[2]}",
                f"{rose:,} more from {before.when[:16]}Z to {last.when[:16]}Z, {rose / hours:,.0f} an hour",
                f"reseat or replace its cable, then: medley link watch  # {link}",
            )


def _hours(one: Record, other: Record) -> float:
    return (datetime.fromisoformat(other.when) - datetime.fromisoformat(one.when)).total_seconds() / 3600


def _fix(kind: str | None) -> str:
    """Return what to type where a device of a host of this kind is slow."""
    table = kinds.host_table(kind) if kind else None
    if table and table.device == "cpu":
        return "top; systemd-cgtop  # then end what else runs, or raise the quota"
    return (table and table.power.slow_fix) or _LOOK


def _called(each: DeviceSpeed) -> str:
    return f"Device {each.index} ({each.name or 'no name'})"


def _figures(each: DeviceSpeed) -> str:
    return f"{each.gb_s:.3g} GB/s and {each.tflops:.3g} TFLOPS"
