"""vLLM's own benchmark: `vllm bench serve`, and its modes without a server.

Flags and names of results as of vLLM 0.32.0 (`vllm bench serve --help=all`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medley.bench.figures import Figures
from medley.bench.load import Run
from medley.command import Command
from medley.engine.client import Target
from medley.reasoned import Flag

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


def only_served(flag: Flag) -> bool:
    return flag.names[0] in _SERVERS
