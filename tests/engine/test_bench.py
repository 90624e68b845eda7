"""`medley bench` for real: both engines' own benchmarks, against the demo model and without a server."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from medley.command import Command
from tests.servers import Start
from tests.waiting import wait_for

pytestmark = pytest.mark.engine

TINY = ("--input-len", "16", "--output-len", "8", "--requests", "4")


def serve(*words: str) -> Command:
    return Command((sys.executable, "-m", "medley", "serve", *words))


def bench(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "medley", "bench", *words],
        env={**os.environ, "MEDLEY_STATE": str(state)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def record(state: Path, *words: str) -> dict[str, Any]:
    found = bench(state, *words, "--json")
    assert found.returncode == 0, found.stderr[-3000:]
    table: dict[str, Any] = json.loads(found.stdout)
    return table


def clients(word: str) -> list[int]:
    """Processes with this in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


@pytest.mark.slow
def test_what_is_served_is_measured_and_kept_and_ctrl_c_leaves_nothing(
    start: Start, free_port: int, tmp_path: Path
) -> None:
    key, state = tmp_path / "key", tmp_path / "state"
    key.write_text("sk-bench-key-of-a-test-run")
    served = start(serve("demo", "--port", str(free_port), "--api-key", str(key)))
    url = served.ready()
    made = record(state, "--concurrency", "2", "--repeats", "1", *TINY)
    (result,) = made["results"]
    assert (result["mode"], result["concurrency"]) == ("served", 2)
    assert result["output_tokens_per_s"]["median"] > 1
    assert result["ttft_ms"]["median"] > 0
    assert result["measured/predicted"] is None
    assert made["expected"] == {}, "no measurement of a CPU is behind a prediction"
    assert made["whole"] is True
    assert made["engine"] == "vllm"
    assert made["about"]["engine"]["versions"]["vllm"]
    assert made["about"]["engine"]["lock"]
    assert "--kv-cache-memory-bytes" in made["about"]["plan"]["argv"]
    assert made["done"][1]["figures"]["completed"] == 4
    (kept,) = (state / "bench").glob("*.json")
    assert json.loads(kept.read_text()) == made
    assert "sk-bench-key-of-a-test-run" not in kept.read_text()
    shown = bench(state, "show")
    assert "first token" in shown.stdout

    stopped = subprocess.Popen(
        [sys.executable, "-m", "medley", "bench", "--concurrency", "1", "--seed", "77", *TINY],
        env={**os.environ, "MEDLEY_STATE": str(state)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = url.removesuffix("/v1")
    found = wait_for("the engine's client runs", lambda: clients(f"--base-url\0{address}"), 120)
    assert all(b"sk-bench-key" not in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in found)
    stopped.send_signal(signal.SIGINT)
    assert stopped.wait(30) == 128 + signal.SIGINT
    assert clients(f"--base-url\0{address}") == []


@pytest.mark.slow
def test_sglangs_own_benchmark(start: Start, free_port: int, tmp_path: Path) -> None:
    served = start(serve("demo", "--engine", "sglang", "--port", str(free_port)))
    served.ready()
    made = record(tmp_path / "state", "--concurrency", "2", "--repeats", "1", *TINY)
    assert made["engine"] == "sglang"
    assert made["results"][0]["tpot_ms"]["median"] > 0
    assert "sglang" in made["about"]["engine"]["versions"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_without_a_server(engine: str, tmp_path: Path) -> None:
    words = ("demo", "--offline", "--engine", engine, "--concurrency", "2", "--repeats", "2", *TINY)
    made = record(tmp_path / "state", *words)
    assert [(each["mode"], each["concurrency"]) for each in made["results"]] == [
        ("latency", 2),
        ("throughput", 2),
    ]
    assert [each["latency_ms"]["median"] > 0 for each in made["results"]] == [True, True]
