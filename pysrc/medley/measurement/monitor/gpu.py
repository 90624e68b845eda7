"""Sample GPUs by nvidia-smi, and a Jetson's by sysfs."""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from medley import process
from medley.command import Command
from medley.errors import Problem
from medley.host.facts.gpu import value
from medley.measurement.monitor import GpuSample

# `nvidia-smi --help-query-gpu`. The reasons have been called clocks_event_reasons since driver 535; the old
# name still holds. What follows `known` was refused by some driver, so there is a second, shorter list.
_KNOWN = ("index", "name", "utilization.gpu", "memory.total", "memory.used", "temperature.gpu", "power.draw")
_MORE = ("power.limit", "clocks.sm", "clocks.max.sm", "clocks_throttle_reasons.active")
FIELDS = ((*_KNOWN, *_MORE), _KNOWN)
_REFUSED = "is not a valid field to query"
_MIB = 1 << 20

# nvmlClocksEventReasons: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
# That nothing is to do (1) holds nothing back; a limit that somebody set (2, 0x100) does.
REASONS = {
    0x002: "clocks set",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "heat",
    0x040: "heat (hardware)",
    0x080: "power brake",
    0x100: "display clocks",
}
LOAD = "devices/platform/gpu.0/load"
"""Per thousand. So, and the zone, on L4T R36 and R39, as the project Glances reports of its own Jetsons."""
ZONE = "gpu-thermal"
_SILENT_S = 15
_RETRY_S = 30
"""After it ended by itself: a driver that is being replaced, or a GPU that fell off its bus."""
_SHOWN = 200


class GpuSampler:
    """Keeps nvidia-smi running, and the last line of each GPU."""

    def __init__(self, every_s: float, sys: Path = Path("/sys")) -> None:
        self._every_s, self._sys = every_s, sys
        self._lock = threading.Lock()
        self._fields = list(FIELDS)
        self._process: process.Process | None = None
        self._began = float("-inf")
        self._found: dict[int, tuple[float, GpuSample]] = {}
        self._odd: str | None = None

    def seen(self) -> tuple[tuple[GpuSample, ...], str | None]:
        """The GPUs as of the last lines, and what is wrong where they should show and do not."""
        self._restart()
        oldest = time.monotonic() - max(_SILENT_S, 5 * self._every_s)
        with self._lock:
            fresh = [gpu for at, gpu in self._found.values() if at > oldest]
        found = self._with_files(sorted(fresh, key=lambda gpu: gpu.index))
        return tuple(found), None if found else self._silent()

    def end(self) -> None:
        if self._process:
            self._process.stop(grace_s=0.2)

    def _restart(self) -> None:
        """Start it, and again when it has ended: with fewer fields where it did not know one."""
        ended = self._process.poll() if self._process else None
        due = self._process is None or (ended and time.monotonic() > self._began + _RETRY_S)
        refused = ended and any(_REFUSED in line for line in ended.lines)
        if refused and len(self._fields) > 1:
            del self._fields[0]
        elif not due or not process.program("nvidia-smi"):
            return
        self._began, self._odd = time.monotonic(), None
        fields = self._fields[0]
        command = query(fields, self._every_s)
        with suppress(Problem):
            self._process = process.Process(command, lambda line: self._take(line, fields))

    def _take(self, line: str, fields: tuple[str, ...]) -> None:
        found = gpu(line, fields)
        with self._lock:
            if found:
                self._found[found.index] = time.monotonic(), found
            elif line.strip():
                self._odd = line.strip()[:_SHOWN]

    def _silent(self) -> str | None:
        if self._process is None:
            return None
        if self._odd or self._process.poll():
            return f"nvidia-smi: {self._odd or 'it ended without output'}"
        waited_s = time.monotonic() - self._began
        return f"nvidia-smi has printed nothing for {waited_s:.0f} s" if waited_s > _SILENT_S else None

    def _with_files(self, found: list[GpuSample]) -> list[GpuSample]:
        """A Jetson's nvidia-smi leaves open what its kernel has in files, or is not there at all."""
        load = self._sys / LOAD
        if not load.exists():
            return found
        sample = jetson(found[0].name if found else "integrated GPU", self._files(load))
        if not found:
            return [sample]
        own = {key: value for key, value in vars(found[0]).items() if value not in (None, ())}
        return [replace(sample, **own), *found[1:]]

    def _files(self, load: Path) -> dict[str, str]:
        files = {"load": load}
        for zone in (self._sys / "class/thermal").glob("thermal_zone*"):
            if file_text(zone / "type") == ZONE:
                files["temp"] = zone / "temp"
        for device in (self._sys / "class/devfreq").glob("*gpu*"):
            files |= {name: device / name for name in ("cur_freq", "max_freq")}
        return {name: file_text(file) for name, file in files.items()}


def file_text(path: Path) -> str:
    """Return the text, or nothing if the file cannot be read."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def query(fields: tuple[str, ...], every_s: float) -> Command:
    """Run in a loop until ended: each start costs much more than a query."""
    loop = f"--loop-ms={max(500, round(every_s * 1000))}"
    return Command(("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", loop))


def gpu(line: str, fields: tuple[str, ...]) -> GpuSample | None:
    """Parse a line; None for a warning or an error."""
    words = line.split(",")
    if len(words) != len(fields):
        return None
    texts = dict(zip(fields, map(value, words), strict=True))
    index, name = texts["index"], texts["name"]
    if index is None or not index.isdecimal() or name is None:
        return None
    numbers = {field: _number(text) for field, text in texts.items()}
    total, used = numbers["memory.total"], numbers["memory.used"]
    return GpuSample(
        index=int(index),
        name=name,
        busy=_divided(numbers["utilization.gpu"], 100),
        memory_total_bytes=round(total * _MIB) if total is not None else None,
        memory_used_bytes=round(used * _MIB) if used is not None and total is not None else None,
        temperature_c=numbers["temperature.gpu"],
        power_w=numbers["power.draw"],
        power_limit_w=numbers.get("power.limit"),
        clock_mhz=numbers.get("clocks.sm"),
        clock_most_mhz=numbers.get("clocks.max.sm"),
        held_back=_reasons(texts.get("clocks_throttle_reasons.active")),
    )


def _reasons(mask: str | None) -> tuple[str, ...]:
    """As in `0x0000000000000004`."""
    try:
        bits = int(mask or "0", 16)
    except ValueError:
        return ()
    return tuple(name for bit, name in REASONS.items() if bits & bit)


def jetson(name: str, texts: Mapping[str, str]) -> GpuSample:
    """The GPU of a Jetson's SoC. `texts`: `load` per thousand, `temp` in thousandths, clocks in Hz."""
    load, heat, clock, most = (_number(texts.get(key)) for key in ("load", "temp", "cur_freq", "max_freq"))
    return GpuSample(
        index=0,
        name=name,
        busy=_divided(load, 1000),
        temperature_c=_divided(heat, 1000),
        clock_mhz=_divided(clock, 1e6),
        clock_most_mhz=_divided(most, 1e6),
    )


def _divided(number: float | None, by: float) -> float | None:
    return None if number is None else number / by


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if abs(found) < float("inf") else None
