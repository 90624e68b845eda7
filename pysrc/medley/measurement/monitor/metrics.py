"""Format metrics of all hosts for Prometheus, named after https://prometheus.io/docs/practices/naming/."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from medley.measurement.monitor.gpu import CLOCK_LIMIT_REASONS
from medley.measurement.monitor.sample import EngineSample, GpuSample, LinkSample, Sample
from medley.measurement.monitor.sampler import ERROR_COUNTERS
from medley.measurement.monitor.watch import HostStatus
from medley.serving.metrics import parse_families

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HOST_UP = "medley_host_up"
METRIC_HELP_TEXTS: Mapping[str, str] = tomllib.loads(
    Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8")
)
_ENGINE_FIGURES = {
    "requests_running": "running",
    "requests_waiting": "waiting",
    "preemptions_total": "preempted_total",
    "kv_cache_used_ratio": "kv_cache",
    "generated_tokens_total": "generated_tokens_total",
    "prompt_tokens_total": "prompt_tokens_total",
    "first_token_seconds_total": "first_token_s_total",
    "first_tokens_total": "first_token_total",
}
Point = tuple[str, dict[str, str], float | None]
"""A series, its labels and its value; a value of None gets no sample."""


def format_metrics(hosts: Mapping[str, HostStatus]) -> str:
    """Return Prometheus' text format.

    A host that does not answer has only its `medley_host_up`; one without an attempt so far has nothing.
    """
    return generate_latest(_ClusterCollector(hosts)).decode()


class _ClusterCollector(Collector):
    def __init__(self, hosts: Mapping[str, HostStatus]) -> None:
        self._hosts = hosts

    def collect(self) -> Iterator[Metric]:
        metrics = {
            name: Metric(name.removesuffix("_total"), text, "counter" if name.endswith("_total") else "gauge")
            for name, text in METRIC_HELP_TEXTS.items()
        }
        samples = {
            name: status.sample
            for name, status in self._hosts.items()
            if status.sample and not status.problem
        }
        for host in (name for name, status in self._hosts.items() if status.problem):
            metrics[_HOST_UP].add_sample(_HOST_UP, {"host": host}, 0)
        for host, sample in samples.items():
            for name, labels, value in _list_points(sample):
                if value is not None:
                    metrics[name].add_sample(name, {"host": host, **labels}, value)
        yield from (metric for metric in metrics.values() if metric.samples)
        yield from _merge_engine_metrics(samples)


def _merge_engine_metrics(samples: Mapping[str, Sample]) -> list[Metric]:
    """Label the engines' families with host and server; such labels become exported_, as in Prometheus."""
    metrics: dict[str, Metric] = {}
    engines = [(host, engine) for host, sample in samples.items() for engine in sample.engines]
    for host, engine in engines:
        host_labels = {"host": host, "server": _get_port(engine)}
        for family in parse_families((engine.said or "").split("\n")):
            metric = metrics.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            if metric.type == family.type and not family.name.startswith("medley_"):
                for name, labels, value, *_ in family.samples:
                    metric.add_sample(name, {**host_labels, **_rename_labels(labels, host_labels)}, value)
    return [metric for metric in metrics.values() if metric.samples]


def _rename_labels(labels: Mapping[str, str], reserved: Mapping[str, str]) -> dict[str, str]:
    return {f"exported_{name}" if name in reserved else name: text for name, text in labels.items()}


def _list_points(sample: Sample) -> Iterator[Point]:
    yield _HOST_UP, {}, 1
    yield "medley_cpu_seconds_total", {"mode": "busy"}, sample.cpu.busy_s
    yield "medley_cpu_seconds_total", {"mode": "idle"}, sample.cpu.idle_s
    yield "medley_cpu_threads", {}, sample.cpu.threads
    yield "medley_load1", {}, sample.cpu.load
    yield "medley_memory_total_bytes", {}, sample.memory.total_bytes
    yield "medley_memory_available_bytes", {}, sample.memory.available_bytes
    yield "medley_memory_unified", {}, sample.has_unified_memory
    yield "medley_swap_total_bytes", {}, sample.memory.swap_total_bytes
    yield "medley_swap_free_bytes", {}, sample.memory.swap_free_bytes
    yield "medley_tcp_retransmitted_segments_total", {}, sample.retransmits
    yield "medley_sampling_cpu_seconds_total", {}, sample.cost_s
    for kind, count in sample.events.items():
        yield "medley_events_total", {"kind": kind}, count
    if sample.ray:
        yield "medley_ray_up", {"role": sample.ray.role}, sample.ray.alive
        yield "medley_ray_slots", {}, sample.ray.slots
        yield "medley_ray_slots_taken", {}, sample.ray.taken
    for gpu in sample.gpus:
        yield from _list_gpu_points(gpu)
    for link in sample.links:
        yield from _list_link_points(link)
    for port in sample.ports:
        yield from _list_port_points(port)
    for engine in sample.engines:
        yield from _list_engine_points(engine)


def _list_gpu_points(gpu: GpuSample) -> Iterator[Point]:
    labels = {"gpu": str(gpu.index), "name": gpu.name}
    yield "medley_gpu_busy_ratio", labels, gpu.busy
    yield "medley_gpu_memory_total_bytes", labels, gpu.memory_total_bytes
    yield "medley_gpu_memory_used_bytes", labels, gpu.memory_used_bytes
    yield "medley_gpu_temperature_celsius", labels, gpu.temperature_c
    yield "medley_gpu_power_watts", labels, gpu.power_w
    yield "medley_gpu_power_limit_watts", labels, gpu.power_limit_w
    yield "medley_gpu_clock_hertz", labels, None if gpu.clock_mhz is None else gpu.clock_mhz * 1e6
    for reason in CLOCK_LIMIT_REASONS.values():
        yield "medley_gpu_held_back", {**labels, "reason": reason}, reason in gpu.held_back


def _list_link_points(link: LinkSample) -> Iterator[Point]:
    labels = {"link": link.name}
    yield "medley_link_up", labels, link.up
    yield "medley_link_speed_bytes_per_second", labels, _convert_mbit(link.mbit)
    for direction, prefix in (("receive", "rx"), ("transmit", "tx")):
        yield f"medley_link_{direction}_bytes_total", labels, link.counters.get(f"{prefix}_bytes")
        yield f"medley_link_{direction}_errors_total", labels, link.counters.get(f"{prefix}_errors")
        yield f"medley_link_{direction}_drops_total", labels, link.counters.get(f"{prefix}_dropped")


def _list_port_points(port: LinkSample) -> Iterator[Point]:
    labels = {"port": port.name}
    yield "medley_rdma_up", labels, port.up
    yield "medley_rdma_speed_bytes_per_second", labels, _convert_mbit(port.mbit)
    yield "medley_rdma_receive_bytes_total", labels, port.counters.get("rx_bytes")
    yield "medley_rdma_transmit_bytes_total", labels, port.counters.get("tx_bytes")
    for name, sign in ERROR_COUNTERS.items():
        yield "medley_rdma_errors_total", {**labels, "counter": name, "sign": sign}, port.counters.get(name)


def _list_engine_points(engine: EngineSample) -> Iterator[Point]:
    labels = {"model": engine.model, "server": _get_port(engine)}
    yield "medley_engine_up", labels, engine.state == "ready" and not engine.silent
    for name, figure in _ENGINE_FIGURES.items():
        yield f"medley_engine_{name}", labels, engine.figures.get(figure)


def _get_port(engine: EngineSample) -> str:
    return str(urlsplit(engine.url).port or "")


def _convert_mbit(mbit: int | None) -> float | None:
    return mbit * 1e6 / 8 if mbit else None
