"""Benches made of what both engines' own benchmarks really wrote here, and what they are measured by."""

from pathlib import Path
from typing import Any

from medley.measurement.bench.clients import CLIENTS
from medley.measurement.bench.context import ExpectedFigures
from medley.measurement.bench.figures import read_result
from medley.measurement.bench.load import BenchLoad, BenchRun
from medley.measurement.bench.record import Record, RunResult
from medley.schema import EngineName

FOLDER = Path(__file__).parents[2] / "measurement" / "bench" / "results"
FILES: dict[EngineName, Path] = {"vllm": FOLDER / "vllm-serve.json", "sglang": FOLDER / "sglang-serve.jsonl"}
LOAD = BenchLoad((1, 4), repeats=3, input_tokens=32, output_tokens=16, seed=7, requests=8)


def build_result(engine: EngineName, run: BenchRun, factor: float = 1) -> RunResult:
    """A run that was as recorded, or `factor` as fast."""
    table = read_result(FILES[engine].read_text(encoding="utf-8"))
    figures = CLIENTS[engine].read_figures(table, run)
    assert figures
    rates = {name: getattr(figures, name) * factor for name in ("output_tokens_per_s", "total_tokens_per_s")}
    times = {
        name: getattr(figures, name) / factor for name in ("ttft_ms", "ttft_p99_ms", "tpot_ms", "tpot_p99_ms")
    }
    return RunResult(run, figures.replace(**rates, **times), table)


def about(engine_name: EngineName = "vllm", **sections: Any) -> dict[str, Any]:
    return {
        "medley": {"version": "0.1", "source": "aa"},
        "engine": {
            "name": engine_name,
            "environment": f"{engine_name}-cpu",
            "digest": "d1",
            "lock": "l1",
            "python": "cpython 3.11.7",
            "versions": {engine_name: "0.32.0", "torch": "2.13.0"},
        },
        "plan": {"model": "demo", "argv": [engine_name, "serve"], "env": {}, "layout": "alone on host-1"},
        "hosts": [{"name": "host-1", "same": "11", "facts": "$ uname -m\n  x86_64\n"}],
        "measured": {"speeds": [], "wires": []},
        **sections,
    }


def bench(
    id_: str = "20261122-134510-demo-ab12",
    engine: EngineName = "vllm",
    factors: tuple[float, ...] = (1, 0.98, 1.03),
    **fields: Any,
) -> Record:
    """Four streams twice as fast as one, and each repeat by its factor."""
    load = fields.pop("load", LOAD)
    runs = list(load.list_runs())
    results = [
        build_result(
            engine,
            run,
            (factors[run.repeat - 1] if run.repeat else 0.1) * (0.5 if run.concurrency == 1 else 1),
        )
        for run in runs
    ]
    expected = {
        concurrency: ExpectedFigures(
            300.0 * concurrency,
            200.0 * concurrency,
            400.0 * concurrency,
            3.0,
            20.0 if concurrency == 1 else None,
            "the wire",
        )
        for concurrency in load.concurrencies
    }
    record = Record(
        id_,
        "2026-11-22T13:45:10+00:00",
        "demo",
        engine,
        load,
        about(engine),
        expected,
        tuple(results),
        whole=True,
    )
    return record.replace(**fields)
