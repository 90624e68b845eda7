"""Build the table rows of GPUs, links and engines, cell by cell."""

from collections.abc import Iterator, Mapping
from typing import Literal

from medley.host.facts import GIB
from medley.measurement.monitor.rates import EngineRates, Flow, Rates
from medley.planner.report import make_printable
from medley.values import Value

Mood = Literal["", "good", "warn", "bad", "dim"]
_FULL_SHARE, _NEARLY_FULL_SHARE = 0.95, 0.85
_MIN_WHOLE_NUMBER = 100
"""The value from which numbers have no decimals."""
_HOT_C = 85
# Links of these kinds would fill the screen, so they show only with traffic or errors.
_MINOR_KINDS = {"virtual", "tunnel", "gadget", "bridge"}
_CABLE_KINDS = {"ethernet", "infiniband", "bond", "vlan", "wifi"}
_MIN_TRAFFIC_BYTES_PER_S = 100


class Cell(Value):
    """A cell of a table; its fields are keys of the web page's JSON."""

    text: str
    mood: Mood = ""
    share: float | None = None
    """The share of the maximum, 0 to 1, which the page draws as a bar; None without a maximum."""


class Column(Value):
    """A column of a table; `right` aligns its cells."""

    title: str
    right: bool = False
    rank: int = 0
    """The order of omission on narrow screens: the highest rank goes first, 0 never."""
    wraps: bool = False
    """Whether long texts continue on the next line; only the last column may."""


Row = tuple[Cell, ...]
RatesByHost = Mapping[str, Rates]


class Table(Value):
    """A named table."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    urgent: bool = False
    """Whether its lines come first on low screens."""


EMPTY_CELL = Cell("-", "dim")
ENGINE_COLUMNS = (
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
GPU_COLUMNS = (
    Column("gpu"),
    Column("name", rank=1),
    Column("busy", right=True),
    Column("memory", right=True),
    Column("heat", right=True),
    Column("power", right=True),
    Column("clock", right=True, rank=2),
    Column("held back by"),
)
LINK_COLUMNS = (
    Column("link"),
    Column("interface"),
    Column("in", right=True),
    Column("out", right=True),
    Column("of", right=True, rank=1),
    Column("went wrong"),
)
PORT_COLUMNS = (Column("rdma"), Column("port"), *LINK_COLUMNS[2:])


def list_engines(hosts: RatesByHost) -> Iterator[Row]:
    """Yield a row for each server."""
    for host, engine in ((host, engine) for host, rates in hosts.items() for engine in rates.engines):
        yield (
            Cell(make_printable(host)),
            Cell(make_printable(engine.model)),
            _build_state_cell(engine),
            _build_count_cell(engine.running),
            _build_count_cell(engine.waiting, "warn"),
            _build_count_cell(engine.preempted, "warn"),
            build_share_cell(engine.kv_cache, warns=True),
            _build_rate_cell(engine.generated_tokens_per_s),
            _build_rate_cell(engine.prompt_tokens_per_s),
            Cell(f"{engine.first_token_s:.2f} s") if engine.first_token_s is not None else EMPTY_CELL,
        )


def _build_state_cell(engine: EngineRates) -> Cell:
    if engine.silent:
        return Cell("no metrics", "bad")
    return Cell(make_printable(engine.state), "good" if engine.state == "ready" else "warn")


def list_gpus(hosts: RatesByHost) -> Iterator[Row]:
    """Yield a row for each GPU."""
    for host, gpu in ((host, gpu) for host, rates in hosts.items() for gpu in rates.gpus):
        yield (
            Cell(f"{make_printable(host)} {gpu.index}"),
            Cell(make_printable(gpu.name.removeprefix("NVIDIA "))),
            build_share_cell(gpu.busy),
            Cell("the host's", "dim")
            if gpu.memory_total_bytes is None
            else build_memory_cell(gpu.memory_used_bytes or 0, gpu.memory_total_bytes),
            Cell(f"{gpu.temperature_c:.0f} °C", "warn" if gpu.temperature_c >= _HOT_C else "")
            if gpu.temperature_c is not None
            else EMPTY_CELL,
            _build_limit_cell(gpu.power_w, gpu.power_limit_w, "W"),
            _build_limit_cell(gpu.clock_mhz, gpu.clock_most_mhz, "MHz"),
            Cell(", ".join(gpu.held_back), "warn") if gpu.held_back else EMPTY_CELL,
        )


def list_links(hosts: RatesByHost) -> Iterator[Row]:
    """Yield a row for each link of interest: the cluster's link first, then other cables."""
    for host, rates in hosts.items():
        cluster_link = rates.ray.interface if rates.ray else None
        flows = [
            flow for flow in rates.links if flow.name == cluster_link or flow.bad or _is_of_interest(flow)
        ]
        flows.sort(
            key=lambda flow: (flow.name != cluster_link, flow.kind not in _CABLE_KINDS, -(flow.mbit or 0))
        )
        for flow in flows:
            yield _build_flow_row(
                host, flow, f"{flow.name} (wire)" if flow.name == cluster_link else flow.name
            )


def _is_of_interest(flow: Flow) -> bool:
    is_busy = flow.in_bytes_per_s + flow.out_bytes_per_s > _MIN_TRAFFIC_BYTES_PER_S
    return is_busy if flow.kind in _MINOR_KINDS else bool(flow.up)


def list_ports(hosts: RatesByHost) -> Iterator[Row]:
    """Yield a row for each RDMA port that is up or has errors."""
    for host, rates in hosts.items():
        yield from (_build_flow_row(host, flow, flow.name) for flow in rates.ports if flow.up or flow.bad)


def _build_flow_row(host: str, flow: Flow, name: str) -> Row:
    def build_traffic_cell(bytes_per_s: float) -> Cell:
        share = bytes_per_s * 8 / 1e6 / flow.mbit if flow.mbit else None
        return Cell(format_bits(bytes_per_s), "" if bytes_per_s >= 1 else "dim", share)

    errors = ", ".join(f"{count} {counter}" for counter, count in sorted(flow.bad.items()))
    is_down = flow.up is False
    speed = Cell(format_bits(flow.mbit * 1e6 / 8), "dim") if flow.mbit else EMPTY_CELL
    return (
        Cell(make_printable(host)),
        Cell(make_printable(name), "bad" if is_down else ""),
        build_traffic_cell(flow.in_bytes_per_s),
        build_traffic_cell(flow.out_bytes_per_s),
        Cell("DOWN", "bad") if is_down else speed,
        Cell(errors, "bad") if errors else EMPTY_CELL,
    )


def build_memory_cell(used_bytes: int, total_bytes: int, *, warns: bool = False) -> Cell:
    """Return the cell; `warns` colors full memory, but not a GPU's own, which engines fill on purpose."""
    share = used_bytes / total_bytes if total_bytes else None
    text = f"{used_bytes / GIB:.1f} of {total_bytes / GIB:.1f} GiB"
    return Cell(text, _choose_mood(share) if warns and share is not None else "", share)


def build_share_cell(value: float | None, *, warns: bool = False) -> Cell:
    """Return a share of 0 to 1 as percent; `warns` colors it if it is nearly full."""
    if value is None:
        return EMPTY_CELL
    return Cell(f"{value:.0%}", _choose_mood(value) if warns else "", min(1.0, max(0.0, value)))


def _choose_mood(share: float) -> Mood:
    if share < _NEARLY_FULL_SHARE:
        return ""
    return "bad" if share >= _FULL_SHARE else "warn"


def _build_count_cell(value: float | None, mood: Mood = "") -> Cell:
    return EMPTY_CELL if value is None else Cell(f"{value:.0f}", mood if value else "")


def _build_rate_cell(value: float | None) -> Cell:
    return (
        EMPTY_CELL if value is None else Cell(f"{value:.1f}" if value < _MIN_WHOLE_NUMBER else f"{value:.0f}")
    )


def _build_limit_cell(value: float | None, limit: float | None, unit: str) -> Cell:
    if value is None:
        return EMPTY_CELL
    return Cell(f"{value:.0f} of {limit:.0f} {unit}" if limit is not None else f"{value:.0f} {unit}")


def format_bits(bytes_per_s: float) -> str:
    """Return a rate in bits with three digits; `0` only if there was no traffic."""
    bits_per_s = bytes_per_s * 8
    for unit, size in (("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)):
        if bits_per_s >= size:
            value = bits_per_s / size
            return f"{value:.0f} {unit}" if value >= _MIN_WHOLE_NUMBER else f"{value:.3g} {unit}"
    return f"{bits_per_s:.0f} b/s" if bits_per_s else "0"
