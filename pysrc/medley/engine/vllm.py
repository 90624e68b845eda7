"""vLLM: its command line, and where in its output the reason of a failure stands.

Flags as of vLLM 0.32.0 (`vllm serve --help=all`).
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from medley.engine import Serving, last_reason, needed, pairs
from medley.layout.order import VARIABLE
from medley.plan import Plan
from medley.reasoned import Flag
from medley.tables import TITLES, Host, Model
from medley.variables import Variable

TITLE = TITLES["vllm"]
PROGRAM = "vllm"
HELP: tuple[str, ...] = ("serve", "--help=all")
# "(EngineCore pid=12) ERROR 11-21 08:01:33 [core.py:1109] ValueError: …"; each part before the error may lack
_PREFIX = re.compile(r"^(?:\(\S+ pid=\d+\) ?)?(?:ERROR [\d-]+ [\d:]+ \[[^\]]+\] ?)?")
_ERROR = re.compile(r"^(?:[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*|vllm.*: error: .*)")
# It says so after 10 seconds, 30, 70 and so on.
_UNPLACED = "Waiting for creating a placement group of specs for 30 seconds"
# What vLLM's parent processes raise when a child died: true, and no reason.
_EMPTY = (
    "See root cause above",
    "See stack trace for root cause",
    "Engine core initialization failed",
    "died unexpectedly",
    "EngineDeadError",
)


def words(binary: Path, serving: Serving, _: Plan) -> tuple[str, ...]:
    """`vllm serve`, before any flag."""
    return (str(binary / PROGRAM), "serve", serving.target)


def variables(serving: Serving, plan: Plan, host: Host) -> Iterator[Variable]:
    """What no flag says, or would say to every user of the host."""
    if host.device == "cpu":
        yield from _on_cpu(plan)
    if plan.launcher == "ray" and plan.replicas > 1:
        yield from _replicas_over_ray(plan)
    if plan.partition:
        yield Variable(VARIABLE["vllm"], plan.partition, "layers of each stage, in the order of ranks")
    yield Variable("VLLM_NO_USAGE_STATS", "1", "vLLM reports usage to its makers unless told not to")
    if serving.key:
        why = "requests must give this key; as a flag every user of this host could read it"
        yield Variable("VLLM_API_KEY", str(serving.key), why, secret=True)


def _replicas_over_ray(plan: Plan) -> Iterator[Variable]:
    """On the hosts that the plan chose; slots that take no part are held, so each host's are all taken."""
    hosts = ",".join(dict.fromkeys(plan.places))
    yield Variable("VLLM_RAY_DP_PLACEMENT_NODE_IPS", hosts, "the hosts that the plan chose")
    yield Variable("VLLM_RAY_DP_PACK_STRATEGY", "fill", "each host has as many replicas as it has slots")


def _on_cpu(plan: Plan) -> Iterator[Variable]:
    if plan.stages > 1 and plan.eager:
        yield Variable(
            "TORCHDYNAMO_DISABLE", "1", "else tracing holds up the first answer, and gains nothing"
        )
    if plan.launcher == "mp" or (plan.launcher == "solo" and plan.tensor_parallel * plan.stages > 1):
        why = "vLLM would bind each rank to a NUMA node of its own, which few hosts have"
        yield Variable("VLLM_CPU_OMP_THREADS_BIND", "nobind", why)


def flags(serving: Serving, plan: Plan, host: Host, model: Model | None) -> Iterator[Flag]:
    """Everything we tell vLLM, each with its reason."""
    yield Flag(("--served-model-name",), serving.name, "the name that requests give")
    yield from _listening(serving, plan)
    yield from _ranks(plan)
    yield from _hosts(plan)
    yield from _memory(plan, host)
    yield from _compilation(plan, host)
    yield from _parsers(model, plan)
    yield from needed(plan)
    yield from pairs(model.args.get("vllm", ()) if model else ())


def _listening(serving: Serving, plan: Plan) -> Iterator[Flag]:
    if plan.nodes and plan.nodes.rank:
        yield Flag(("--headless",), None, "the first host has the API")
        return
    yield Flag(("--host",), serving.address, "where it listens")
    yield Flag(("--port",), str(serving.port), "where it listens")


def _ranks(plan: Plan) -> Iterator[Flag]:
    if plan.tensor_parallel > 1:
        size = str(plan.tensor_parallel)
        yield Flag(("--tensor-parallel-size", "-tp"), size, "so many ranks share each layer")
    if plan.expert_parallel:
        yield Flag(("--enable-expert-parallel", "-ep"), None, "experts stay whole, each on one rank")
    if plan.balanced:
        yield Flag(("--enable-eplb",), None, "busy experts are moved to ranks that are not")
    if plan.launcher == "ray" and plan.replicas == 1:
        yield Flag(("--distributed-executor-backend",), "ray", "the ranks are on several hosts")
    if plan.stages > 1:
        yield Flag(
            ("--pipeline-parallel-size", "-pp"), str(plan.stages), "so many stages, each of some layers"
        )


def _hosts(plan: Plan) -> Iterator[Flag]:
    """Which part of the model runs in this process, where each host has one."""
    if plan.replicas > 1:
        yield from _replicas(plan)
    elif plan.nodes:
        why = "started on each host by itself, without Ray"
        yield Flag(("--distributed-executor-backend",), "mp", why)
        yield Flag(("--nnodes", "-n"), str(plan.nodes.count), why)
        yield Flag(("--node-rank", "-r"), str(plan.nodes.rank), "this host's place among them")
        yield Flag(("--master-addr",), plan.nodes.address, "where the ranks find each other: the first host")
        yield Flag(("--master-port",), str(plan.nodes.port), "the same")


def _replicas(plan: Plan) -> Iterator[Flag]:
    why = "engines side by side, each with the whole model, behind one address"
    yield Flag(("--data-parallel-size", "-dp"), str(plan.replicas), why)
    if plan.launcher == "ray":
        yield Flag(("--data-parallel-backend", "-dpb"), "ray", "Ray starts those on other hosts")
    if plan.launcher != "solo":
        yield Flag(("--data-parallel-size-local", "-dpl"), str(plan.replicas_here), "of these on this host")
    if plan.nodes:
        yield Flag(("--data-parallel-address", "-dpa"), plan.nodes.address, "where the others find the first")
        yield Flag(("--data-parallel-rpc-port", "-dpp"), str(plan.nodes.port), "the same")
    if plan.nodes and plan.nodes.rank:
        before = str(plan.replicas_before)
        yield Flag(("--data-parallel-start-rank", "-dpr"), before, "so many are on the hosts before")
    else:
        yield Flag(("--api-server-count", "-asc"), "1", "one process answers for all; each takes half a GiB")


def _parsers(model: Model | None, plan: Plan) -> Iterator[Flag]:
    """The tables' words are vLLM's own."""
    if model and model.tool_parser and model.tool_parser not in plan.unread:
        yield Flag(("--enable-auto-tool-choice",), None, "the model may call tools by itself")
        yield Flag(("--tool-call-parser",), model.tool_parser, "how this model calls them")
    if model and model.reasoning_parser and model.reasoning_parser not in plan.unread:
        yield Flag(("--reasoning-parser",), model.reasoning_parser, "how this model thinks aloud")


def _memory(plan: Plan, host: Host) -> Iterator[Flag]:
    if plan.kv_cache_bytes is not None:
        why = (
            "on CPU vLLM would take 92 % of the host's memory"
            if host.device == "cpu"
            else "the plan's number, the same on each rank"
        )
        yield Flag(("--kv-cache-memory-bytes",), str(plan.kv_cache_bytes), why)
    if plan.memory_utilization is not None:
        why = "what every rank's GPU has free, and no more than its kind of host bears"
        yield Flag(("--gpu-memory-utilization",), f"{plan.memory_utilization:.2f}", why)
    if plan.kv_type != "auto":
        yield Flag(("--kv-cache-dtype",), plan.kv_type, "as asked: half the KV cache of 16 bits")
    if plan.sequences is not None:
        why = "at once; the plan's memory counts on it, and --concurrency raises it"
        yield Flag(("--max-num-seqs",), str(plan.sequences), why)
    if plan.batch_tokens is not None:
        why = "in one pass; the plan's memory counts on it"
        yield Flag(("--max-num-batched-tokens",), str(plan.batch_tokens), why)
    if plan.context is not None or plan.sequences is not None:
        why = "as asked" if plan.context else "the longest that fits the memory, up to the model's own"
        longest = "auto" if plan.finds_longest else plan.longest
        yield Flag(("--max-model-len",), str(plan.context or longest), why)


def _compilation(plan: Plan, host: Host) -> Iterator[Flag]:
    if not plan.eager:
        return
    why = "compiling would cost more than it gains, or cannot be done"
    if host.device == "cpu" and plan.stages > 1:
        # Eager mode skips the warm-up that makes a stage's buffers: the first request would kill the engine.
        yield Flag(("-cc.mode",), "2", f"{why}; a pipeline on CPU still needs the warm-up")
        yield Flag(("-cc.backend",), "eager", "traces once, compiles nothing")
    else:
        yield Flag(("--enforce-eager",), None, why)


def fatal(line: str) -> bool:
    """Whether a line says that the engine is lost, though its process goes on.

    A rank that is gone leaves vLLM's head waiting for its next answer, with /health at 200, for minutes (vLLM
    0.32.0, RayExecutorV2). It waits half an hour for a slot that was free when it was started: its host went
    away before the rank was placed.
    """
    return ("RayWorkerProc" in line and "died unexpectedly" in line) or _UNPLACED in line


def last_error(lines: Sequence[str]) -> str | None:
    """The last error in the output that gives a reason; None where there is none."""
    return last_reason(lines, _PREFIX, _ERROR, _EMPTY)
