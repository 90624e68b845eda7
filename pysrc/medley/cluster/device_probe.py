"""Measure this host's devices in a few seconds, and record the speeds with the state of its links."""

import platform
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from medley import json_shape, process, storage
from medley.command import Command
from medley.environment import payload
from medley.environment.payload import process_stacks
from medley.errors import Finding, Problem
from medley.host.facts import Facts
from medley.host.facts.gpu import parse_field
from medley.host.health.gpu import POWER_QUESTION
from medley.host.kind import Kind, SiteHost, detect_host
from medley.planner import devices
from medley.planner.device_history import (
    HISTORY_FILE,
    ProbeRecord,
    add_record,
    list_findings,
    parse_speed,
    read_history,
)
from medley.planner.devices import DeviceSpeed
from medley.transcript import NO_ANSWER, parse_number, read_file_values, read_lines
from medley.unusable_file import skip_unusable_file

_PROBE_LIMIT_S = 30
_MIN_PROBE_INTERVAL_S = 600
"""Seconds between two probes at least, because a server may restart often."""
_PROBE_INTERVAL = timedelta(days=1)
_CHECK_INTERVAL_S = 60
_MAX_IDLE_CORES = 0.1
_GPU_FIELDS = (
    *("index", "clocks.sm", "temperature.gpu", "power.limit", "clocks_throttle_reasons.active"),
    *("pcie.link.width.current", "pcie.link.width.max"),
)
# Signs of a bad cable, of Ethernet and of RDMA (the kernel's sysfs-class-infiniband), and lanes in use.
COUNTERS_COMMAND = (
    "cd /sys/class && grep -EHs '^[0-9]+$' net/*/device/current_link_width net/*/statistics/rx_crc_errors"
    " net/*/statistics/rx_frame_errors infiniband/*/ports/*/counters/symbol_error"
    " infiniband/*/ports/*/counters/link_error_recovery infiniband/*/ports/*/counters/link_downed"
    " infiniband/*/ports/*/counters/port_rcv_errors infiniband/*/ports/*/hw_counters/rx_icrc_encapsulated"
    " | sed 's/:/ /'"
)
GPU_COMMAND = f"nvidia-smi --query-gpu={','.join(_GPU_FIELDS)} --format=csv,noheader,nounits"
KERNEL_COMMAND = "uname -r"
_WIRED_KINDS = {"ethernet", "infiniband"}


def record_speeds(host_facts: Facts, kind: Kind, speeds: Sequence[DeviceSpeed]) -> tuple[ProbeRecord, ...]:
    """Add these speeds, and the state of devices and links, to the history; return the whole history."""
    answers = process.ask_host((GPU_COMMAND, COUNTERS_COMMAND, KERNEL_COMMAND, POWER_QUESTION))
    power_mode = re.search(r"NV Power Mode: *(\S+)", answers.get(POWER_QUESTION, NO_ANSWER).text)
    rows = [line.split(",") for line in read_lines(answers, GPU_COMMAND)]
    gpus = [
        dict(zip(_GPU_FIELDS, map(parse_field, row), strict=True))
        for row in rows
        if len(row) == len(_GPU_FIELDS)
    ]
    links = {
        link.name: link.mbit
        for link in host_facts.net.links
        if link.up and link.kind in _WIRED_KINDS and link.mbit
    }
    ports = {port.nccl_name: port.mbit for port in host_facts.rdma if port.active and port.mbit}
    counters = ((path, parse_number(count)) for path, count in read_file_values(answers, COUNTERS_COMMAND))
    # The maker of a CPU states no figure.
    stated_devices = (
        () if kind.table.device == "cpu" else devices.list_devices({"": SiteHost(host_facts, kind)})
    )
    return add_record(
        ProbeRecord(
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            speeds=tuple(speed.to_table() for speed in speeds),
            gpus={gpu["index"] or "": {name: text for name, text in gpu.items() if text} for gpu in gpus},
            links=links | ports,
            files={path: count for path, count in counters if count is not None},
            driver=host_facts.driver.version,
            kernel=(answers[KERNEL_COMMAND].text.strip() or None),
            device=kind.table.device,
            kind=kind.name,
            mode=power_mode[1] if power_mode else None,
            stated={str(device.index): device.bandwidth_gb_s for device in stated_devices},
        )
    )


def list_slow_findings() -> list[str]:
    """Return one line for each finding of this host's own history."""
    return [str(finding) for finding in list_findings(read_history())]


def probe_devices(launch: Command, *, is_engine_start: bool = False) -> list[Finding]:
    """Measure with an engine's Python, as its ranks will run; return what is slow.

    Nothing is measured within ten minutes of the last time, during another probe, in an image, or on a CPU
    whose server `is_engine_start`.
    """
    with (
        skip_unusable_file(),
        storage.lock_file((storage.find_state_folder() / HISTORY_FILE).with_suffix(".probing")) as is_alone,
    ):
        is_due = _compute_age(read_history()) >= timedelta(seconds=_MIN_PROBE_INTERVAL_S)
        return _run_probe(launch, is_engine_start=is_engine_start) if is_alone and is_due else []
    return []


def _run_probe(launch: Command, *, is_engine_start: bool) -> list[Finding]:
    python = Path(launch.argv[0]).parent / "python"
    if launch.undo or not python.is_file():
        return []
    try:
        host_facts, kind = detect_host()
    except Problem:
        return []
    if is_engine_start and kind.table.device == "cpu":
        return []
    script = str(payload.FOLDER / "device_speed.py")
    argv = (str(python), script, kind.table.device, "short")
    finished = process.run(Command(argv, launch.env, launch.unset), limit_s=_PROBE_LIMIT_S)
    measured_at, identities = (
        datetime.now(UTC).isoformat(timespec="seconds"),
        tuple(devices.list_device_identities(host_facts, kind)),
    )
    tables = [json_shape.parse_object(line) for line in finished.lines if line.startswith('{"device"')]
    speeds = [parse_speed(platform.node(), identities, table, measured_at) for table in tables if table]
    measured_speeds = [speed for speed in speeds if speed]
    slow_findings = list(list_findings(record_speeds(host_facts, kind, measured_speeds)))
    _update_measurements(measured_speeds, slow_findings)
    return slow_findings


def _update_measurements(measured_speeds: Sequence[DeviceSpeed], slow_findings: Sequence[Finding]) -> None:
    """Store speeds for the planner: of slow devices, and of devices that were measured before."""
    known_speeds = devices.read_measurements().speeds
    slow_text = " ".join(finding.what for finding in slow_findings)
    updated_speeds = [
        speed
        for speed in measured_speeds
        if (speed.host, speed.index) in known_speeds or f"Device {speed.index} " in slow_text
    ]
    if updated_speeds:
        devices.add_measurements(updated_speeds, ())


def _compute_age(records: Sequence[ProbeRecord]) -> timedelta:
    if not records:
        return timedelta.max
    # A record from the future was made before the clock was set back, so it counts as an old one.
    return abs(datetime.now(UTC) - datetime.fromisoformat(records[-1].when))


def build_idle_check(pids: Callable[[], Iterable[int]]) -> Callable[[], bool]:
    """Return a check whether these processes and their children used little CPU time since the last check."""
    cpu_s_by_pid: dict[int, float] = {}
    checked_at = 0.0

    def is_idle() -> bool:
        nonlocal cpu_s_by_pid, checked_at
        previous, now = cpu_s_by_pid, time.monotonic()
        cpu_s_by_pid = {
            row["pid"]: row["cpu_s"] for row in process_stacks.describe_processes(pids())["processes"]
        }
        elapsed_s, checked_at = now - checked_at, now
        used_by_process = (cpu_s - previous.get(pid, 0) for pid, cpu_s in cpu_s_by_pid.items())
        return bool(previous) and all(used_s < _MAX_IDLE_CORES * elapsed_s for used_s in used_by_process)

    return is_idle


def probe_at_start(launch: Command, print_line: Callable[[str], None]) -> None:
    """Probe before an engine starts, and print slow devices and links. A failure stops no engine."""
    _probe_and_print(launch, print_line, is_engine_start=True)


def _probe_and_print(launch: Command, print_line: Callable[[str], None], *, is_engine_start: bool) -> None:
    with suppress(OSError, Problem, ValueError):  # as where the disk is full
        for finding in probe_devices(launch, is_engine_start=is_engine_start):
            print_line(str(finding))


@contextmanager
def probe_daily(
    launch: Command, is_idle: Callable[[], bool], print_line: Callable[[str], None]
) -> Iterator[None]:
    """Probe now, and daily in the body whenever `is_idle`; print what is slow. A failure stops no server."""
    stop_event = threading.Event()

    def probe_when_idle() -> None:
        while not stop_event.wait(_CHECK_INTERVAL_S):
            if _compute_age(read_history()) >= _PROBE_INTERVAL and is_idle():
                _probe_and_print(launch, print_line, is_engine_start=False)

    probe_at_start(launch, print_line)
    thread = threading.Thread(target=probe_when_idle, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop_event.set()
