"""Benches made of what both engines' own benchmarks really wrote here, and what they are measured by."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from medley.measurement.bench import BenchLoad, BenchRun, result_table
from medley.measurement.bench.clients import CLIENTS
from medley.measurement.bench.context import Expected
from medley.measurement.bench.record import Done, Record
from medley.schema import EngineName

FOLDER = Path(__file__).parents[2] / "measurement" / "bench" / "results"
FILES: dict[EngineName, Path] = {"vllm": FOLDER / "vllm-serve.json", "sglang": FOLDER / "sglang-serve.jsonl"}
LOAD = BenchLoad((1, 4), repeats=3, input_tokens=32, output_tokens=16, seed=7, requests=8)


def done(engine: EngineName, run: BenchRun, factor: float = 1) -> Done:
    """A run that was as recorded, or `factor` as fast."""
    table = result_table(FILES[engine].read_text(encoding="utf-8"))
    found = CLIENTS[engine].figures(table, run)
    assert found
    rates = {name: getattr(found, name) * factor for name in ("output_tokens_per_s", "total_tokens_per_s")}
    times = {
        name: getattr(found, name) / factor for name in ("ttft_ms", "ttft_p99_ms", "tpot_ms", "tpot_p99_ms")
    }
    return Done(run, replace(found, **rates, **times), table)


def about(of: EngineName = "vllm", **more: Any) -> dict[str, Any]:
    return {
        "medley": {"version": "0.1", "source": "aa"},
        "engine": {
            "name": of,
            "environment": f"{of}-cpu",
            "digest": "d1",
            "lock": "l1",
            "python": "cpython 3.11.7",
            "versions": {of: "0.32.0", "torch": "2.13.0"},
        },
        "plan": {"model": "demo", "argv": [of, "serve"], "env": {}, "layout": "alone on host-1"},
        "hosts": [{"name": "host-1", "same": "11", "facts": "$ uname -m\n  x86_64\n"}],
        "measured": {"speeds": [], "wires": []},
        **more,
    }


def bench(
    id_: str = "20261122-134510-demo-ab12",
    engine: EngineName = "vllm",
    factors: tuple[float, ...] = (1, 0.98, 1.03),
    **more: Any,
) -> Record:
    """Four streams twice as fast as one, and each repeat by its factor."""
    load = more.pop("load", LOAD)
    runs = list(load.runs())
    found = [
        done(
            engine,
            run,
            (factors[run.repeat - 1] if run.repeat else 0.1) * (0.5 if run.concurrency == 1 else 1),
        )
        for run in runs
    ]
    told = {
        many: Expected(300.0 * many, 200.0 * many, 400.0 * many, 3.0, 20.0 if many == 1 else None, "the wire")
        for many in load.concurrencies
    }
    made = Record(
        id_, "2026-11-22T13:45:10+00:00", "demo", engine, load, about(engine), told, tuple(found), whole=True
    )
    return replace(made, **more)
