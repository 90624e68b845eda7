"""vLLM: its command line, and where in its output the reason of a failure stands.

Flags as of vLLM 0.32.0 (`vllm serve --help=all`).
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from medley.engine import Serving
from medley.plan import Plan
from medley.reasoned import Flag
from medley.tables import Host, Model
from medley.variables import Variable

# "(EngineCore pid=12) ERROR 11-21 08:01:33 [core.py:1109] ValueError: …"; each part before the error may lack
_PREFIX = re.compile(r"^(?:\(\S+ pid=\d+\) ?)?(?:ERROR [\d-]+ [\d:]+ \[[^\]]+\] ?)?")
_ERROR = re.compile(r"^(?:[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*|vllm.*: error: .*)")
# What vLLM's parent processes raise when a child died: true, and no reason.
_EMPTY = (
    "See root cause above",
    "See stack trace for root cause",
    "Engine core initialization failed",
    "died unexpectedly",
    "EngineDeadError",
)


def words(binary: Path, serving: Serving) -> tuple[str, ...]:
    """`vllm serve`, before any flag."""
    return (str(binary / "vllm"), "serve", serving.target)


def variables(serving: Serving) -> Iterator[Variable]:
    """What it is told where an argument would be seen by every user of the host."""
    if serving.key:
        why = "requests must give this key; as a flag every user of this host could read it"
        yield Variable("VLLM_API_KEY", str(serving.key), why, secret=True)


def flags(serving: Serving, plan: Plan, host: Host, model: Model | None) -> Iterator[Flag]:
    """Everything we tell vLLM, each with its reason."""
    yield Flag(("--served-model-name",), serving.name, "the name that requests give")
    yield Flag(("--host",), serving.address, "where it listens")
    yield Flag(("--port",), str(serving.port), "where it listens")
    yield from _ranks(plan)
    yield from _memory(plan, host)
    yield from _compilation(plan, host)
    yield from _pairs(model.vllm_args if model else ())


def _ranks(plan: Plan) -> Iterator[Flag]:
    if plan.tensor_parallel > 1:
        size = str(plan.tensor_parallel)
        yield Flag(("--tensor-parallel-size", "-tp"), size, "so many ranks share each layer")
    if plan.expert_parallel:
        yield Flag(("--enable-expert-parallel", "-ep"), None, "experts stay whole, each on one rank")
    if plan.over_ray:
        yield Flag(("--distributed-executor-backend",), "ray", "the ranks are on several hosts")
    if plan.stages > 1:
        yield Flag(
            ("--pipeline-parallel-size", "-pp"), str(plan.stages), "so many stages, each of some layers"
        )


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
    if plan.sequences is not None:
        why = "at once; the plan's memory counts on it, and --concurrency raises it"
        yield Flag(("--max-num-seqs",), str(plan.sequences), why)
    if plan.batch_tokens is not None:
        why = "in one pass; the plan's memory counts on it"
        yield Flag(("--max-num-batched-tokens",), str(plan.batch_tokens), why)
    if plan.context is not None or plan.sequences is not None:
        why = "as asked" if plan.context else "the longest that fits the memory, up to the model's own"
        yield Flag(("--max-model-len",), str(plan.context or "auto"), why)


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


def _pairs(words: tuple[str, ...]) -> Iterator[Flag]:
    """A model's own flags, `--name value` or `--name` alone."""
    at = 0
    while at < len(words):
        has_value = at + 1 < len(words) and not words[at + 1].startswith("-")
        yield Flag((words[at],), words[at + 1] if has_value else None, "its table in models/ says so")
        at += 2 if has_value else 1


def fatal(line: str) -> bool:
    """Whether a line says that the engine is lost, though its process goes on.

    A rank that is gone leaves vLLM's head waiting for its next answer, with /health at 200, for minutes (vLLM
    0.32.0, RayExecutorV2).
    """
    return "RayWorkerProc" in line and "died unexpectedly" in line


def last_error(lines: Sequence[str]) -> str | None:
    """The last error in the output that gives a reason; None where there is none."""
    bare = (_PREFIX.sub("", line).strip() for line in lines)
    errors = [line for line in bare if _ERROR.match(line)]
    reasons = [line for line in errors if not any(empty in line for empty in _EMPTY)]
    return next(reversed(reasons or errors), None)
