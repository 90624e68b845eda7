"""vLLM's own benchmark: `vllm bench serve`, and its modes without a server.

Flags and names of results as of vLLM 0.32.0 (`vllm bench serve --help=all`).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from medley.bench.figures import Figures, of_batch
from medley.bench.load import Run
from medley.command import Command
from medley.engine.client import Offline, Target
from medley.reasoned import Flag

_IDS = 10_000
_WARM = ("--num-warmups", "4")
_SERVERS = frozenset(
    (
        "--host",
        "--port",
        "--api-server-count",
        "--enable-auto-tool-choice",
        "--tool-call-parser",
        "--headless",
    )
)


def served(binary: Path, target: Target, run: Run, result: Path) -> Command:
    """Random prompts, all of one length, and answers that end at theirs: `random` ignores the end of text.

    No --num-warmups: it sends the first of the prompts, which the server then has in its prefix cache.
    """
    return target.command(
        *(str(binary / "vllm"), "bench", "serve", "--backend", "openai"),
        *("--base-url", target.base, "--endpoint", f"{target.path}/completions"),
        *("--model", target.model, "--tokenizer", target.tokenizer),
        *("--dataset-name", "random", "--random-range-ratio", "0"),
        *("--random-input-len", str(run.input_tokens), "--random-output-len", str(run.output_tokens)),
        *("--num-prompts", str(run.requests), "--max-concurrency", str(run.concurrency)),
        *("--seed", str(run.seed), "--temperature", "0", "--disable-tqdm"),
        *("--save-result", "--result-dir", str(result.parent), "--result-filename", result.name),
    )


def figures(table: Mapping[str, Any], run: Run) -> Figures | None:
    if "duration" not in table:
        return None
    return Figures(
        duration_s=table["duration"],
        completed=table["completed"],
        failed=table.get("failed", run.requests - table["completed"]),
        output_tokens_per_s=table.get("output_throughput"),
        total_tokens_per_s=table.get("total_token_throughput"),
        ttft_ms=table.get("median_ttft_ms"),
        ttft_p99_ms=table.get("p99_ttft_ms"),
        tpot_ms=table.get("median_tpot_ms"),
        tpot_p99_ms=table.get("p99_tpot_ms"),
    )


def offline(binary: Path, target: str, mode: Offline, run: Run, result: Path) -> tuple[str, ...]:
    """Its throughput mode has --input-len too, and passes over it where prompts are random."""
    lens = (str(run.input_tokens), str(run.output_tokens))
    words = (str(binary / "vllm"), "bench", mode, "--model", target, "--output-json", str(result))
    if mode == "latency":
        many = ("--batch-size", str(run.concurrency), "--num-iters", str(run.requests))
        return (*words, "--input-len", lens[0], "--output-len", lens[1], *many, "--num-iters-warmup", "1")
    random = ("--dataset-name", "random", "--random-input-len", lens[0], "--random-output-len", lens[1])
    return (*words, *random, "--num-prompts", str(run.requests), "--seed", str(run.seed), *_WARM)


def offline_figures(text: str, mode: Offline, run: Run) -> tuple[Figures, ...]:
    try:
        table = json.loads(text)
        return tuple(_offline(table, mode, run))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return ()


def _offline(table: Mapping[str, Any], mode: Offline, run: Run) -> Iterator[Figures]:
    if mode == "throughput":
        yield of_batch(table["num_requests"], table["elapsed_time"], run)
        return
    for seconds in table["latencies"]:
        yield of_batch(run.concurrency, seconds, run)


def unable(mode: Offline, vocabulary: int) -> str | None:
    if mode == "latency" and vocabulary < _IDS:
        return f"vLLM's latency mode sends token ids up to {_IDS - 1}, and this model knows {vocabulary}"
    return None


def only_served(flag: Flag) -> bool:
    return flag.names[0] in _SERVERS
