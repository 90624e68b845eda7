"""Collect metrics of all hosts, named as https://prometheus.io/docs/practices/naming/ has them."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from medley.measurement.monitor import EngineSample, GpuSample, LinkSample, Sample
from medley.measurement.monitor.gpu import REASONS
from medley.measurement.monitor.sampler import BAD
from medley.measurement.monitor.watch import Seen
from medley.serving.metrics import families

TYPE = "text/plain; version=0.0.4; charset=utf-8"
UP = "medley_host_up"
HELP: Mapping[str, str] = tomllib.loads(Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8"))
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
"""Series, labels and value; None where it is not known, and then there is no sample."""


def metrics(seen: Mapping[str, Seen]) -> str:
    """A host that does not answer has only its `medley_host_up`; one not asked yet has nothing."""
    return generate_latest(_Cluster(seen)).decode()


class _Cluster(Collector):
    def __init__(self, seen: Mapping[str, Seen]) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        found = {
            name: Metric(name.removesuffix("_total"), text, "counter" if name.endswith("_total") else "gauge")
            for name, text in HELP.items()
        }
        samples = {name: each.sample for name, each in self._seen.items() if each.sample and not each.problem}
        for host in (name for name, each in self._seen.items() if each.problem):
            found[UP].add_sample(UP, {"host": host}, 0)
        for host, sample in samples.items():
            for name, labels, value in points(sample):
                if value is not None:
                    found[name].add_sample(name, {"host": host, **labels}, value)
        yield from (metric for metric in found.values() if metric.samples)
        yield from _engines_own(samples)


def _engines_own(samples: Mapping[str, Sample]) -> list[Metric]:
    """Label the engines' families with host and server; such labels become exported_, as in Prometheus."""
    found: dict[str, Metric] = {}
    for host, each in ((host, each) for host, sample in samples.items() for each in sample.engines):
        added = {"host": host, "server": _server(each)}
        for family in families((each.said or "").split("\n")):
            there = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            if there.type == family.type and not family.name.startswith("medley_"):
                for name, labels, value, *_ in family.samples:
                    own = {f"exported_{key}" if key in added else key: text for key, text in labels.items()}
                    there.add_sample(name, {**added, **own}, value)
    return [family for family in found.values() if family.samples]


def points(sample: Sample) -> Iterator[Point]:
    yield UP, {}, 1
    yield "medley_cpu_seconds_total", {"mode": "busy"}, sample.cpu.busy_s
    yield "medley_cpu_seconds_total", {"mode": "idle"}, sample.cpu.idle_s
    yield "medley_cpu_threads", {}, sample.cpu.threads
    yield "medley_load1", {}, sample.cpu.load
    yield "medley_memory_total_bytes", {}, sample.memory.total_bytes
    yield "medley_memory_available_bytes", {}, sample.memory.available_bytes
    yield "medley_memory_unified", {}, sample.unified
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
        yield from _of_gpu(gpu)
    for link in sample.links:
        yield from _of_link(link)
    for port in sample.ports:
        yield from _of_port(port)
    for each in sample.engines:
        yield from _of_engine(each)


def _of_gpu(gpu: GpuSample) -> Iterator[Point]:
    labels = {"gpu": str(gpu.index), "name": gpu.name}
    yield "medley_gpu_busy_ratio", labels, gpu.busy
    yield "medley_gpu_memory_total_bytes", labels, gpu.memory_total_bytes
    yield "medley_gpu_memory_used_bytes", labels, gpu.memory_used_bytes
    yield "medley_gpu_temperature_celsius", labels, gpu.temperature_c
    yield "medley_gpu_power_watts", labels, gpu.power_w
    yield "medley_gpu_power_limit_watts", labels, gpu.power_limit_w
    yield "medley_gpu_clock_hertz", labels, None if gpu.clock_mhz is None else gpu.clock_mhz * 1e6
    for reason in REASONS.values():
        yield "medley_gpu_held_back", {**labels, "reason": reason}, reason in gpu.held_back


def _of_link(link: LinkSample) -> Iterator[Point]:
    labels = {"link": link.name}
    yield "medley_link_up", labels, link.up
    yield "medley_link_speed_bytes_per_second", labels, _bytes_per_s(link.mbit)
    for way, short in (("receive", "rx"), ("transmit", "tx")):
        yield f"medley_link_{way}_bytes_total", labels, link.counters.get(f"{short}_bytes")
        yield f"medley_link_{way}_errors_total", labels, link.counters.get(f"{short}_errors")
        yield f"medley_link_{way}_drops_total", labels, link.counters.get(f"{short}_dropped")


def _of_port(port: LinkSample) -> Iterator[Point]:
    labels = {"port": port.name}
    yield "medley_rdma_up", labels, port.up
    yield "medley_rdma_speed_bytes_per_second", labels, _bytes_per_s(port.mbit)
    yield "medley_rdma_receive_bytes_total", labels, port.counters.get("rx_bytes")
    yield "medley_rdma_transmit_bytes_total", labels, port.counters.get("tx_bytes")
    for name, sign in BAD.items():
        yield "medley_rdma_errors_total", {**labels, "counter": name, "sign": sign}, port.counters.get(name)


def _of_engine(each: EngineSample) -> Iterator[Point]:
    labels = {"model": each.model, "server": _server(each)}
    yield "medley_engine_up", labels, each.state == "ready" and not each.silent
    for name, figure in _ENGINE_FIGURES.items():
        yield f"medley_engine_{name}", labels, each.figures.get(figure)


def _server(each: EngineSample) -> str:
    return str(urlsplit(each.url).port or "")


def _bytes_per_s(mbit: int | None) -> float | None:
    return mbit * 1e6 / 8 if mbit else None
