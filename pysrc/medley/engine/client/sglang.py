"""SGLang's own benchmark: `python -m sglang.benchmark.serving`, and its modes without a server.

Flags and names of results as of SGLang 0.5.23, where `sglang.bench_serving` is an old name of the same.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medley.bench.figures import Figures
from medley.bench.load import Run
from medley.command import Command
from medley.engine.client import Target
from medley.reasoned import Flag

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


def only_served(flag: Flag) -> bool:
    return flag.names[0] in _SERVERS
