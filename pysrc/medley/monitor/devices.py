"""Rows of what hosts have: their engines, GPUs, links and RDMA ports."""

from collections.abc import Iterator, Mapping

from medley.monitor.cells import NOTHING, Cell, Column, Row, bits, count, limited, memory, rate, share
from medley.monitor.rates import Flow, Rates, Serves
from medley.monitor.sample import Gpu
from medley.picture import printable

_HOT_C = 85
# They say little and fill the screen, unless something goes through them or goes wrong.
_ASIDE = {"virtual", "tunnel", "gadget", "bridge"}
_WIRE = {"ethernet", "infiniband", "bond", "vlan", "wifi"}
_QUIET_BYTES_PER_S = 100
Told = Mapping[str, Rates]

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


def engines(told: Told) -> Iterator[Row]:
    for host, found in told.items():
        for each in found.engines:
            yield (
                Cell(printable(host)),
                Cell(printable(each.model)),
                _state(each),
                *_queue(each),
                *_speed(each),
            )


def _state(each: Serves) -> Cell:
    if each.silent:
        return Cell("tells nothing", "bad")
    return Cell(printable(each.state), "good" if each.state == "ready" else "warn")


def _queue(each: Serves) -> Iterator[Cell]:
    yield count(each.running)
    yield count(each.waiting, "warn")
    yield count(each.preempted, "warn")
    yield share(each.kv_cache, warns=True)


def _speed(each: Serves) -> Iterator[Cell]:
    yield rate(each.generated_tokens_per_s)
    yield rate(each.prompt_tokens_per_s)
    yield Cell(f"{each.first_token_s:.2f} s") if each.first_token_s is not None else NOTHING


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


def gpus(told: Told) -> Iterator[Row]:
    for host, found in told.items():
        for gpu in found.gpus:
            yield (
                Cell(f"{printable(host)} {gpu.index}"),
                Cell(printable(gpu.name.removeprefix("NVIDIA "))),
                share(gpu.busy),
                _own_memory(gpu),
                Cell(f"{gpu.temperature_c:.0f} °C", "warn" if gpu.temperature_c >= _HOT_C else "")
                if gpu.temperature_c is not None
                else NOTHING,
                limited(gpu.power_w, gpu.power_limit_w, "W"),
                limited(gpu.clock_mhz, gpu.clock_most_mhz, "MHz"),
                Cell(", ".join(gpu.held_back), "warn") if gpu.held_back else NOTHING,
            )


def _own_memory(gpu: Gpu) -> Cell:
    if gpu.memory_total_bytes is None:
        return Cell("the host's", "dim")
    return memory(gpu.memory_used_bytes or 0, gpu.memory_total_bytes)


LINKS = (
    Column("link"),
    Column("interface"),
    Column("in", right=True),
    Column("out", right=True),
    Column("of", right=True, rank=1),
    Column("went wrong"),
)
PORTS = (Column("rdma"), Column("port"), *LINKS[2:])


def links(told: Told) -> Iterator[Row]:
    """Wires first; the cluster's before them."""
    for host, found in told.items():
        own = found.ray.interface if found.ray else None
        shown = [flow for flow in found.links if _matters(flow, own)]
        for flow in sorted(
            shown, key=lambda flow: (flow.name != own, flow.kind not in _WIRE, -(flow.mbit or 0))
        ):
            yield _flow(host, flow, f"{flow.name} (wire)" if flow.name == own else flow.name)


def _matters(flow: Flow, own: str | None) -> bool:
    if flow.name == own or flow.bad:
        return True
    busy = flow.in_bytes_per_s + flow.out_bytes_per_s > _QUIET_BYTES_PER_S
    return busy if flow.kind in _ASIDE else bool(flow.up)


def ports(told: Told) -> Iterator[Row]:
    for host, found in told.items():
        for flow in found.ports:
            if flow.up or flow.bad:
                yield _flow(host, flow, flow.name)


def _flow(host: str, flow: Flow, name: str) -> Row:
    bad = ", ".join(f"{count} {key}" for key, count in sorted(flow.bad.items()))
    speed = Cell(bits(flow.mbit * 1e6 / 8), "dim") if flow.mbit else NOTHING
    return (
        Cell(printable(host)),
        Cell(printable(name), "" if flow.up in {True, None} else "bad"),
        *(_rate(each, flow.mbit) for each in (flow.in_bytes_per_s, flow.out_bytes_per_s)),
        speed if flow.up in {True, None} else Cell("DOWN", "bad"),
        Cell(bad, "bad") if bad else NOTHING,
    )


def _rate(bytes_per_s: float, mbit: int | None) -> Cell:
    share = bytes_per_s * 8 / 1e6 / mbit if mbit else None
    return Cell(bits(bytes_per_s), "" if bytes_per_s >= 1 else "dim", share)
