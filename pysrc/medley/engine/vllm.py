"""Build vLLM's flags and variables, and recognize its lines that report a lost rank or host.

Flags as of vLLM 0.33.0, which GPUs run, and 0.32.0, which CPUs run (`vllm serve --help=all`).
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from medley.command import Flag, Variable
from medley.engine.last_error import find_last_error_line
from medley.engine.server_spec import ServerSpec
from medley.engine.shared_flags import FlagReason, build_flag, list_optional_flags, list_table_flags
from medley.host_schema import (
    ENGINE_TABLES,
    HostTable,
)
from medley.model.chat_format import ChatFormat
from medley.planner.plan import Plan
from medley.schema import TITLES, Model

TITLE = TITLES["vllm"]
TABLE = ENGINE_TABLES["vllm"]
PROGRAM = "vllm"
PARSER_MODEL_FLAGS: tuple[str, ...] = ()
SCRIPT_OBSTACLES: Mapping[str, str] = {}
SCRIPT_LAUNCHER: Flag | None = Flag(
    ("--distributed-executor-backend",), "external_launcher", "torchrun starts the ranks"
)
SCRIPT_VARIABLES: tuple[Variable, ...] = (
    Variable("VLLM_LOGGING_STREAM", "ext://sys.stderr", "only the script uses stdout"),
)
# "(EngineCore pid=12) ERROR 11-21 08:01:33 [core.py:1109] ValueError: …"; each part is optional
_PREFIX_PATTERN = re.compile(r"^(?:\(\S+ pid=\d+\) ?)?(?:ERROR [\d-]+ [\d:]+ \[[^\]]+\] ?)?")
_ERROR_PATTERN = re.compile(r"^(?:[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*|vllm.*: error: .*)")
# Printed after 10 seconds, 30, 70 and so on.
_UNPLACED_LINE = "Waiting for creating a placement group of specs for 30 seconds"
# Errors of parent processes whose child died, which are not the reason.
_PARENT_ERRORS = (
    "See root cause above",
    "See stack trace for root cause",
    "Engine core initialization failed",
    "died unexpectedly",
    "EngineDeadError",
    "completion stream generator",
)


def build_argv(program_folder: Path, serving: ServerSpec, _: Plan) -> tuple[str, ...]:
    return (str(program_folder / PROGRAM), "serve", serving.target)


def list_variables(_: ServerSpec, plan: Plan, table: HostTable) -> Iterator[Variable]:
    if table.device == "cpu" and plan.is_eager:
        # At the first request vLLM 0.32.0 compiles small functions, eager or not (logprobs.py:10 and
        # topk_topp_sampler.py:452 of v1/sample/ops): it took 12 s on quiet cores, and 160 s on busy ones.
        why = "otherwise tracing and g++ delay the first answer without a gain"
        yield Variable("TORCHDYNAMO_DISABLE", "1", why)
    has_several_ranks = plan.launcher == "solo" and plan.tensor_parallel * plan.stages > 1
    if table.device == "cpu" and (plan.launcher == "mp" or has_several_ranks):
        why = "vLLM would bind each rank to a NUMA node of its own, which few hosts have"
        yield Variable("VLLM_CPU_OMP_THREADS_BIND", "nobind", why)
    if plan.launcher == "ray" and plan.replicas > 1:
        # medley reserves the slots that the plan does not use, so vLLM fills each host.
        hosts = ",".join(dict.fromkeys(plan.rank_addresses))
        yield Variable("VLLM_RAY_DP_PLACEMENT_NODE_IPS", hosts, "the hosts of the plan")
        yield Variable("VLLM_RAY_DP_PACK_STRATEGY", "fill", "each host gets as many replicas as it has slots")
    if plan.layer_partition:
        yield Variable(
            ENGINE_TABLES["vllm"].partition_variable,
            plan.layer_partition,
            "layers of each stage, in the order of ranks",
        )
    if plan.is_beyond_config:
        yield Variable(TABLE.context_variable, "1", FlagReason.LONGER)
    yield Variable("VLLM_NO_USAGE_STATS", "1", "vLLM reports usage to its makers by default")


def list_flags(serving: ServerSpec, plan: Plan, table: HostTable, model: Model | None) -> Iterator[Flag]:
    yield build_flag("--served-model-name", serving.name, "the name that requests give")
    if plan.node_process and plan.node_process.rank:
        yield build_flag("--headless", None, "only the first host serves the API")
    else:
        yield from _list_address_flags(serving)
    yield from _list_rank_flags(plan)
    if plan.replicas > 1:
        yield from _list_replica_flags(plan)
    elif plan.node_process:
        yield build_flag("--distributed-executor-backend", "mp", FlagReason.WITHOUT_RAY)
        yield build_flag("--nnodes -n", plan.node_process.node_count, FlagReason.WITHOUT_RAY)
        yield build_flag("--node-rank -r", plan.node_process.rank, "this host's place among them")
        yield build_flag(
            "--master-addr", plan.node_process.address, "where the ranks find each other: the first host"
        )
        yield build_flag("--master-port", plan.node_process.port, "the same")
    yield from list_optional_flags("--dtype", plan.dtype, FlagReason.DTYPE)
    yield from _list_memory_flags(plan, table)
    yield from _list_compilation_flags(plan, table)
    chat = serving.choose_chat_format(model)
    tools, reasoning = (None if name in plan.missing_parsers else name for name in choose_parsers(chat))
    if tools:
        yield build_flag("--enable-auto-tool-choice", None, "the model decides when to call tools")
        yield build_flag("--tool-call-parser", tools, chat.tool_why)
    yield from list_optional_flags("--reasoning-parser", reasoning, chat.reasoning_why)
    yield from list_table_flags("vllm", plan, model)


def choose_parsers(chat: ChatFormat) -> tuple[str | None, str | None]:
    """Return the format's own names, which are vLLM's."""
    return chat.tool_parser, chat.reasoning_parser


def _list_address_flags(serving: ServerSpec) -> Iterator[Flag]:
    if serving.socket_folder:
        yield build_flag("--uds", serving.socket, FlagReason.SOCKET)
    else:
        yield build_flag("--host", serving.address, "where it listens")
        yield build_flag("--port", serving.port, "where it listens")


def _list_rank_flags(plan: Plan) -> Iterator[Flag]:
    if plan.tensor_parallel > 1:
        yield build_flag(
            "--tensor-parallel-size -tp", plan.tensor_parallel, "number of ranks that share each layer"
        )
    if plan.expert_parallel:
        yield build_flag("--enable-expert-parallel -ep", None, "experts stay whole, each on one rank")
    if plan.balances_experts:
        yield build_flag("--enable-eplb", None, "busy experts are moved to ranks that are not")
    if plan.launcher == "ray" and plan.replicas == 1:
        yield build_flag("--distributed-executor-backend", "ray", "the ranks are on several hosts")
    if plan.stages > 1:
        yield build_flag(
            "--pipeline-parallel-size -pp", plan.stages, "number of stages, each with some layers"
        )


def _list_replica_flags(plan: Plan) -> Iterator[Flag]:
    yield build_flag("--data-parallel-size -dp", plan.replicas, FlagReason.REPLICAS)
    if plan.launcher == "ray":
        yield build_flag("--data-parallel-backend -dpb", "ray", "Ray starts the replicas on other hosts")
    if plan.launcher != "solo":
        yield build_flag("--data-parallel-size-local -dpl", plan.replicas_here, "replicas on this host")
    if plan.node_process:
        yield build_flag(
            "--data-parallel-address -dpa",
            plan.node_process.address,
            "where the replicas find each other",
        )
        yield build_flag("--data-parallel-rpc-port -dpp", plan.node_process.port, "the same")
    if plan.node_process and plan.node_process.rank:
        yield build_flag(
            "--data-parallel-start-rank -dpr", plan.replicas_before, "replicas on the hosts before"
        )
    else:
        yield build_flag("--api-server-count -asc", 1, "one process for all; each takes half a GiB")


def _list_memory_flags(plan: Plan, table: HostTable) -> Iterator[Flag]:
    why = (
        "on CPU vLLM would use 92 % of the host's memory"
        if table.device == "cpu"
        else FlagReason.SAME_ON_EACH
    )
    yield from list_optional_flags("--kv-cache-memory-bytes", plan.kv_cache_bytes, why)
    if plan.memory_utilization is not None:
        why = "the free memory of every rank's GPU, within its kind's limit"
        yield build_flag("--gpu-memory-utilization", f"{plan.memory_utilization:.2f}", why)
    if plan.kv_type != "auto":
        yield build_flag("--kv-cache-dtype", plan.kv_type, FlagReason.FP8_CACHE)
    yield from list_optional_flags("--max-num-seqs", plan.sequences, FlagReason.CONCURRENT)
    yield from list_optional_flags("--max-num-batched-tokens", plan.batch_tokens, FlagReason.PER_BATCH)
    if plan.context is not None or plan.longest_context is not None:
        why = "as requested" if plan.context else "the longest that fits the memory, up to the model's own"
        yield build_flag(
            "--max-model-len", plan.context or ("auto" if plan.finds_longest else plan.longest_context), why
        )


def _list_compilation_flags(plan: Plan, table: HostTable) -> Iterator[Flag]:
    if not plan.is_eager:
        return
    if table.device == "cpu" and plan.stages > 1:
        # Without the warm-up, which eager mode skips, the first request would kill a stage.
        yield build_flag("-cc.mode", 2, f"{FlagReason.EAGER}; a pipeline on CPU still needs the warm-up")
        yield build_flag("-cc.backend", "eager", "traces once, compiles nothing")
    else:
        yield build_flag("--enforce-eager", None, FlagReason.EAGER)


def is_fatal(line: str) -> bool:
    """Return whether a line shows that the engine failed, though its process goes on.

    After the loss of a rank vLLM's head waits for minutes, with /health at 200 (vLLM 0.32.0, RayExecutorV2).
    It waits half an hour for a slot whose host was lost before the rank was placed.
    """
    return ("RayWorkerProc" in line and "died unexpectedly" in line) or _UNPLACED_LINE in line


def find_last_error(lines: Iterable[str]) -> str | None:
    """Return the last error that gives a reason; a lone EngineDeadError gets an explanation."""
    error = find_last_error_line(lines, _PREFIX_PATTERN, _ERROR_PATTERN, _PARENT_ERRORS)
    if error and "EngineDeadError" in error:
        return "EngineCore ended without an error of its own (EngineDeadError), as it does when it is killed"
    return error


def list_ray_variables(_: str, network: Collection[Variable]) -> Iterator[Variable]:
    shared = {variable.name: variable.value for variable in network if variable.everywhere}
    if shared:
        # vLLM's second Ray executor fills in what a host lacks and leaves what its `ray start` has
        # (v1/executor/ray_executor_v2.py of vLLM 0.32.0); the environment of a job wins over both
        # (ray/_private/worker.py of Ray 2.60.0).
        job = json.dumps({"runtime_env": {"env_vars": shared}})
        yield Variable("RAY_JOB_CONFIG_JSON_ENV_VAR", job, "ranks use these instead of those of `ray start`")


def list_node_variables(_: str) -> Iterator[Variable]:
    yield from ()
