"""Run each engine's benchmark client and read its results (vLLM 0.32.0, SGLang 0.5.23)."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from medley.command import UNSET, Command
from medley.measurement.bench import BenchRun, Figures, batch_figures
from medley.schema import EngineName

Offline = Literal["latency", "throughput"]
KEY = "OPENAI_API_KEY"
"""Where both engines' clients look for the key of a server."""
_SGLANG_MODULES: Mapping[Offline, str] = {"latency": "one_batch", "throughput": "offline_throughput"}
_SGLANG_WARM_UP = Path(__file__).with_name("sglang_warm_up.json")
_ODD_RESULT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class ServedModel:
    base: str
    """Its address, without /v1."""
    path: str
    """Below it, where its API is: /v1."""
    model: str
    tokenizer: str
    """A folder, or ORG/NAME."""
    key: str | None = None
    """The file of its key."""
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self, *argv: str) -> Command:
        secrets = {KEY: self.key} if self.key else {}
        # The user's own key of OpenAI is for OpenAI alone.
        return Command(argv, self.env, UNSET if self.key else (*UNSET, KEY), secrets)


class Client(ABC):
    SERVER_FLAGS: frozenset[str]
    """Flags that mean something to a server alone, so that the offline modes do not know them."""
    LATENCY_IDS = 0
    """How many token ids the latency mode sends, whatever the model knows."""

    @abstractmethod
    def command(self, binary: Path, served: ServedModel, run: BenchRun, result: Path) -> Command:
        """Run against a server, and write the measurement to `result`."""

    def figures(self, table: Mapping[str, Any], run: BenchRun) -> Figures | None:
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
    def offline_argv(
        self, binary: Path, model: str, mode: Offline, run: BenchRun, result: Path
    ) -> tuple[str, ...]:
        """Run without a server; `run.requests` counts batches for latency, prompts for throughput."""

    def offline_figures(self, text: str, mode: Offline, run: BenchRun) -> tuple[Figures, ...]:
        """Read the figures of each measurement; empty if there is no result."""
        try:
            return tuple(self._offline_figures(text, mode, run))
        except _ODD_RESULT:
            return ()

    @abstractmethod
    def _offline_figures(self, text: str, mode: Offline, run: BenchRun) -> Iterable[Figures]: ...

    def unable(self, mode: Offline, vocabulary: int) -> str | None:
        """Why a model of so many tokens cannot be measured in this mode; None where it can."""
        if mode != "latency" or vocabulary >= self.LATENCY_IDS:
            return None
        ids = f"token ids up to {self.LATENCY_IDS - 1}"
        return f"vLLM's latency mode sends {ids}, and this model knows {vocabulary}"


class VllmClient(Client):
    LATENCY_IDS = 10_000
    SERVER_FLAGS = frozenset(
        (
            *("--host", "--port", "--api-server-count", "--headless"),
            *("--enable-auto-tool-choice", "--tool-call-parser"),
        )
    )

    def command(self, binary: Path, served: ServedModel, run: BenchRun, result: Path) -> Command:
        """Send random prompts of one length; --num-warmups would put the first in the prefix cache."""
        return served.command(
            *(str(binary / "vllm"), "bench", "serve", "--backend", "openai"),
            *("--base-url", served.base, "--endpoint", f"{served.path}/completions"),
            *("--model", served.model, "--tokenizer", served.tokenizer),
            *("--dataset-name", "random", "--random-range-ratio", "0"),
            *("--random-input-len", str(run.input_tokens), "--random-output-len", str(run.output_tokens)),
            *("--num-prompts", str(run.requests), "--max-concurrency", str(run.concurrency)),
            *("--seed", str(run.seed), "--temperature", "0", "--disable-tqdm"),
            *("--save-result", "--result-dir", str(result.parent), "--result-filename", result.name),
        )

    def offline_argv(
        self, binary: Path, model: str, mode: Offline, run: BenchRun, result: Path
    ) -> tuple[str, ...]:
        """Its throughput mode has --input-len too, and passes over it where prompts are random."""
        lens = (str(run.input_tokens), str(run.output_tokens))
        words = (str(binary / "vllm"), "bench", mode, "--model", model, "--output-json", str(result))
        if mode == "latency":
            many = ("--batch-size", str(run.concurrency), "--num-iters", str(run.requests))
            return (*words, "--input-len", lens[0], "--output-len", lens[1], *many, "--num-iters-warmup", "1")
        random = ("--dataset-name", "random", "--random-input-len", lens[0], "--random-output-len", lens[1])
        prompts = ("--num-prompts", str(run.requests), "--seed", str(run.seed), "--num-warmups", "4")
        return (*words, *random, *prompts)

    def _offline_figures(self, text: str, mode: Offline, run: BenchRun) -> Iterable[Figures]:
        table = json.loads(text)
        if mode == "throughput":
            return [batch_figures(table["num_requests"], table["elapsed_time"], run)]
        return [batch_figures(run.concurrency, seconds, run) for seconds in table["latencies"]]


class SglangClient(Client):
    SERVER_FLAGS = frozenset(("--host", "--port", "--config", "--tool-call-parser", "--reasoning-parser"))

    def command(self, binary: Path, served: ServedModel, run: BenchRun, result: Path) -> Command:
        """Send random ids, which need no data set; a warm-up would put the first in the prefix cache."""
        return served.command(
            *(str(binary / "python"), "-m", "sglang.benchmark.serving", "--backend", "sglang"),
            *("--base-url", served.base, "--served-model-name", served.model),
            *("--model", served.tokenizer, "--tokenizer", served.tokenizer),
            *("--dataset-name", "random-ids", "--random-range-ratio", "1"),
            *("--random-input-len", str(run.input_tokens), "--random-output-len", str(run.output_tokens)),
            *("--num-prompts", str(run.requests), "--max-concurrency", str(run.concurrency)),
            *("--seed", str(run.seed), "--warmup-requests", "0", "--disable-tqdm"),
            *("--output-file", str(result)),
        )

    def offline_argv(
        self, binary: Path, model: str, mode: Offline, run: BenchRun, result: Path
    ) -> tuple[str, ...]:
        """Send prompts that share nothing; its random ones, and its warm-up, would fetch a data set."""
        program = (str(binary / "python"), "-m", f"sglang.benchmark.{_SGLANG_MODULES[mode]}")
        words = (*program, "--model-path", model, "--result-filename", str(result))
        if mode == "latency":
            many = ("--batch-size", *([str(run.concurrency)] * run.requests))
            lens = ("--input-len", str(run.input_tokens), "--output-len", str(run.output_tokens))
            return (*words, *many, *lens)
        half = run.input_tokens // 2
        return (
            *(*words, "--dataset-name", "generated-shared-prefix", "--gsp-prompts-per-group", "1"),
            *("--gsp-num-groups", str(run.requests), "--gsp-system-prompt-len", str(half)),
            *("--gsp-question-len", str(run.input_tokens - half), "--gsp-output-len", str(run.output_tokens)),
            *("--num-prompts", str(run.requests), "--seed", str(run.seed)),
            *("--dataset-path", str(_SGLANG_WARM_UP)),
        )

    def _offline_figures(self, text: str, mode: Offline, run: BenchRun) -> Iterable[Figures]:
        for table in [json.loads(line) for line in text.splitlines() if line.strip()]:
            if mode == "throughput":
                found = batch_figures(table["successful_requests"], table["total_latency"], run)
                yield replace(found, total_tokens_per_s=table["total_throughput"])
            else:
                found = batch_figures(table["batch_size"], table["total_latency"], run)
                first, each = table["prefill_latency"], table.get("median_decode_latency")
                yield replace(found, ttft_ms=first * 1000, tpot_ms=each and each * 1000)


CLIENTS: Mapping[EngineName, Client] = {"vllm": VllmClient(), "sglang": SglangClient()}
