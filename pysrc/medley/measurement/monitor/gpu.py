"""Sample GPUs with nvidia-smi, and a Jetson's GPU from sysfs."""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from medley import process
from medley.command import Command
from medley.errors import Problem
from medley.host.facts.gpu import parse_field
from medley.measurement.monitor.sample import GpuSample

# `nvidia-smi --help-query-gpu`. The reasons have been called clocks_event_reasons since driver 535; the old
# name still works. Some driver refused one of the optional fields, so there is a second, shorter list.
_BASIC_FIELDS = (
    "index",
    "name",
    "utilization.gpu",
    "memory.total",
    "memory.used",
    "temperature.gpu",
    "power.draw",
)
_OPTIONAL_FIELDS = ("power.limit", "clocks.sm", "clocks.max.sm", "clocks_throttle_reasons.active")
QUERY_FIELDS = ((*_BASIC_FIELDS, *_OPTIONAL_FIELDS), _BASIC_FIELDS)
_REFUSAL = "is not a valid field to query"
_MIB = 1 << 20

# nvmlClocksEventReasons: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
# GPU idle (1) is not a limit; clocks that a user has set (2, 0x100) are.
CLOCK_LIMIT_REASONS = {
    0x002: "clocks set",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "heat",
    0x040: "heat (hardware)",
    0x080: "power brake",
    0x100: "display clocks",
}
LOAD_FILE = "devices/platform/gpu.0/load"
"""The load per thousand; project Glances reports this path and the zone of Jetsons with L4T R36 and R39."""
THERMAL_ZONE = "gpu-thermal"
_SILENT_LIMIT_S = 15
_RETRY_S = 30
"""The pause after nvidia-smi ended: a driver is being replaced, or a GPU has left its bus."""
_MAX_ERROR_CHARS = 200


class GpuSampler:
    """Sampler that keeps nvidia-smi running, and stores the last line of each GPU."""

    def __init__(self, interval_s: float, sys: Path = Path("/sys")) -> None:
        self._interval_s, self._sys = interval_s, sys
        self._lock = threading.Lock()
        self._fields = list(QUERY_FIELDS)
        self._process: process.Process | None = None
        self._start_time = float("-inf")
        self._samples: dict[int, tuple[float, GpuSample]] = {}
        self._error: str | None = None

    def read_samples(self) -> tuple[tuple[GpuSample, ...], str | None]:
        """Return the GPUs of the last lines; without any, the reason, if the host should have some."""
        self._restart()
        oldest_time = time.monotonic() - max(_SILENT_LIMIT_S, 5 * self._interval_s)
        with self._lock:
            recent = [sample for sample_time, sample in self._samples.values() if sample_time > oldest_time]
        samples = self._add_jetson(sorted(recent, key=lambda sample: sample.index))
        return tuple(samples), None if samples else self._explain_silence()

    def stop(self) -> None:
        if self._process:
            self._process.stop(grace_s=0.2)

    def _restart(self) -> None:
        """Start nvidia-smi, or restart it after it has ended; with fewer fields if it refused one."""
        finished = self._process.poll() if self._process else None
        is_due = self._process is None or (finished and time.monotonic() > self._start_time + _RETRY_S)
        is_refused = finished and any(_REFUSAL in line for line in finished.lines)
        if is_refused and len(self._fields) > 1:
            del self._fields[0]
        elif not is_due or not process.find_program("nvidia-smi"):
            return
        self._start_time, self._error = time.monotonic(), None
        fields = self._fields[0]
        command = build_query_command(fields, self._interval_s)
        with suppress(Problem):
            self._process = process.Process(command, lambda line: self._store_line(line, fields))

    def _store_line(self, line: str, fields: tuple[str, ...]) -> None:
        sample = parse_gpu(line, fields)
        with self._lock:
            if sample:
                self._samples[sample.index] = time.monotonic(), sample
            elif line.strip():
                self._error = line.strip()[:_MAX_ERROR_CHARS]

    def _explain_silence(self) -> str | None:
        if self._process is None:
            return None
        if self._error or self._process.poll():
            return f"nvidia-smi: {self._error or 'it ended without output'}"
        waited_s = time.monotonic() - self._start_time
        return f"nvidia-smi has printed nothing for {waited_s:.0f} s" if waited_s > _SILENT_LIMIT_S else None

    def _add_jetson(self, samples: list[GpuSample]) -> list[GpuSample]:
        """Complete the sample of a Jetson, whose nvidia-smi is absent or has no values that sysfs has."""
        load = self._sys / LOAD_FILE
        if not load.exists():
            return samples
        name = samples[0].name if samples else "integrated GPU"
        jetson = build_jetson_sample(name, self._read_jetson_files(load))
        if not samples:
            return [jetson]
        reported = {
            key: value for key, value in msgspec.structs.asdict(samples[0]).items() if value not in (None, ())
        }
        return [jetson.replace(**reported), *samples[1:]]

    def _read_jetson_files(self, load: Path) -> dict[str, str]:
        files = {"load": load}
        for zone in (self._sys / "class/thermal").glob("thermal_zone*"):
            if read_text(zone / "type") == THERMAL_ZONE:
                files["temp"] = zone / "temp"
        for device in (self._sys / "class/devfreq").glob("*gpu*"):
            files |= {name: device / name for name in ("cur_freq", "max_freq")}
        return {name: read_text(file) for name, file in files.items()}


def read_text(path: Path) -> str:
    """Return the file's text without blanks around it; empty if the file cannot be read."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def build_query_command(fields: tuple[str, ...], interval_s: float) -> Command:
    """Return a command that repeats the query, because each start costs much more than a query."""
    loop = f"--loop-ms={max(500, round(interval_s * 1000))}"
    return Command(("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", loop))


def parse_gpu(line: str, fields: tuple[str, ...]) -> GpuSample | None:
    """Parse a line of nvidia-smi; None for a warning or an error."""
    cells = line.split(",")
    if len(cells) != len(fields):
        return None
    texts = dict(zip(fields, map(parse_field, cells), strict=True))
    index, name = texts["index"], texts["name"]
    if index is None or not index.isdecimal() or name is None:
        return None
    numbers = {field: _parse_number(text) for field, text in texts.items()}
    total_mib, used_mib = numbers["memory.total"], numbers["memory.used"]
    return GpuSample(
        index=int(index),
        name=name,
        busy=_divide(numbers["utilization.gpu"], 100),
        memory_total_bytes=round(total_mib * _MIB) if total_mib is not None else None,
        memory_used_bytes=round(used_mib * _MIB) if used_mib is not None and total_mib is not None else None,
        temperature_c=numbers["temperature.gpu"],
        power_w=numbers["power.draw"],
        power_limit_w=numbers.get("power.limit"),
        clock_mhz=numbers.get("clocks.sm"),
        clock_most_mhz=numbers.get("clocks.max.sm"),
        held_back=_parse_reasons(texts.get("clocks_throttle_reasons.active")),
    )


def _parse_reasons(mask: str | None) -> tuple[str, ...]:
    """Return the names of the bits in a mask, as `0x0000000000000004`."""
    try:
        bits = int(mask or "0", 16)
    except ValueError:
        return ()
    return tuple(name for bit, name in CLOCK_LIMIT_REASONS.items() if bits & bit)


def build_jetson_sample(name: str, texts: Mapping[str, str]) -> GpuSample:
    """Return the sample of a Jetson's GPU. `texts`: `load` per thousand, `temp` in 0.001 °C, clocks in Hz."""
    keys = ("load", "temp", "cur_freq", "max_freq")
    load, temperature, clock_hz, max_clock_hz = (_parse_number(texts.get(key)) for key in keys)
    return GpuSample(
        index=0,
        name=name,
        busy=_divide(load, 1000),
        temperature_c=_divide(temperature, 1000),
        clock_mhz=_divide(clock_hz, 1e6),
        clock_most_mhz=_divide(max_clock_hz, 1e6),
    )


def _divide(number: float | None, divisor: float) -> float | None:
    return None if number is None else number / divisor


def _parse_number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None
