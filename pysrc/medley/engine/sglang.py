"""SGLang: its flags and variables, and its lines that report a lost rank or host.

Flags as of SGLang 0.5.23 (`sglang serve --help`), in full, because a prefix such as `--pp` is ambiguous.
"""

import re
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from medley.command import Flag, Variable
from medley.engine import Serving, Why, flag, given, last_reason, table_flags
from medley.environment import payload
from medley.host_schema import HostTable
from medley.model.chat_format import ChatFormat
from medley.planner.context import LONGER
from medley.planner.host_order import VARIABLE
from medley.planner.plan import Plan
from medley.schema import TITLES, Model

TITLE = TITLES["sglang"]
PROGRAM = "sglang"
# For example: [2026-11-22 08:01:33 PP1 TP0] message
_PREFIX = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:]+[^\]]*\] ?")
_ERROR = re.compile(
    r"^(?:[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*|.*: error: .*"
    r"|Scheduler or DataParallelController \d+ terminated with.*)"
)
# Errors of processes whose peer died, which are not the reason.
_EMPTY = ("Initialization failed. Please see the error messages above", "SIGQUIT", "EOFError")
_OVER_RAY = payload.FOLDER / "sglang_ray.py"
_PARSERS = tomllib.loads(Path(__file__).with_name("sglang_parsers.toml").read_text(encoding="utf-8"))


def words(binary: Path, serving: Serving, plan: Plan) -> tuple[str, ...]:
    """Return `sglang serve`, or over Ray medley's program that starts it rank by rank."""
    if plan.launcher == "ray":
        return (str(binary / "python"), str(_OVER_RAY), serving.target)
    return (str(binary / PROGRAM), "serve", serving.target)


def variables(serving: Serving, plan: Plan, host: HostTable) -> Iterator[Variable]:
    if serving.folder:
        # It generates a token each time, and strangers may ask for it (http_server.py, 0.5.23).
        yield Variable(
            "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "0", "/health, which needs no key, is free"
        )
    if host.device == "cpu":
        yield Variable("SGLANG_USE_CPU_ENGINE", "1", "the CPU runs the model")
        if plan.tensor_parallel * plan.stages * plan.replicas > 1:
            why = "SGLang would bind each rank to its own NUMA node, which few hosts have"
            yield Variable("SGLANG_CPU_OMP_THREADS_BIND", _cpus(plan), why)
    if plan.launcher == "ray":
        yield Variable("MEDLEY_RANKS", ",".join(plan.places), "the host of each rank, in order")
    if plan.partition:
        yield Variable(VARIABLE["sglang"], plan.partition, "layers of each stage, in the order of ranks")
    if plan.beyond_config:
        yield Variable(LONGER["sglang"], "1", Why.LONGER)


def _cpus(plan: Plan) -> str:
    here = -(-plan.tensor_parallel * plan.stages * plan.replicas // plan.hosts)
    each = max(1, plan.threads // here)
    firsts = (rank * each % max(1, plan.threads) for rank in range(here))
    return "|".join(str(first) if each == 1 else f"{first}-{first + each - 1}" for first in firsts)


def flags(serving: Serving, plan: Plan, host: HostTable, model: Model | None) -> Iterator[Flag]:
    yield flag("--served-model-name", serving.name, "the model name in requests")
    if serving.folder is None:
        yield flag("--host", serving.address, "the server's address")
    yield flag("--port", serving.port, "the server's address, near which SGLang's other ports lie")
    if serving.folder:
        why = "medley's first request warms it up; SGLang's would go to the port"
        yield flag("--skip-server-warmup", None, why)
    yield flag("--enable-metrics", None, "for medley top and Prometheus")
    if host.device == "cpu":
        yield flag("--device", "cpu", "the CPU runs the model")
    yield from _ranks(plan)
    yield from given("--dtype", plan.dtype, Why.DTYPE)
    yield from _memory(plan, host)
    if plan.eager and host.device != "cpu":
        yield flag("--cuda-graph-backend-decode --disable-cuda-graph", "disabled", Why.EAGER)
        yield flag("--cuda-graph-backend-prefill", "disabled", Why.EAGER)
    yield flag("--sleep-on-idle", None, "its idle scheduler would use a whole core")
    chat = serving.format(model)
    tools, reasoning = parsers(chat)
    yield from given("--tool-call-parser", tools, chat.tool_why)
    yield from given("--reasoning-parser", reasoning, chat.reasoning_why or chat.tool_why)
    yield from table_flags("sglang", plan, model)


def parsers(chat: ChatFormat) -> tuple[str | None, str | None]:
    """Return SGLang's names of the parsers, where it has them."""
    tools = _PARSERS["tools"].get(chat.tool_parser)
    # One format for both, whose reasoning vLLM reads by the model
    reasoning = "gpt-oss" if tools == "gpt-oss" else _PARSERS["reasoning"].get(chat.reasoning_parser)
    return tools, reasoning


def _ranks(plan: Plan) -> Iterator[Flag]:
    tensor = plan.tensor_parallel
    if tensor > 1:
        yield flag("--tp-size --tensor-parallel-size --tp", tensor, "number of ranks that share each layer")
    if plan.expert_parallel:
        yield flag("--ep-size --expert-parallel-size --ep", tensor, "each expert is whole on one rank")
    if plan.balanced:
        yield flag("--enable-eplb", None, "moves busy experts to idle ranks")
    if plan.stages > 1:
        yield flag(
            "--pp-size --pipeline-parallel-size",
            plan.stages,
            "number of stages, each with some layers",
        )
    if plan.replicas > 1:
        yield flag("--dp-size --data-parallel-size --dp", plan.replicas, Why.REPLICAS)
    if plan.launcher == "ray":
        yield flag("--use-ray", None, "Ray starts the ranks on their hosts")
    if plan.nodes:
        yield flag("--nnodes", plan.nodes.count, Why.WITHOUT_RAY)
        yield flag("--node-rank", plan.nodes.rank, "this host's number")
        at = f"{plan.nodes.address}:{plan.nodes.port}"
        yield flag("--dist-init-addr --nccl-init-addr", at, "the first host, where the ranks find each other")


def _memory(plan: Plan, host: HostTable) -> Iterator[Flag]:
    if host.device == "cpu" or plan.kv_cache_bytes is not None:
        why = "on CPU SGLang would use all memory of the host" if host.device == "cpu" else Why.SAME_ON_EACH
        yield from given("--max-total-tokens", plan.kv_cache_tokens, why)
    if plan.static_share is not None:
        why = "weights and KV cache; the rest is for the engine's other memory"
        yield flag("--mem-fraction-static", f"{plan.static_share:.2f}", why)
    if plan.kv_type != "auto":
        yield flag("--kv-cache-dtype", "fp8_e4m3", Why.FP8_CACHE)
    yield from given("--max-running-requests", plan.sequences, Why.AT_ONCE)
    yield from given(
        "--max-mamba-cache-size", plan.states, "recurrent states; with fewer, fewer requests run"
    )
    yield from given("--chunked-prefill-size", plan.batch_tokens, Why.PER_BATCH)
    yield from given("--context-length", plan.context, "as requested")


def fatal(line: str) -> bool:
    """Whether it is payload/sglang_ray.py's line: under Ray SGLang outlives a dead rank and hangs."""
    return "SGLang's scheduler" in line and "died unexpectedly" in line


last_error = partial(last_reason, prefix=_PREFIX, error=_ERROR, empty=_EMPTY)
