"""SGLang: its command line, and where in its output the reason of a failure stands.

Flags as of SGLang 0.5.23 (`sglang serve --help`); sizes are written out, because the beginning of a name that
guides give (`--pp`) fits several there.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from medley.engine import Serving, last_reason, needed, pairs
from medley.layout.order import VARIABLE
from medley.plan import Plan
from medley.reasoned import Flag
from medley.tables import TITLES, Host, Model, ReasoningParser, ToolParser
from medley.variables import Variable

TITLE = TITLES["sglang"]
PROGRAM = "sglang"
HELP: tuple[str, ...] = ("serve", "--help")
# As in: [2026-11-22 08:01:33 PP1 TP0] and then the words
_PREFIX = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:]+[^\]]*\] ?")
_ERROR = re.compile(
    r"^(?:[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*|.*: error: .*"
    r"|Scheduler or DataParallelController \d+ terminated with.*)"
)
# What its processes raise when another died: true, and no reason.
_EMPTY = ("Initialization failed. Please see the error messages above", "SIGQUIT", "EOFError")
_OVER_RAY = Path(__file__).parents[1] / "inside" / "sglang_ray.py"
_FP8 = "fp8_e4m3"
_TOOLS: Mapping[ToolParser, str] = {
    "hermes": "hermes",
    "qwen3_coder": "qwen3_coder",
    "openai": "gpt-oss",
    "glm45": "glm45",
    "llama3_json": "llama3",
    "deepseek_v3": "deepseekv3",
}
_REASONING: Mapping[ReasoningParser, str] = {
    "qwen3": "qwen3",
    "deepseek_r1": "deepseek-r1",
    "glm45": "glm45",
    "nemotron_v3": "nemotron_3",
}


def words(binary: Path, serving: Serving, plan: Plan) -> tuple[str, ...]:
    """`sglang serve`, before any flag; over Ray a program of ours that does the same, rank by rank."""
    if plan.launcher == "ray":
        return (str(binary / "python"), str(_OVER_RAY), serving.target)
    return (str(binary / PROGRAM), "serve", serving.target)


def variables(_: Serving, plan: Plan, host: Host) -> Iterator[Variable]:
    """What no flag says."""
    if host.device == "cpu":
        yield Variable("SGLANG_USE_CPU_ENGINE", "1", "this host's CPU is to run the model")
        ranks = plan.tensor_parallel * plan.stages * plan.replicas
        if ranks > 1:
            why = "SGLang would bind each rank to a NUMA node of its own, which few hosts have"
            yield Variable("SGLANG_CPU_OMP_THREADS_BIND", _bound(plan), why)
    if plan.launcher == "ray":
        yield Variable("MEDLEY_RANKS", ",".join(plan.places), "the host of each rank, in order")
    if plan.partition:
        yield Variable(VARIABLE["sglang"], plan.partition, "layers of each stage, in the order of ranks")


def flags(serving: Serving, plan: Plan, host: Host, model: Model | None) -> Iterator[Flag]:
    """Everything we tell SGLang, each with its reason."""
    yield Flag(("--served-model-name",), serving.name, "the name that requests give")
    yield Flag(("--host",), serving.address, "where it listens")
    yield Flag(("--port",), str(serving.port), "where it listens")
    yield Flag(("--enable-metrics",), None, "its queue, KV cache and speed, for medley top and Prometheus")
    if serving.key_config and not (plan.nodes and plan.nodes.rank):
        why = "requests must give the key in it; as a flag every user of this host could read it"
        yield Flag(("--config",), str(serving.key_config), why)
    if host.device == "cpu":
        yield Flag(("--device",), "cpu", "this host's CPU is to run the model")
    yield from _ranks(plan)
    yield from _hosts(plan)
    yield from _memory(plan, host)
    if plan.eager and host.device != "cpu":
        why = "compiling would cost more than it gains, or cannot be done"
        yield Flag(("--cuda-graph-backend-decode", "--disable-cuda-graph"), "disabled", why)
        yield Flag(("--cuda-graph-backend-prefill",), "disabled", why)
    yield Flag(("--sleep-on-idle",), None, "else its scheduler takes a whole core while nothing is asked")
    yield from _parsers(model)
    yield from needed(plan)
    yield from pairs(model.args.get("sglang", ()) if model else ())


def _ranks(plan: Plan) -> Iterator[Flag]:
    if plan.tensor_parallel > 1:
        size = str(plan.tensor_parallel)
        yield Flag(("--tp-size", "--tensor-parallel-size", "--tp"), size, "so many ranks share each layer")
    if plan.expert_parallel:
        size = str(plan.tensor_parallel)
        yield Flag(
            ("--ep-size", "--expert-parallel-size", "--ep"), size, "experts stay whole, each on one rank"
        )
    if plan.balanced:
        yield Flag(("--enable-eplb",), None, "busy experts are moved to ranks that are not")
    if plan.stages > 1:
        size = str(plan.stages)
        yield Flag(("--pp-size", "--pipeline-parallel-size"), size, "so many stages, each of some layers")
    if plan.replicas > 1:
        why = "engines side by side, each with the whole model, behind one address"
        yield Flag(("--dp-size", "--data-parallel-size", "--dp"), str(plan.replicas), why)


def _hosts(plan: Plan) -> Iterator[Flag]:
    """Which part of the model runs in this process, where each host has one."""
    if plan.launcher == "ray":
        yield Flag(("--use-ray",), None, "Ray starts the ranks on their hosts")
    if plan.nodes:
        why = "started on each host by itself, without Ray"
        yield Flag(("--nnodes",), str(plan.nodes.count), why)
        yield Flag(("--node-rank",), str(plan.nodes.rank), "this host's place among them")
        at = f"{plan.nodes.address}:{plan.nodes.port}"
        yield Flag(
            ("--dist-init-addr", "--nccl-init-addr"), at, "where the ranks find each other: the first host"
        )


def _memory(plan: Plan, host: Host) -> Iterator[Flag]:
    if plan.kv_cache_tokens is not None and (host.device == "cpu" or plan.kv_cache_bytes is not None):
        why = (
            "on CPU SGLang would take what the host has"
            if host.device == "cpu"
            else "the plan's number, the same on each rank"
        )
        yield Flag(("--max-total-tokens",), str(plan.kv_cache_tokens), why)
    if plan.static_share is not None:
        why = "weights and KV cache; what the engine needs beside them stays free"
        yield Flag(("--mem-fraction-static",), f"{plan.static_share:.2f}", why)
    if plan.kv_type != "auto":
        yield Flag(("--kv-cache-dtype",), _FP8, "as asked: half the KV cache of 16 bits")
    if plan.sequences is not None:
        why = "at once; the plan's memory counts on it, and --concurrency raises it"
        yield Flag(("--max-running-requests",), str(plan.sequences), why)
    if plan.batch_tokens is not None:
        yield Flag(
            ("--chunked-prefill-size",), str(plan.batch_tokens), "in one pass; the plan's memory counts on it"
        )
    if plan.context is not None:
        yield Flag(("--context-length",), str(plan.context), "as asked")


def _parsers(model: Model | None) -> Iterator[Flag]:
    if model and model.tool_parser:
        yield Flag(("--tool-call-parser",), _TOOLS[model.tool_parser], "how this model calls tools")
    reasoning = _REASONING.get(model.reasoning_parser) if model and model.reasoning_parser else None
    if model and model.tool_parser == "openai":
        reasoning = "gpt-oss"  # one form for both, which vLLM knows by the model
    if reasoning:
        yield Flag(("--reasoning-parser",), reasoning, "how this model thinks aloud")


def _bound(plan: Plan) -> str:
    """The CPUs of each rank of this host, by its local number."""
    here = -(-plan.tensor_parallel * plan.stages * plan.replicas // plan.hosts)
    each = max(1, plan.threads // here)
    return "|".join(_span(rank * each % max(1, plan.threads), each) for rank in range(here))


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def fatal(line: str) -> bool:
    """Whether a line says that the engine is lost, though its process goes on.

    Under Ray a rank that dies leaves SGLang's server up, and requests hang (SGLang 0.5.23): the line is that
    of inside/sglang_ray.py.
    """
    return "SGLang's scheduler" in line and "died unexpectedly" in line


def last_error(lines: Sequence[str]) -> str | None:
    """The last error in the output that gives a reason; None where there is none."""
    return last_reason(lines, _PREFIX, _ERROR, _EMPTY)
