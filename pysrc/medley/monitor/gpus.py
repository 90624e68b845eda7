"""What GPUs do now, as nvidia-smi tells it line by line, or the kernel of a Jetson in files."""

from collections.abc import Iterator, Mapping

from medley.facts.gpu import value
from medley.monitor.sample import Gpu

# `nvidia-smi --help-query-gpu`. The reasons have been called clocks_event_reasons since driver 535; the old
# name still holds. What follows `known` was refused by some driver, so there is a second, shorter list.
_KNOWN = ("index", "name", "utilization.gpu", "memory.total", "memory.used", "temperature.gpu", "power.draw")
_MORE = ("power.limit", "clocks.sm", "clocks.max.sm", "clocks_throttle_reasons.active")
FIELDS = ((*_KNOWN, *_MORE), _KNOWN)
REFUSED = "is not a valid field to query"
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


def query(fields: tuple[str, ...], every_s: float) -> tuple[str, ...]:
    """It goes on until it is ended: to start anew each time costs it much more than to look again."""
    asked = f"--query-gpu={','.join(fields)}"
    return (
        "nvidia-smi",
        asked,
        "--format=csv,noheader,nounits",
        f"--loop-ms={max(500, round(every_s * 1000))}",
    )


def gpu(line: str, fields: tuple[str, ...]) -> Gpu | None:
    """One line, or None where it is something else: a warning, an error."""
    words = line.split(",")
    if len(words) != len(fields):
        return None
    said = dict(zip(fields, map(value, words), strict=True))
    index, name = said["index"], said["name"]
    if index is None or not index.isdecimal() or name is None:
        return None
    busy, total, used = (_number(said[key]) for key in ("utilization.gpu", "memory.total", "memory.used"))
    return Gpu(
        index=int(index),
        name=name,
        busy=busy / 100 if busy is not None else None,
        memory_total_bytes=round(total * _MIB) if total is not None else None,
        memory_used_bytes=round(used * _MIB) if used is not None and total is not None else None,
        temperature_c=_number(said["temperature.gpu"]),
        power_w=_number(said["power.draw"]),
        power_limit_w=_number(said.get("power.limit")),
        clock_mhz=_number(said.get("clocks.sm")),
        clock_most_mhz=_number(said.get("clocks.max.sm")),
        held_back=tuple(reasons(said.get("clocks_throttle_reasons.active"))),
    )


def reasons(mask: str | None) -> Iterator[str]:
    """As in `0x0000000000000004`."""
    try:
        bits = int(mask or "0", 16)
    except ValueError:
        return
    yield from (name for bit, name in REASONS.items() if bits & bit)


LOAD = "devices/platform/gpu.0/load"
"""Per thousand. So, and the zone, on L4T R36 and R39, as the project Glances reports of its own Jetsons."""
ZONE = "gpu-thermal"


def jetson(name: str, said: Mapping[str, str], index: int = 0) -> Gpu:
    """The GPU of a Jetson's SoC. `said`: `load` per thousand, `temp` in thousandths, clocks in Hz."""
    load, heat, clock, most = (_number(said.get(key)) for key in ("load", "temp", "cur_freq", "max_freq"))
    return Gpu(
        index=index,
        name=name,
        busy=load / 1000 if load is not None else None,
        temperature_c=heat / 1000 if heat is not None else None,
        clock_mhz=clock / 1e6 if clock is not None else None,
        clock_most_mhz=most / 1e6 if most is not None else None,
    )


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if abs(found) < float("inf") else None
