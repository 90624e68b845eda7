"""Rows of GPUs, links and engines for tables, cell by cell."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from medley.host.facts import GIB
from medley.measurement.monitor.rates import Flow, Rates
from medley.planner.report import printable

Mood = Literal["", "good", "warn", "bad", "dim"]
_FULL, _NEARLY = 0.95, 0.85
_EXACT = 100
"""From here on no digit after the point is of use."""
_HOT_C = 85
# They say little and fill the screen, unless something goes through them or goes wrong.
_MINOR = {"virtual", "tunnel", "gadget", "bridge"}
_WIRE = {"ethernet", "infiniband", "bond", "vlan", "wifi"}
_QUIET_BYTES_PER_S = 100


@dataclass(frozen=True)
class Cell:
    text: str
    mood: Mood = ""
    share: float | None = None
    """Of what is possible, 0 to 1, where that has a meaning."""


@dataclass(frozen=True)
class Column:
    title: str
    right: bool = False
    rank: int = 0
    """Where room is short, those of the highest rank are left out first."""
    wraps: bool = False
    """The last one may: what does not fit goes on below it."""


Row = tuple[Cell, ...]
RatesByHost = Mapping[str, Rates]


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    urgent: bool = False
    """Where lines are short, it gets them before others."""


NOTHING = Cell("-", "dim")
ENGINES = (
    Column("engine"),
    Column("model"),
    Column("state", rank=1),
    Column("run", right=True),
    Column("wait", right=True),
    Column("preempted", right=True, rank=3),
    Column("kv cache", right=True),
    Column("tok/s", right=True),
    Column("prompt tok/s", right=True, rank=2),
    Column("first token", right=True, rank=1),
)
GPUS = (
    Column("gpu"),
    Column("name", rank=1),
    Column("busy", right=True),
    Column("memory", right=True),
    Column("heat", right=True),
    Column("power", right=True),
    Column("clock", right=True, rank=2),
    Column("held back by"),
)
LINKS = (
    Column("link"),
    Column("interface"),
    Column("in", right=True),
    Column("out", right=True),
    Column("of", right=True, rank=1),
    Column("went wrong"),
)
PORTS = (Column("rdma"), Column("port"), *LINKS[2:])


def engines(hosts: RatesByHost) -> Iterator[Row]:
    for host, each in ((host, each) for host, found in hosts.items() for each in found.engines):
        yield (
            Cell(printable(host)),
            Cell(printable(each.model)),
            Cell("no metrics", "bad")
            if each.silent
            else Cell(printable(each.state), "good" if each.state == "ready" else "warn"),
            _count(each.running),
            _count(each.waiting, "warn"),
            _count(each.preempted, "warn"),
            share(each.kv_cache, warns=True),
            _rate(each.generated_tokens_per_s),
            _rate(each.prompt_tokens_per_s),
            Cell(f"{each.first_token_s:.2f} s") if each.first_token_s is not None else NOTHING,
        )


def gpus(hosts: RatesByHost) -> Iterator[Row]:
    for host, gpu in ((host, gpu) for host, found in hosts.items() for gpu in found.gpus):
        yield (
            Cell(f"{printable(host)} {gpu.index}"),
            Cell(printable(gpu.name.removeprefix("NVIDIA "))),
            share(gpu.busy),
            Cell("the host's", "dim")
            if gpu.memory_total_bytes is None
            else memory(gpu.memory_used_bytes or 0, gpu.memory_total_bytes),
            Cell(f"{gpu.temperature_c:.0f} °C", "warn" if gpu.temperature_c >= _HOT_C else "")
            if gpu.temperature_c is not None
            else NOTHING,
            _limited(gpu.power_w, gpu.power_limit_w, "W"),
            _limited(gpu.clock_mhz, gpu.clock_most_mhz, "MHz"),
            Cell(", ".join(gpu.held_back), "warn") if gpu.held_back else NOTHING,
        )


def links(hosts: RatesByHost) -> Iterator[Row]:
    """Wires first; the cluster's before them."""
    for host, found in hosts.items():
        own = found.ray.interface if found.ray else None
        shown = [flow for flow in found.links if flow.name == own or flow.bad or _matters(flow)]
        shown.sort(key=lambda flow: (flow.name != own, flow.kind not in _WIRE, -(flow.mbit or 0)))
        for flow in shown:
            yield _flow(host, flow, f"{flow.name} (wire)" if flow.name == own else flow.name)


def _matters(flow: Flow) -> bool:
    busy = flow.in_bytes_per_s + flow.out_bytes_per_s > _QUIET_BYTES_PER_S
    return busy if flow.kind in _MINOR else bool(flow.up)


def ports(hosts: RatesByHost) -> Iterator[Row]:
    for host, found in hosts.items():
        yield from (_flow(host, flow, flow.name) for flow in found.ports if flow.up or flow.bad)


def _flow(host: str, flow: Flow, name: str) -> Row:
    def carried(bytes_per_s: float) -> Cell:
        share = bytes_per_s * 8 / 1e6 / flow.mbit if flow.mbit else None
        return Cell(bits(bytes_per_s), "" if bytes_per_s >= 1 else "dim", share)

    bad = ", ".join(f"{count} {key}" for key, count in sorted(flow.bad.items()))
    down = flow.up is False
    speed = Cell(bits(flow.mbit * 1e6 / 8), "dim") if flow.mbit else NOTHING
    return (
        Cell(printable(host)),
        Cell(printable(name), "bad" if down else ""),
        carried(flow.in_bytes_per_s),
        carried(flow.out_bytes_per_s),
        Cell("DOWN", "bad") if down else speed,
        Cell(bad, "bad") if bad else NOTHING,
    )


def memory(used_bytes: int, total_bytes: int, *, warns: bool = False) -> Cell:
    """`warns` where full is bad: engines fill a GPU's own memory on purpose."""
    part = used_bytes / total_bytes if total_bytes else None
    text = f"{used_bytes / GIB:.1f} of {total_bytes / GIB:.1f} GiB"
    return Cell(text, _fullness(part) if warns and part is not None else "", part)


def share(value: float | None, *, warns: bool = False) -> Cell:
    if value is None:
        return NOTHING
    return Cell(f"{value:.0%}", _fullness(value) if warns else "", min(1.0, max(0.0, value)))


def _fullness(part: float) -> Mood:
    return "" if part < _NEARLY else "bad" if part >= _FULL else "warn"


def _count(value: float | None, mood: Mood = "") -> Cell:
    return NOTHING if value is None else Cell(f"{value:.0f}", mood if value else "")


def _rate(value: float | None) -> Cell:
    return NOTHING if value is None else Cell(f"{value:.1f}" if value < _EXACT else f"{value:.0f}")


def _limited(value: float | None, most: float | None, unit: str) -> Cell:
    if value is None:
        return NOTHING
    return Cell(f"{value:.0f} of {most:.0f} {unit}" if most is not None else f"{value:.0f} {unit}")


def bits(bytes_per_s: float) -> str:
    """In bits, as links are sold, with three digits; 0 only where nothing went."""
    found = bytes_per_s * 8
    for unit, size in (("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)):
        if found >= size:
            return f"{found / size:.0f} {unit}" if found >= _EXACT * size else f"{found / size:.3g} {unit}"
    return f"{found:.0f} b/s" if found else "0"
