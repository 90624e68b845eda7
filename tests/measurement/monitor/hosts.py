"""Statuses of hosts for `medley top`, by hand: a Spark, a workstation, a silent host, and odd names."""

from collections.abc import Mapping
from pathlib import Path

from medley.errors import Problem
from medley.measurement.monitor.rates import compute_rates
from medley.measurement.monitor.sample import (
    CpuSample,
    EngineSample,
    GpuSample,
    LinkSample,
    MemorySample,
    RaySample,
    Sample,
)
from medley.measurement.monitor.watch import HostStatus

METRICS = Path(__file__).parents[2] / "measurement" / "monitor" / "metrics"
EVIL = '<script>document.title="owned"</script>'
GIB = 1 << 30
COUNTERS = dict.fromkeys(("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped"), 0)
RAY = RaySample("head", "10.0.0.1:24000", alive=True, interface="enp1s0f0np0", slots=1.0, taken=1.0)
FIGURES = {
    "running": 3.0,
    "waiting": 1.0,
    "preempted_total": 2.0,
    "kv_cache": 0.45,
    "generated_tokens_total": 1000.0,
    "prompt_tokens_total": 4000.0,
    "first_token_s_total": 2.0,
    "first_token_total": 10.0,
}
LOST = Problem(
    "spark-2 does not answer", cause="ssh spark-2 was still silent", fix="try it by hand: ssh spark-2 true"
)


def spark() -> Sample:
    return Sample(
        at_s=100.0,
        cpu=CpuSample(20, 1000.0, 9000.0, 2.5),
        memory=MemorySample(121 * GIB, 60 * GIB),
        gpus=(
            GpuSample(0, "NVIDIA GB10", 0.98, None, None, 71.0, 42.4, None, 2405.0, 3003.0, ("power cap",)),
        ),
        links=(
            LinkSample("enp1s0f0np0", 2, COUNTERS, up=True, mbit=200_000),
            LinkSample("enP7s7", 3, COUNTERS, up=True, mbit=1_000),
        ),
        ports=(
            LinkSample(
                "rocep1s0f0/1",
                0,
                {"rx_bytes": 0, "tx_bytes": 0, "symbol_error": 0},
                up=True,
                mbit=200_000,
                kind="rdma",
            ),
        ),
        retransmits=5,
        ray=RAY,
        events={"fault": 1, "restart": 0},
        engines=(EngineSample("gpt-oss-120b", "http://127.0.0.1:8000/v1", "ready", FIGURES),),
    )


def later(sample: Sample, seconds: float = 2.0) -> Sample:
    """Return a later sample: half of the threads busy, 1 GB/s in and 250 MB/s out, 100 tokens/s."""
    grown = {**COUNTERS, "rx_bytes": round(1e9 * seconds), "tx_bytes": round(25e7 * seconds), "rx_dropped": 3}
    tokens = {"generated_tokens_total": 100.0 * seconds, "prompt_tokens_total": 500.0 * seconds}
    tokens |= {"first_token_s_total": 0.7, "first_token_total": 2.0}
    busy = sample.cpu.threads * seconds / 2
    engines = [
        engine.replace(figures={key: value + tokens.get(key, 0) for key, value in engine.figures.items()})
        for engine in sample.engines
    ]
    ports = [
        port.replace(counters={"rx_bytes": round(5e9 * seconds), "tx_bytes": 0, "symbol_error": 7})
        for port in sample.ports
    ]
    return sample.replace(
        at_s=sample.at_s + seconds,
        cpu=sample.cpu.replace(busy_s=sample.cpu.busy_s + busy, idle_s=sample.cpu.idle_s + busy),
        links=tuple(link.replace(counters=grown) if link.index == 2 else link for link in sample.links),
        ports=tuple(ports),
        engines=tuple(engines),
    )


def build_status(sample: Sample, problem: Problem | None = None, age_s: float = 1.0) -> HostStatus:
    last = later(sample)
    return HostStatus(compute_rates(sample, sample, last), last, age_s, problem)


def workstation(model: str = "qwen3-8b") -> Sample:
    gpus = [
        GpuSample(
            index,
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            0.5,
            96 * GIB,
            80 * GIB,
            88.0,
            590.0,
            600.0,
        )
        for index in range(2)
    ]
    engine = EngineSample(model, "http://127.0.0.1:8000/v1", "ready", silent="timed out")
    return spark().replace(gpus=tuple(gpus), engines=(engine,), ray=None)


def cluster() -> dict[str, HostStatus]:
    """One is a Spark, one was lost 75 s ago, one was never reached, and one serves a model of an odd name."""
    gone = spark().replace(ray=RAY.replace(role="worker"), engines=())
    return {
        "spark-1": build_status(spark()),
        "spark-2": build_status(gone, LOST, 75.0),
        "thor-1": HostStatus(problem=LOST),
        "workstation": build_status(workstation(EVIL)),
    }


class Replayed:
    """A source of statuses that the test sets as `statuses`."""

    def __init__(self, statuses: Mapping[str, HostStatus]) -> None:
        self.statuses = statuses

    def read_statuses(self) -> Mapping[str, HostStatus]:
        return self.statuses

    def sample_now(self, limit_s: float) -> Mapping[str, HostStatus]:
        del limit_s
        return self.statuses
