"""SGLang's own benchmark: `python -m sglang.benchmark.serving`, and its modes without a server.

Flags and names of results as of SGLang 0.5.23, where `sglang.bench_serving` is an old name of the same.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from medley.bench.figures import Figures, of_batch
from medley.bench.load import Run
from medley.command import Command
from medley.engine.client import Offline, Target
from medley.reasoned import Flag

_MODULE: Mapping[Offline, str] = {"latency": "one_batch", "throughput": "offline_throughput"}
_WARM_UP = Path(__file__).with_name("warm_up.json")
_SERVERS = frozenset(("--host", "--port", "--config", "--tool-call-parser", "--reasoning-parser"))


def served(binary: Path, target: Target, run: Run, result: Path) -> Command:
    """Random prompts of one length; `random` alone would fetch a data set for their words.

    No --warmup-requests: they send the first of the prompts, which the server then has in its prefix cache.
    """
    return target.command(
        *(str(binary / "python"), "-m", "sglang.benchmark.serving", "--backend", "sglang"),
        *("--base-url", target.base, "--served-model-name", target.model),
        *("--model", target.tokenizer, "--tokenizer", target.tokenizer),
        *("--dataset-name", "random-ids", "--random-range-ratio", "1"),
        *("--random-input-len", str(run.input_tokens), "--random-output-len", str(run.output_tokens)),
        *("--num-prompts", str(run.requests), "--max-concurrency", str(run.concurrency)),
        *("--seed", str(run.seed), "--warmup-requests", "0", "--disable-tqdm"),
        *("--output-file", str(result)),
    )


def figures(table: Mapping[str, Any], run: Run) -> Figures | None:
    if "duration" not in table:
        return None
    return Figures(
        duration_s=table["duration"],
        completed=table["completed"],
        failed=run.requests - table["completed"],
        output_tokens_per_s=table.get("output_throughput"),
        total_tokens_per_s=table.get("total_throughput"),
        ttft_ms=table.get("median_ttft_ms"),
        ttft_p99_ms=table.get("p99_ttft_ms"),
        tpot_ms=table.get("median_tpot_ms"),
        tpot_p99_ms=table.get("p99_tpot_ms"),
    )


def offline(binary: Path, target: str, mode: Offline, run: Run, result: Path) -> tuple[str, ...]:
    """Prompts that share nothing; its random ones are made of a data set, which it would fetch from the hub.

    What its throughput mode warms up with is made so, too, and even where it is told not to warm up.
    """
    lens = (run.input_tokens, run.output_tokens)
    words = (str(binary / "python"), "-m", f"sglang.benchmark.{_MODULE[mode]}", "--model-path", target)
    if mode == "latency":
        many = ("--batch-size", *([str(run.concurrency)] * run.requests))
        sizes = (*many, "--input-len", str(lens[0]), "--output-len", str(lens[1]))
        return (*words, *sizes, "--result-filename", str(result))
    groups = ("--gsp-num-groups", str(run.requests), "--gsp-prompts-per-group", "1")
    prompts = (
        "--gsp-system-prompt-len",
        str(lens[0] // 2),
        "--gsp-question-len",
        str(lens[0] - lens[0] // 2),
    )
    return (
        *(*words, "--dataset-name", "generated-shared-prefix", *groups, *prompts),
        *("--gsp-output-len", str(lens[1]), "--num-prompts", str(run.requests), "--seed", str(run.seed)),
        *("--dataset-path", str(_WARM_UP), "--result-filename", str(result)),
    )


def offline_figures(text: str, mode: Offline, run: Run) -> tuple[Figures, ...]:
    """A line each time."""
    try:
        tables = [json.loads(line) for line in text.splitlines() if line.strip()]
        return tuple(_offline(table, mode, run) for table in tables)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return ()


def _offline(table: Mapping[str, Any], mode: Offline, run: Run) -> Figures:
    if mode == "throughput":
        found = of_batch(table["successful_requests"], table["total_latency"], run)
        return replace(found, total_tokens_per_s=table["total_throughput"])
    found = of_batch(table["batch_size"], table["total_latency"], run)
    first, each = table["prefill_latency"], table.get("median_decode_latency")
    return replace(found, ttft_ms=first * 1000, tpot_ms=each and each * 1000)


def unable(mode: Offline, vocabulary: int) -> str | None:
    del mode, vocabulary
    return None


def only_served(flag: Flag) -> bool:
    return flag.names[0] in _SERVERS
