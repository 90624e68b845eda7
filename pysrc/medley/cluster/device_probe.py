"""Probe this host's devices in a few seconds, and keep the result with the state of its links."""

import platform
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from medley import json_shape, process, storage
from medley.command import Command
from medley.environment import payload
from medley.environment.payload import process_stacks
from medley.errors import Finding, Problem
from medley.host.facts import Facts
from medley.host.facts.gpu import parse_field
from medley.host.health.gpu import POWER
from medley.host.kind import Kind, detect_kind
from medley.planner import devices
from medley.planner.device_history import (
    HISTORY_FILE,
    Record,
    add_record,
    list_findings,
    read_history,
    read_speed,
)
from medley.planner.devices import DeviceSpeed
from medley.transcript import NO_ANSWER, lines, number, readings
from medley.unusable_file import optional

_LIMIT_S = 30
_AGAIN_S = 600
"""After less, as when a server is restarted, the devices are left alone."""
_EVERY = timedelta(days=1)
_LOOK_EVERY_S = 60
_IDLE_CORES = 0.1
_GPU = (
    *("index", "clocks.sm", "temperature.gpu", "power.limit", "clocks_throttle_reasons.active"),
    *("pcie.link.width.current", "pcie.link.width.max"),
)
# Signs of a bad cable, of Ethernet and of RDMA (the kernel's sysfs-class-infiniband), and lanes in use.
FILES = (
    "cd /sys/class && grep -EHs '^[0-9]+$' net/*/device/current_link_width net/*/statistics/rx_crc_errors"
    " net/*/statistics/rx_frame_errors infiniband/*/ports/*/counters/symbol_error"
    " infiniband/*/ports/*/counters/link_error_recovery infiniband/*/ports/*/counters/link_downed"
    " infiniband/*/ports/*/counters/port_rcv_errors infiniband/*/ports/*/hw_counters/rx_icrc_encapsulated"
    " | sed 's/:/ /'"
)
GPUS = f"nvidia-smi --query-gpu={','.join(_GPU)} --format=csv,noheader,nounits"
KERNEL = "uname -r"
_WIRED = {"ethernet", "infiniband"}


def record(found: Facts, kind: Kind, speeds: Sequence[DeviceSpeed]) -> tuple[Record, ...]:
    """Keep these speeds with what this host shows of its devices and links now; return the whole history."""
    answers = process.ask((GPUS, FILES, KERNEL, POWER))
    mode = re.search(r"NV Power Mode: *(\S+)", answers.get(POWER, NO_ANSWER).text)
    rows = [line.split(",") for line in lines(answers, GPUS)]
    gpus = [dict(zip(_GPU, map(parse_field, row), strict=True)) for row in rows if len(row) == len(_GPU)]
    links = {
        each.name: each.mbit for each in found.net.links if each.up and each.kind in _WIRED and each.mbit
    }
    ports = {each.nccl_name: each.mbit for each in found.rdma if each.active and each.mbit}
    counted = ((path, number(count)) for path, count in readings(answers, FILES))
    # A CPU has no figure of its own.
    stated = () if kind.host.device == "cpu" else devices.list_devices({"": (found, kind)})
    return add_record(
        Record(
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            speeds=tuple(asdict(each) for each in speeds),
            gpus={gpu["index"] or "": {name: text for name, text in gpu.items() if text} for gpu in gpus},
            links=links | ports,
            files={path: count for path, count in counted if count is not None},
            driver=found.driver.version,
            kernel=(answers[KERNEL].text.strip() or None),
            device=kind.host.device,
            kind=kind.name,
            mode=mode[1] if mode else None,
            stated={str(each.index): each.bandwidth_gb_s for each in stated},
        )
    )


def slow_now() -> list[str]:
    """One line for each finding of this host's own history."""
    return [str(each) for each in list_findings(read_history())]


def probe(launch: Command, *, starts: bool = False) -> list[Finding]:
    """Measure with an engine's Python, as its ranks will run; return what is slow.

    Nothing is measured within ten minutes of the last time, beside another probe, in an image, or on a CPU
    whose server `starts`.
    """
    with optional(), storage.lock((storage.state() / HISTORY_FILE).with_suffix(".probing")) as alone:
        late = _age(read_history()) >= timedelta(seconds=_AGAIN_S)
        return _probe(launch, starts=starts) if alone and late else []
    return []


def _probe(launch: Command, *, starts: bool) -> list[Finding]:
    python = Path(launch.argv[0]).parent / "python"
    if launch.undo or not python.is_file():
        return []
    try:
        found, kind = detect_kind()
    except Problem:
        return []
    if starts and kind.host.device == "cpu":
        return []
    script = str(payload.FOLDER / "device_speed.py")
    words = (str(python), script, kind.host.device, "short")
    finished = process.run(Command(words, launch.env, launch.unset), limit_s=_LIMIT_S)
    when, units = (
        datetime.now(UTC).isoformat(timespec="seconds"),
        tuple(devices.list_device_identities(found, kind)),
    )
    told = [json_shape.table(line) for line in finished.lines if line.startswith('{"device"')]
    speeds = [read_speed(platform.node(), units, each, when) for each in told if each]
    measured = [each for each in speeds if each]
    slow = list(list_findings(record(found, kind, measured)))
    _plan_with(measured, slow)
    return slow


def _plan_with(measured: Sequence[DeviceSpeed], slow: Sequence[Finding]) -> None:
    """Let plans count with a device's speed while it is slow, and wherever one was measured before."""
    known = devices.read_measurements().speeds
    named = " ".join(each.what for each in slow)
    kept = [each for each in measured if (each.host, each.index) in known or f"Device {each.index} " in named]
    if kept:
        devices.add_measurements(kept, ())


def _age(records: Sequence[Record]) -> timedelta:
    if not records:
        return timedelta.max
    # One of the future was made before the clock was set back; it is as good as an old one.
    return abs(datetime.now(UTC) - datetime.fromisoformat(records[-1].when))


def quiet(pids: Callable[[], Iterable[int]]) -> Callable[[], bool]:
    """Return what tells whether these processes, and all below, used little CPU time since it told last."""
    last: dict[int, float] = {}
    told_at = 0.0

    def idle() -> bool:
        nonlocal last, told_at
        before, now = last, time.monotonic()
        last = {row["pid"]: row["cpu_s"] for row in process_stacks.describe_processes(pids())["processes"]}
        passed_s, told_at = now - told_at, now
        used = (cpu_s - before.get(pid, 0) for pid, cpu_s in last.items())
        return bool(before) and all(each < _IDLE_CORES * passed_s for each in used)

    return idle


def at_start(launch: Command, say: Callable[[str], None]) -> None:
    """Probe before an engine starts, and say what is slow. A failure keeps no engine."""
    _probe_and_say(launch, say, starts=True)


def _probe_and_say(launch: Command, say: Callable[[str], None], *, starts: bool) -> None:
    with suppress(OSError, Problem, ValueError):  # as where the disk is full
        for each in probe(launch, starts=starts):
            say(str(each))


@contextmanager
def probed_daily(launch: Command, idle: Callable[[], bool], say: Callable[[str], None]) -> Iterator[None]:
    """Probe now, and daily in the body whenever `idle`; say what is slow. A failure keeps no server."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            if _age(read_history()) >= _EVERY and idle():
                _probe_and_say(launch, say, starts=False)

    at_start(launch, say)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
