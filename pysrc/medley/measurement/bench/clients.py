"""Run each engine's benchmark client and read its results (vLLM 0.32.0, SGLang 0.5.23).

`figures.py` computes the medians of several runs, and `run.py` does the runs.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import field

from medley.command import UNSET_VARIABLES, Command
from medley.measurement.bench.figures import Figures, compute_batch_figures
from medley.measurement.bench.load import BenchRun
from medley.schema import EngineName
from medley.values import Value

OfflineMode = Literal["latency", "throughput"]
KEY_VARIABLE = "OPENAI_API_KEY"
"""The variable from which both engines' clients read the key of a server."""
_SGLANG_MODULES: Mapping[OfflineMode, str] = {"latency": "one_batch", "throughput": "offline_throughput"}
_SGLANG_WARM_UP = Path(__file__).with_name("sglang_warm_up.json")
_READ_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class ServedModel(Value):
    """A model on a server, as the engines' clients address it."""

    base_url: str
    """The server's address, without /v1."""
    api_path: str
    """The path of its API below the address: /v1."""
    model: str
    tokenizer: str
    """A folder, or ORG/NAME."""
    key_file: str | None = None
    """The file of its key."""
    variables: Mapping[str, str] = field(default_factory=dict)

    def build_command(self, *argv: str) -> Command:
        secrets = {KEY_VARIABLE: self.key_file} if self.key_file else {}
        # The user's own key of OpenAI must not reach another server.
        return Command(
            argv,
            self.variables,
            UNSET_VARIABLES if self.key_file else (*UNSET_VARIABLES, KEY_VARIABLE),
            secrets,
        )


class Client(ABC):
    """The benchmark client of one engine."""

    SERVER_FLAGS: frozenset[str]
    """Flags of the server that the offline modes refuse."""
    LATENCY_TOKEN_ID_COUNT = 0
    """The number of token ids that the latency mode draws from, whatever the model's vocabulary."""

    @abstractmethod
    def build_command(self, binary: Path, served: ServedModel, run: BenchRun, result: Path) -> Command:
        """Return the command that measures a server, and writes the measurement to `result`."""

    def read_figures(self, table: Mapping[str, Any], run: BenchRun) -> Figures | None:
        """Read a result file's table; None if it has no result."""
        if "duration" not in table:
            return None
        return Figures(
            duration_s=table["duration"],
            completed=table["completed"],
            failed=table.get("failed", run.requests - table["completed"]),
            output_tokens_per_s=table.get("output_throughput"),
            total_tokens_per_s=table.get("total_token_throughput", table.get("total_throughput")),
            ttft_ms=table.get("median_ttft_ms"),
            ttft_p99_ms=table.get("p99_ttft_ms"),
            tpot_ms=table.get("median_tpot_ms"),
            tpot_p99_ms=table.get("p99_tpot_ms"),
        )

    @abstractmethod
    def build_offline_argv(
        self, binary: Path, model: str, mode: OfflineMode, run: BenchRun, result: Path
    ) -> tuple[str, ...]:
        """Return the offline command; `run.requests` counts batches for latency, prompts for throughput."""

    def read_offline_figures(self, text: str, mode: OfflineMode, run: BenchRun) -> tuple[Figures, ...]:
        """Read the figures of each measurement; empty if there is no result."""
        try:
            return tuple(self._read_offline_figures(text, mode, run))
        except _READ_ERRORS:
            return ()

    @abstractmethod
    def _read_offline_figures(self, text: str, mode: OfflineMode, run: BenchRun) -> Iterable[Figures]: ...

    def find_obstacle(self, mode: OfflineMode, vocabulary: int) -> str | None:
        """Return why a model with so many tokens cannot be measured in this mode; None if it can."""
        if mode != "latency" or vocabulary >= self.LATENCY_TOKEN_ID_COUNT:
            return None
        ids = f"token ids up to {self.LATENCY_TOKEN_ID_COUNT - 1}"
        return f"vLLM's latency mode sends {ids}, and this model knows {vocabulary}"


class VllmClient(Client):
    LATENCY_TOKEN_ID_COUNT = 10_000
    SERVER_FLAGS = frozenset(
        (
            *("--host", "--port", "--api-server-count", "--headless"),
            *("--enable-auto-tool-choice", "--tool-call-parser"),
        )
    )

    def build_command(self, binary: Path, served: ServedModel, run: BenchRun, result: Path) -> Command:
        """Return the command for random prompts; --num-warmups would put the first in the prefix cache."""
        return served.build_command(
            *(str(binary / "vllm"), "bench", "serve", "--backend", "openai"),
            *("--base-url", served.base_url, "--endpoint", f"{served.api_path}/completions"),
            *("--model", served.model, "--tokenizer", served.tokenizer),
            *("--dataset-name", "random", "--random-range-ratio", "0"),
            *("--random-input-len", str(run.input_tokens), "--random-output-len", str(run.output_tokens)),
            *("--num-prompts", str(run.requests), "--max-concurrency", str(run.concurrency)),
            *("--seed", str(run.seed), "--temperature", "0", "--disable-tqdm"),
            *("--save-result", "--result-dir", str(result.parent), "--result-filename", result.name),
        )

    def build_offline_argv(
        self, binary: Path, model: str, mode: OfflineMode, run: BenchRun, result: Path
    ) -> tuple[str, ...]:
        """Return the command; the throughput mode ignores --input-len if prompts are random."""
        lengths = (str(run.input_tokens), str(run.output_tokens))
        argv = (str(binary / "vllm"), "bench", mode, "--model", model, "--output-json", str(result))
        if mode == "latency":
            batches = ("--batch-size", str(run.concurrency), "--num-iters", str(run.requests))
            tokens = ("--input-len", lengths[0], "--output-len", lengths[1])
            return (*argv, *tokens, *batches, "--num-iters-warmup", "1")
        tokens = ("--random-input-len", lengths[0], "--random-output-len", lengths[1])
        prompts = ("--num-prompts", str(run.requests), "--seed", str(run.seed), "--num-warmups", "4")
        return (*argv, "--dataset-name", "random", *tokens, *prompts)

    def _read_offline_figures(self, text: str, mode: OfflineMode, run: BenchRun) -> Iterable[Figures]:
        table = json.loads(text)
        if mode == "throughput":
            return [compute_batch_figures(table["num_requests"], table["elapsed_time"], run)]
        return [compute_batch_figures(run.concurrency, seconds, run) for seconds in table["latencies"]]


class SglangClient(Client):
    SERVER_FLAGS = frozenset(("--host", "--port", "--config", "--tool-call-parser", "--reasoning-parser"))

    def build_command(self, binary: Path, served: ServedModel, run: BenchRun, result: Path) -> Command:
        """Return the command for random ids, without a data set; a warm-up would fill the prefix cache."""
        return served.build_command(
            *(str(binary / "python"), "-m", "sglang.benchmark.serving", "--backend", "sglang"),
            *("--base-url", served.base_url, "--served-model-name", served.model),
            *("--model", served.tokenizer, "--tokenizer", served.tokenizer),
            *("--dataset-name", "random-ids", "--random-range-ratio", "1"),
            *("--random-input-len", str(run.input_tokens), "--random-output-len", str(run.output_tokens)),
            *("--num-prompts", str(run.requests), "--max-concurrency", str(run.concurrency)),
            *("--seed", str(run.seed), "--warmup-requests", "0", "--disable-tqdm"),
            *("--output-file", str(result)),
        )

    def build_offline_argv(
        self, binary: Path, model: str, mode: OfflineMode, run: BenchRun, result: Path
    ) -> tuple[str, ...]:
        """Return the command; its prompts share nothing, since random ones would fetch a data set."""
        program = (str(binary / "python"), "-m", f"sglang.benchmark.{_SGLANG_MODULES[mode]}")
        argv = (*program, "--model-path", model, "--result-filename", str(result))
        if mode == "latency":
            batches = ("--batch-size", *([str(run.concurrency)] * run.requests))
            tokens = ("--input-len", str(run.input_tokens), "--output-len", str(run.output_tokens))
            return (*argv, *batches, *tokens)
        half = run.input_tokens // 2
        return (
            *(*argv, "--dataset-name", "generated-shared-prefix", "--gsp-prompts-per-group", "1"),
            *("--gsp-num-groups", str(run.requests), "--gsp-system-prompt-len", str(half)),
            *("--gsp-question-len", str(run.input_tokens - half), "--gsp-output-len", str(run.output_tokens)),
            *("--num-prompts", str(run.requests), "--seed", str(run.seed)),
            *("--dataset-path", str(_SGLANG_WARM_UP)),
        )

    def _read_offline_figures(self, text: str, mode: OfflineMode, run: BenchRun) -> Iterable[Figures]:
        for table in [json.loads(line) for line in text.splitlines() if line.strip()]:
            if mode == "throughput":
                figures = compute_batch_figures(table["successful_requests"], table["total_latency"], run)
                yield figures.replace(total_tokens_per_s=table["total_throughput"])
            else:
                figures = compute_batch_figures(table["batch_size"], table["total_latency"], run)
                ttft_s, tpot_s = table["prefill_latency"], table.get("median_decode_latency")
                yield figures.replace(ttft_ms=ttft_s * 1000, tpot_ms=tpot_s and tpot_s * 1000)


CLIENTS: Mapping[EngineName, Client] = {"vllm": VllmClient(), "sglang": SglangClient()}
