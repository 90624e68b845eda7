"""A series is a name of ours that Prometheus scrapes: its unit, what it says, and where a sample has it.

Names and units as https://prometheus.io/docs/practices/naming/ has them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from medley.monitor import gpus, ports
from medley.monitor.sample import Engine, Gpu, Link, Port, Sample

Told = Iterator[tuple[dict[str, str], float | None]]
"""Labels and value; None where it is not known, and then there is no sample."""


@dataclass(frozen=True)
class Series:
    name: str
    type: str
    help: str
    told: Callable[[Sample], Told]


def _host(value: Callable[[Sample], float | None]) -> Callable[[Sample], Told]:
    return lambda sample: iter([({}, value(sample))])


def _gpu(value: Callable[[Gpu], float | None]) -> Callable[[Sample], Told]:
    return lambda sample: (({"gpu": str(gpu.index), "name": gpu.name}, value(gpu)) for gpu in sample.gpus)


def _held_back(sample: Sample) -> Told:
    for gpu in sample.gpus:
        for reason in gpus.REASONS.values():
            yield {"gpu": str(gpu.index), "name": gpu.name, "reason": reason}, float(reason in gpu.held_back)


def _link(value: Callable[[Link], float | None]) -> Callable[[Sample], Told]:
    return lambda sample: (({"link": link.name}, value(link)) for link in sample.links)


def _port(value: Callable[[Port], float | None]) -> Callable[[Sample], Told]:
    return lambda sample: (({"port": port.name}, value(port)) for port in sample.ports)


def _port_errors(sample: Sample) -> Told:
    for port in sample.ports:
        for name, sign in ports.BAD.items():
            yield {"port": port.name, "counter": name, "sign": sign}, port.counters.get(name)


def _engine(value: Callable[[Engine], float | None]) -> Callable[[Sample], Told]:
    return lambda sample: ((of(engine), value(engine)) for engine in sample.engines)


def _figure(name: str) -> Callable[[Sample], Told]:
    return _engine(lambda engine: engine.figures.get(name))


def of(engine: Engine) -> dict[str, str]:
    return {"model": engine.model, "server": str(urlsplit(engine.url).port or "")}


def _counter(name: str) -> Callable[[Link], float | None]:
    return lambda link: link.counters.get(name)


def _cpu(sample: Sample) -> Told:
    yield {"mode": "busy"}, sample.cpu.busy_s
    yield {"mode": "idle"}, sample.cpu.idle_s


def _bytes_per_s(mbit: int | None) -> float | None:
    return mbit * 1e6 / 8 if mbit else None


def _bool(value: bool | None) -> float | None:  # noqa: FBT001 - it is the value itself
    return None if value is None else float(value)


SERIES = (
    Series("medley_cpu_seconds_total", "counter", "Time of all processors together, by mode.", _cpu),
    Series("medley_cpu_threads", "gauge", "Hardware threads.", _host(lambda each: each.cpu.threads)),
    Series("medley_load1", "gauge", "Load of the last minute.", _host(lambda each: each.cpu.load)),
    Series(
        "medley_memory_total_bytes",
        "gauge",
        "The host's memory, which is the GPU's too where medley_memory_unified is 1.",
        _host(lambda each: each.memory.total_bytes),
    ),
    Series(
        "medley_memory_available_bytes",
        "gauge",
        "What of it can be had without swapping.",
        _host(lambda each: each.memory.available_bytes),
    ),
    Series(
        "medley_memory_unified",
        "gauge",
        "Whether processor and GPU share one memory.",
        _host(lambda each: float(each.unified)),
    ),
    Series("medley_swap_total_bytes", "gauge", "Swap.", _host(lambda each: each.memory.swap_total_bytes)),
    Series(
        "medley_swap_free_bytes",
        "gauge",
        "Swap that is free.",
        _host(lambda each: each.memory.swap_free_bytes),
    ),
    Series(
        "medley_tcp_retransmitted_segments_total",
        "counter",
        "Segments that TCP sent again, over all links.",
        _host(lambda each: each.retransmits),
    ),
    Series(
        "medley_sampling_cpu_seconds_total",
        "counter",
        "Processor time that medley itself took on the host to look.",
        _host(lambda each: each.cost_s),
    ),
    Series(
        "medley_gpu_busy_ratio", "gauge", "Time in which a kernel ran, 0 to 1.", _gpu(lambda gpu: gpu.busy)
    ),
    Series(
        "medley_gpu_memory_total_bytes",
        "gauge",
        "Its own memory; none where it is the host's.",
        _gpu(lambda gpu: gpu.memory_total_bytes),
    ),
    Series(
        "medley_gpu_memory_used_bytes",
        "gauge",
        "Used of its own memory.",
        _gpu(lambda gpu: gpu.memory_used_bytes),
    ),
    Series("medley_gpu_temperature_celsius", "gauge", "Temperature.", _gpu(lambda gpu: gpu.temperature_c)),
    Series("medley_gpu_power_watts", "gauge", "Power that it draws.", _gpu(lambda gpu: gpu.power_w)),
    Series(
        "medley_gpu_power_limit_watts",
        "gauge",
        "Power that it may draw.",
        _gpu(lambda gpu: gpu.power_limit_w),
    ),
    Series(
        "medley_gpu_clock_hertz",
        "gauge",
        "Clock of its multiprocessors.",
        _gpu(lambda gpu: gpu.clock_mhz * 1e6 if gpu.clock_mhz is not None else None),
    ),
    Series("medley_gpu_held_back", "gauge", "Whether its clock is held back, by reason.", _held_back),
    Series("medley_link_up", "gauge", "Whether it is up.", _link(lambda link: _bool(link.up))),
    Series(
        "medley_link_speed_bytes_per_second",
        "gauge",
        "Its speed as the driver reports it; a Spark's half reports twice what it carries.",
        _link(lambda link: _bytes_per_s(link.mbit)),
    ),
    *(
        Series(f"medley_link_{way}_{what}_total", "counter", text, _link(_counter(f"{short}_{kernel}")))
        for way, short in (("receive", "rx"), ("transmit", "tx"))
        for what, kernel, text in (
            ("bytes", "bytes", f"Bytes to {way}."),
            ("errors", "errors", f"Errors to {way}."),
            ("drops", "dropped", f"Packets given up to {way}."),
        )
    ),
    Series("medley_rdma_up", "gauge", "Whether the port is active.", _port(lambda port: _bool(port.active))),
    Series(
        "medley_rdma_speed_bytes_per_second",
        "gauge",
        "Its speed as the port reports it.",
        _port(lambda port: _bytes_per_s(port.mbit)),
    ),
    Series(
        "medley_rdma_receive_bytes_total",
        "counter",
        "Bytes received; the port counts words of four.",
        _port(lambda port: port.counters.get("rx_bytes")),
    ),
    Series(
        "medley_rdma_transmit_bytes_total",
        "counter",
        "Bytes sent; the port counts words of four.",
        _port(lambda port: port.counters.get("tx_bytes")),
    ),
    Series(
        "medley_rdma_errors_total",
        "counter",
        "What went wrong, by the driver's counter and its sign.",
        _port_errors,
    ),
    Series(
        "medley_ray_up",
        "gauge",
        "Whether the host's part of Ray runs; none where it has no part.",
        lambda each: iter([({"role": each.ray.role}, float(each.ray.alive))] if each.ray else []),
    ),
    Series(
        "medley_ray_slots",
        "gauge",
        "Slots for ranks.",
        _host(lambda each: each.ray.slots if each.ray else None),
    ),
    Series(
        "medley_ray_slots_taken",
        "gauge",
        "Slots with a rank.",
        _host(lambda each: each.ray.taken if each.ray else None),
    ),
    Series(
        "medley_engine_up",
        "gauge",
        "Whether a server is ready and tells its figures.",
        _engine(lambda engine: float(engine.state == "ready" and not engine.silent)),
    ),
    Series("medley_engine_requests_running", "gauge", "Requests that are answered now.", _figure("running")),
    Series("medley_engine_requests_waiting", "gauge", "Requests that wait.", _figure("waiting")),
    Series(
        "medley_engine_preemptions_total", "counter", "Requests put back to wait.", _figure("preempted_total")
    ),
    Series("medley_engine_kv_cache_used_ratio", "gauge", "KV cache in use, 0 to 1.", _figure("kv_cache")),
    Series(
        "medley_engine_generated_tokens_total",
        "counter",
        "Tokens generated.",
        _figure("generated_tokens_total"),
    ),
    Series(
        "medley_engine_prompt_tokens_total", "counter", "Tokens of prompts.", _figure("prompt_tokens_total")
    ),
    Series(
        "medley_engine_first_token_seconds_total",
        "counter",
        "Waits for a first token, added up; by medley_engine_first_tokens_total it is their mean.",
        _figure("first_token_s_total"),
    ),
    Series("medley_engine_first_tokens_total", "counter", "First tokens.", _figure("first_token_total")),
)
