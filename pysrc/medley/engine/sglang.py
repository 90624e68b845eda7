"""Build SGLang's flags and variables, and recognize its lines that report a lost rank or host.

Flags as of SGLang 0.5.23 (`sglang serve --help`), in full, because a prefix such as `--pp` is ambiguous.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

from medley.command import Flag, Variable
from medley.engine.last_error import find_last_error_line
from medley.engine.server_spec import ServerSpec
from medley.engine.shared_flags import FlagReason, build_flag, list_optional_flags, list_table_flags
from medley.environment import payload
from medley.host_schema import (
    ENGINE_TABLES,
    HostTable,
)
from medley.model.chat_format import ChatFormat
from medley.planner.plan import Plan
from medley.schema import TITLES, Model

TITLE = TITLES["sglang"]
TABLE = ENGINE_TABLES["sglang"]
PROGRAM = "sglang"
PARSER_MODEL_FLAGS: tuple[str, ...] = ("--model-path",)
SCRIPT_OBSTACLES: Mapping[str, str] = {
    "ray": "sglang.Engine lets Ray choose the hosts, and waits forever without a free one",
    "mp": "on other hosts sglang.Engine serves the first one, and never returns to the script",
}
SCRIPT_LAUNCHER: Flag | None = None
SCRIPT_VARIABLES: tuple[Variable, ...] = ()
# For example: [2026-11-22 08:01:33 PP1 TP0] message
_PREFIX_PATTERN = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:]+[^\]]*\] ?")
_ERROR_PATTERN = re.compile(
    r"^(?:[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*|.*: error: .*"
    r"|Scheduler or DataParallelController \d+ terminated with.*)"
)
# Errors of processes whose peer died, which are not the reason.
_PARENT_ERRORS = ("Initialization failed. Please see the error messages above", "SIGQUIT", "EOFError")
_RAY_SCRIPT = payload.FOLDER / "sglang_ray.py"
_PARSERS = tomllib.loads(Path(__file__).with_name("sglang_parsers.toml").read_text(encoding="utf-8"))


def build_argv(program_folder: Path, serving: ServerSpec, plan: Plan) -> tuple[str, ...]:
    """Return `sglang serve`, or over Ray medley's program that starts it rank by rank."""
    if plan.launcher == "ray":
        return (str(program_folder / "python"), str(_RAY_SCRIPT), serving.target)
    return (str(program_folder / PROGRAM), "serve", serving.target)


def list_variables(serving: ServerSpec, plan: Plan, table: HostTable) -> Iterator[Variable]:
    if serving.socket_folder:
        # It generates a token each time, and strangers may ask for it (http_server.py, 0.5.23).
        yield Variable(
            "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "0", "/health, which needs no key, is free"
        )
    if table.device == "cpu":
        yield Variable("SGLANG_USE_CPU_ENGINE", "1", "the CPU runs the model")
        if plan.tensor_parallel * plan.stages * plan.replicas > 1:
            why = "SGLang would bind each rank to its own NUMA node, which few hosts have"
            yield Variable("SGLANG_CPU_OMP_THREADS_BIND", _format_cpu_ranges(plan), why)
    if plan.launcher == "ray":
        yield Variable("MEDLEY_RANKS", ",".join(plan.rank_addresses), "the host of each rank, in order")
    if plan.layer_partition:
        yield Variable(
            ENGINE_TABLES["sglang"].partition_variable,
            plan.layer_partition,
            "layers of each stage, in the order of ranks",
        )
    if plan.is_beyond_config:
        yield Variable(TABLE.context_variable, "1", FlagReason.LONGER)


def _format_cpu_ranges(plan: Plan) -> str:
    """Return the CPU numbers of each rank on a host, as SGLang takes them: 0-3|4-7."""
    host_ranks = -(-plan.tensor_parallel * plan.stages * plan.replicas // plan.hosts)
    threads_per_rank = max(1, plan.threads // host_ranks)
    ranges = []
    for rank in range(host_ranks):
        first = rank * threads_per_rank % max(1, plan.threads)
        last = first + threads_per_rank - 1
        ranges.append(str(first) if first == last else f"{first}-{last}")
    return "|".join(ranges)


def list_flags(serving: ServerSpec, plan: Plan, table: HostTable, model: Model | None) -> Iterator[Flag]:
    yield build_flag("--served-model-name", serving.name, "the model name in requests")
    if serving.socket_folder is None:
        yield build_flag("--host", serving.address, "the server's address")
    yield build_flag("--port", serving.port, "the server's address, near which SGLang's other ports lie")
    if serving.socket_folder:
        why = "medley's first request warms it up; SGLang's would go to the port"
        yield build_flag("--skip-server-warmup", None, why)
    yield build_flag("--enable-metrics", None, "for medley top and Prometheus")
    if table.device == "cpu":
        yield build_flag("--device", "cpu", "the CPU runs the model")
    yield from _list_rank_flags(plan)
    yield from list_optional_flags("--dtype", plan.dtype, FlagReason.DTYPE)
    yield from _list_memory_flags(plan, table)
    if plan.is_eager and table.device != "cpu":
        yield build_flag("--cuda-graph-backend-decode --disable-cuda-graph", "disabled", FlagReason.EAGER)
        yield build_flag("--cuda-graph-backend-prefill", "disabled", FlagReason.EAGER)
    yield build_flag("--sleep-on-idle", None, "its idle scheduler would use a whole core")
    chat = serving.choose_chat_format(model)
    tools, reasoning = choose_parsers(chat)
    yield from list_optional_flags("--tool-call-parser", tools, chat.tool_why)
    yield from list_optional_flags("--reasoning-parser", reasoning, chat.reasoning_why or chat.tool_why)
    yield from list_table_flags("sglang", plan, model)


def choose_parsers(chat: ChatFormat) -> tuple[str | None, str | None]:
    """Return SGLang's names of the parsers, where it has them."""
    tools = _PARSERS["tools"].get(chat.tool_parser)
    # gpt-oss has one format for calls and reasoning; SGLang has one parser name for both.
    reasoning = "gpt-oss" if tools == "gpt-oss" else _PARSERS["reasoning"].get(chat.reasoning_parser)
    return tools, reasoning


def _list_rank_flags(plan: Plan) -> Iterator[Flag]:
    tensor = plan.tensor_parallel
    if tensor > 1:
        yield build_flag(
            "--tp-size --tensor-parallel-size --tp", tensor, "number of ranks that share each layer"
        )
    if plan.expert_parallel:
        yield build_flag("--ep-size --expert-parallel-size --ep", tensor, "each expert is whole on one rank")
    if plan.balances_experts:
        yield build_flag("--enable-eplb", None, "moves busy experts to idle ranks")
    if plan.stages > 1:
        yield build_flag(
            "--pp-size --pipeline-parallel-size",
            plan.stages,
            "number of stages, each with some layers",
        )
    if plan.replicas > 1:
        yield build_flag("--dp-size --data-parallel-size --dp", plan.replicas, FlagReason.REPLICAS)
    if plan.launcher == "ray":
        yield build_flag("--use-ray", None, "Ray starts the ranks on their hosts")
    if plan.node_process:
        yield build_flag("--nnodes", plan.node_process.node_count, FlagReason.WITHOUT_RAY)
        yield build_flag("--node-rank", plan.node_process.rank, "this host's number")
        address = f"{plan.node_process.address}:{plan.node_process.port}"
        yield build_flag(
            "--dist-init-addr --nccl-init-addr", address, "the first host, where the ranks find each other"
        )


def _list_memory_flags(plan: Plan, table: HostTable) -> Iterator[Flag]:
    if table.device == "cpu" or plan.kv_cache_bytes is not None:
        why = (
            "on CPU SGLang would use all memory of the host"
            if table.device == "cpu"
            else FlagReason.SAME_ON_EACH
        )
        yield from list_optional_flags("--max-total-tokens", plan.kv_cache_tokens, why)
    if plan.static_share is not None:
        why = "weights and KV cache; the rest is for the engine's other memory"
        yield build_flag("--mem-fraction-static", f"{plan.static_share:.2f}", why)
    if plan.kv_type != "auto":
        yield build_flag("--kv-cache-dtype", "fp8_e4m3", FlagReason.FP8_CACHE)
    yield from list_optional_flags("--max-running-requests", plan.sequences, FlagReason.CONCURRENT)
    yield from list_optional_flags(
        "--max-mamba-cache-size", plan.state_count, "recurrent states; with fewer, fewer requests run"
    )
    yield from list_optional_flags("--chunked-prefill-size", plan.batch_tokens, FlagReason.PER_BATCH)
    yield from list_optional_flags("--context-length", plan.context, "as requested")


def is_fatal(line: str) -> bool:
    """Return whether it is the line of payload/sglang_ray.py: under Ray SGLang hangs after a rank died."""
    return "SGLang's scheduler" in line and "died unexpectedly" in line


find_last_error = partial(
    find_last_error_line,
    prefix_pattern=_PREFIX_PATTERN,
    error_pattern=_ERROR_PATTERN,
    generic_phrases=_PARENT_ERRORS,
)


def list_ray_variables(address: str, _: Collection[Variable]) -> Iterator[Variable]:
    yield from list_node_variables(address)


def list_node_variables(address: str) -> Iterator[Variable]:
    yield Variable("SGLANG_HOST_IP", address, "ranks find this host at the address registered with Ray")
