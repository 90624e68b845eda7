"""Record the speeds of a host's devices and links, and find which are slower than before or than stated."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from statistics import median
from typing import Any

from msgspec import field

from medley import json_shape, storage
from medley.errors import Finding
from medley.planner import kinds
from medley.planner.devices import DeviceIdentity, DeviceSpeed
from medley.unusable_file import skip_unusable_file
from medley.values import Value

HISTORY_FILE = "device-history.jsonl"
_MAX_RECORDS = 60
_MAX_PAST_SPEEDS, _MIN_PAST_SPEEDS = 20, 2
_MIN_SHARE_OF_PAST, _MIN_SHARE_OF_EQUAL, _MIN_SHARE_OF_STATED = 0.8, 0.5, 0.5
_CPU_HOURS = 1
"""The hours for which a CPU must have been slow before it counts as slow."""
_SPEED_KEYS = ("gb_s", "few_tflops", "tflops", "dtype", "threads", "torch", "ray", "weights_bytes")
_CLOCK_FIELD, _TEMPERATURE_FIELD, _POWER_LIMIT_FIELD = "clocks.sm", "temperature.gpu", "power.limit"
_LANES_FIELD, _MAX_LANES_FIELD = "pcie.link.width.current", "pcie.link.width.max"
_DIAGNOSIS_COMMAND = (
    "nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE  # then look for heat, a power cap, other users"
)
_COUNTER_FOLDERS = ("/statistics/", "/counters/", "/hw_counters/")


class ProbeRecord(Value):
    """The result of one probe of a host: a line of the history."""

    when: str
    """UTC, ISO 8601."""
    speeds: tuple[dict[str, Any], ...] = ()
    """The fields of a `DeviceSpeed` for each measured device."""
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
    """The type of device: cuda, or cpu, which other programs share."""
    stated: dict[str, float] = field(default_factory=dict)
    """The documented bandwidth in GB/s, by index of the GPU."""
    kind: str | None = None
    """The host's kind; None in records before November 2026."""

    @property
    def devices(self) -> list[DeviceSpeed]:
        """The measured devices, without entries of another release of medley."""
        return [DeviceSpeed(**speed) for speed in self.speeds if json_shape.has_type(speed, DeviceSpeed)]


def parse_speed(
    host: str, devices: Sequence[DeviceIdentity], answer: Mapping[str, Any], when: str
) -> DeviceSpeed | None:
    """Return the speed in an answer of payload/device_speed.py; None where the facts show no such device.

    A GPU is known by its uuid, which torch writes without nvidia-smi's prefix.
    """
    uuid = str(answer["uuid"])
    matches = (device for device in devices if device.uuid and device.uuid.removeprefix("GPU-") == uuid)
    device = devices[0] if len(devices) == 1 else next(matches, None)
    if device is None:
        return None
    values: dict[str, Any] = {key: answer[key] for key in _SPEED_KEYS if key in answer}
    return DeviceSpeed(host, device.index, device.name, device.memory_bytes, when=when, **values)


def add_record(record: ProbeRecord) -> tuple[ProbeRecord, ...]:
    """Add a record to this host's history, and return all of it."""
    file = storage.find_state_folder() / HISTORY_FILE
    with storage.lock_file(file.with_suffix(".lock"), on_wait=lambda: None):
        records = (*read_history()[-_MAX_RECORDS + 1 :], record)
        storage.write_text(file, "".join(f"{json.dumps(entry.to_table())}\n" for entry in records))
    return records


def read_history() -> tuple[ProbeRecord, ...]:
    """Return the records of this host, the oldest first."""
    text = None
    with skip_unusable_file():
        text = storage.read_text(storage.find_state_folder() / HISTORY_FILE, errors="replace")
    return parse_records((text or "").splitlines())


def parse_records(lines: Iterable[str]) -> tuple[ProbeRecord, ...]:
    """Return the records, without lines of another medley or lines that a power cut damaged.

    A report can have any names; findings print those of links and files, so each has to fit on a line, and
    none may be an option of a command.
    """
    tables = filter(None, map(json_shape.parse_object, lines))
    records = (ProbeRecord(**table) for table in tables if json_shape.has_type(table, ProbeRecord))
    return tuple(record for record in records if _has_usable_names(record) and _has_time(record))


def _has_usable_names(record: ProbeRecord) -> bool:
    return all(name.isprintable() and not name.startswith("-") for name in (*record.links, *record.files))


def _has_time(record: ProbeRecord) -> bool:
    try:
        return datetime.fromisoformat(record.when).tzinfo is not None
    except ValueError:
        return False


def find_slow_devices(devices: Iterable[DeviceSpeed]) -> Iterator[tuple[DeviceSpeed, DeviceSpeed]]:
    """Yield each device that has less than half the speed of the fastest of its name, and the fastest."""
    by_name = sorted(devices, key=lambda device: device.name)
    for _, same_name in groupby(by_name, key=lambda device: device.name):
        group = list(same_name)
        fastest_reader = max(group, key=lambda device: device.gb_s)
        fastest_multiplier = max(group, key=lambda device: device.tflops)
        for device in group:
            if device.gb_s < _MIN_SHARE_OF_EQUAL * fastest_reader.gb_s:
                yield device, fastest_reader
            elif device.tflops < _MIN_SHARE_OF_EQUAL * fastest_multiplier.tflops:
                yield device, fastest_multiplier


def build_slower_than_equal_finding(device: DeviceSpeed, faster: DeviceSpeed, kind: str | None) -> Finding:
    """Return the finding that a faster device of the same name is on another host; `kind`: the host's."""
    return Finding(
        f"{_format_name(device)} is slower than its equal in {faster.host}",
        f"{_format_speeds(device)} on {device.when[:10]}; "
        f"there {_format_speeds(faster)} on {faster.when[:10]}",
        _choose_fix(kind),
    )


def list_findings(records: Sequence[ProbeRecord]) -> Iterator[Finding]:
    """Yield a finding for each device or link that is slower than before, or than documented."""
    if not records:
        return
    # A probe that measured nothing, for example because memory was full, does not clear a slow device.
    measured = [record for record in records if record.speeds]
    devices = measured[-1].devices if measured else ()
    for device in devices:
        finding = _compare_with_past(measured, device, "gb_s", "GB/s")
        finding = finding or _compare_with_past(measured, device, "tflops", "TFLOPS")
        stated_gb_s = measured[-1].stated.get(str(device.index), 0)
        if finding:
            yield finding
        elif device.gb_s < _MIN_SHARE_OF_STATED * stated_gb_s:
            yield Finding(
                f"{_format_name(device)} is far below its documented speed",
                f"{device.gb_s:.3g} GB/s on {device.when[:10]}, documented {stated_gb_s:.3g} GB/s"
                f"{_describe_gpu_state(measured[-1], device.index)}",
                _choose_fix(measured[-1].kind),
            )
    yield from _list_link_findings(records)
    yield from _list_lane_findings(records)
    yield from _list_error_findings(records)


def _compare_with_past(
    records: Sequence[ProbeRecord], device: DeviceSpeed, figure: str, unit: str
) -> Finding | None:
    """Return the finding that a device is slower than its own past; None if it is not.

    Slow records do not count as its past, so that the finding stays until the device is fast again.
    """
    past, slow_since, last = list[float](), None, records[-1]
    for record in records:
        if record.driver != last.driver or record.mode != last.mode:
            continue
        for speed in record.devices:
            if not _is_same_measurement(speed, device):
                continue
            value = getattr(speed, figure)
            recent = past[-_MAX_PAST_SPEEDS:]
            if len(recent) >= _MIN_PAST_SPEEDS and value < _MIN_SHARE_OF_PAST * median(recent):
                slow_since = slow_since or record
            else:
                past.append(value)
                slow_since = None
    if slow_since is None or (last.device == "cpu" and _count_hours(slow_since, last) < _CPU_HOURS):
        return None
    recent = past[-_MAX_PAST_SPEEDS:]
    current_speed, past_speed = getattr(device, figure), median(recent)
    return Finding(
        f"{_format_name(device)} is slower than its own past",
        f"{current_speed:.3g} {unit} on {device.when[:10]}, {current_speed / past_speed:.0%} of "
        f"{past_speed:.3g} {unit}, the median of {len(recent)} earlier records; "
        f"slow since {slow_since.when[:16]}Z{_describe_gpu_state(last, device.index)}",
        _choose_fix(last.kind),
    )


def _is_same_measurement(first: DeviceSpeed, second: DeviceSpeed) -> bool:
    keys = ("index", "name", "memory_bytes", "dtype", "threads", "weights_bytes")
    return all(getattr(first, key) == getattr(second, key) for key in keys)


def _describe_gpu_state(record: ProbeRecord, index: int) -> str:
    gpu = record.gpus.get(str(index), {})
    units = {_CLOCK_FIELD: "MHz", _TEMPERATURE_FIELD: "°C", _POWER_LIMIT_FIELD: "W at most"}
    figures = [f"{gpu[name]} {unit}" for name, unit in units.items() if name in gpu]
    return f"; {', '.join(figures)}" if figures else ""


def _list_link_findings(records: Sequence[ProbeRecord]) -> Iterator[Finding]:
    for name, mbit in records[-1].links.items():
        best = max(records, key=lambda record: record.links.get(name, 0))
        if mbit < best.links.get(name, 0):
            yield Finding(
                f"Link {name} is slower than its own past",
                f"{mbit / 1000:g} Gbit/s on {records[-1].when[:10]}, {best.links[name] / 1000:g} Gbit/s on "
                f"{best.when[:10]}: both ends agreed on a lower speed",
                f"reseat or replace its cable, then: ethtool {shlex.quote(name.partition(':')[0])}",
            )


def _list_lane_findings(records: Sequence[ProbeRecord]) -> Iterator[Finding]:
    last = records[-1]
    for index, gpu in last.gpus.items():
        lanes, max_lanes = gpu.get(_LANES_FIELD, ""), gpu.get(_MAX_LANES_FIELD, "")
        if lanes.isdecimal() and max_lanes.isdecimal() and int(lanes) < int(max_lanes):
            yield Finding(
                f"GPU {index} has {lanes} of {max_lanes} PCIe lanes",
                f"on {last.when[:10]}; the slot has fewer, or the card does not sit well",
                "nvidia-smi -q -d PERFORMANCE  # then switch off, and reseat the card or use another slot",
            )
    for path, card_lanes in last.files.items():
        max_card_lanes = max(record.files.get(path, 0) for record in records)
        if path.endswith("/current_link_width") and card_lanes < max_card_lanes:
            yield Finding(
                f"{path.split('/')[1]} has {card_lanes} PCIe lanes, and had {max_card_lanes}",
                f"on {last.when[:10]}; the card does not sit well, or its firmware has changed",
                "switch the host off, reseat the card, and look again: medley collective-test --only speed",
            )


def _list_error_findings(records: Sequence[ProbeRecord]) -> Iterator[Finding]:
    last, previous = records[-1], records[-2] if records[1:] else records[-1]
    hours = _count_hours(previous, last)
    for path, count in last.files.items():
        # A counter that is lower than before started again with the host.
        increase = count - previous.files.get(path, count)
        if any(part in path for part in _COUNTER_FOLDERS) and hours > 0 and increase / hours >= 1:
            link = path.split("/")[1]
            yield Finding(
                f"Errors on {link} rise: {path.rpartition('/')[2]}",
                f"{increase:,} more from {previous.when[:16]}Z to {last.when[:16]}Z, "
                f"{increase / hours:,.0f} an hour",
                f"reseat or replace its cable, then: medley link watch  # {shlex.quote(link)}",
            )


def _count_hours(earlier: ProbeRecord, later: ProbeRecord) -> float:
    return (datetime.fromisoformat(later.when) - datetime.fromisoformat(earlier.when)).total_seconds() / 3600


def _choose_fix(kind: str | None) -> str:
    """Return the command to run where a device of this kind of host is slow."""
    table = kinds.read_host_table(kind) if kind else None
    if table and table.device == "cpu":
        return "top; systemd-cgtop  # then end what else runs, or raise the quota"
    return (table and table.power.slow_fix) or _DIAGNOSIS_COMMAND


def _format_name(device: DeviceSpeed) -> str:
    return f"Device {device.index} ({device.name or 'no name'})"


def _format_speeds(device: DeviceSpeed) -> str:
    return f"{device.gb_s:.3g} GB/s and {device.tflops:.3g} TFLOPS"
