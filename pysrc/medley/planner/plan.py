"""What an engine runs with: the chosen layout as numbers, each with its reason.

FlashInfer compiles the kernels of a model's experts after the weights are loaded. It calls ninja, which
starts a job for each core and two more unless MAX_JOBS says otherwise. Each job takes 3 to 8 GiB (flashinfer
issue 3634, pull requests 3636, 3665, 3899): the 22 jobs of a DGX Spark exhaust the memory that it shares with
its GPU.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from medley.errors import Problem
from medley.host.facts import GIB, Facts
from medley.model.chat_format import ChatFormat
from medley.planner import Layout, devices_of, hosts_of, layers, on_cpu, sizes
from medley.planner.choose import Choice
from medley.planner.cpu import cache_streams, compilation
from medley.planner.fit import Fit, Rank, gib, utilization
from medley.planner.kinds import is_unified
from medley.planner.memory import SEQUENCES, recurs
from medley.schema import EngineName, Model, Shape

START_LIMIT_S = 1800
# FlashInfer 0.7.2 compiles 85 files for the experts of 12.x (fused_moe_120), and fewer for other GPUs.
# Two files of its FP4 kernels took 137 s on two cores, with nvcc 13.0.
_EXPERTS_FILES, _FILE_S = 85, 140
_EXPERTS_JOB = 8 * GIB
_SYSTEM = 16 * GIB
# An attention kernel is small, but it is compiled once the KV cache has taken what it may.
_ATTENTION_JOB = 3 * GIB
# A CPU's memory is the host's: the cache takes no more of it than this, however much could be had.
_CPU_KV_SHARE = 4
_MIB = 1 << 20
_FP8_BITS = 8
_FLOAT32_BITS = 32
# vllm-project/vllm pull request 29431.
_AUTO_SINCE = (0, 14)
# The first vLLM with each parser, where images with an older one are about: vllm-project/recipes issue 51 and
# pull request 83, zai-org/GLM-4.5 pull request 5, vllm-project/vllm pull request 36393.
_PARSER_SINCE: Mapping[str, tuple[int, ...]] = {
    "glm45": (0, 10, 1),
    "qwen3_coder": (0, 10, 1),
    "openai": (0, 10, 2),
    "nemotron_v3": (0, 18),
}

Launcher = Literal["solo", "ray", "mp"]
KvType = Literal["auto", "fp8"]
Arguments = tuple[tuple[tuple[str, ...], str], ...]
"""Flags, and why they are given."""
Variables = tuple[tuple[str, str, str], ...]
"""Names, values, and why they are set."""


@dataclass(frozen=True)
class Nodes:
    """The processes of a model that is started without Ray, one on each host, as one of them sees it."""

    count: int
    rank: int
    """Of this one; the first has the API."""
    address: str
    """Of the first, where the others find it."""
    port: int
    here: str = ""
    """This one's own, on the same wire."""


@dataclass(frozen=True)
class Plan:
    """What one engine is told; None leaves it to the engine. `why` has a sentence for each decision."""

    gpus: tuple[int, ...] = ()
    """Of this host, where it runs here alone; empty: all there are, or none."""
    tensor_parallel: int = 1
    stages: int = 1
    partition: str | None = None
    """Layers of each stage in order of ranks."""
    expert_parallel: bool = False
    balanced: bool = False
    """The load balancer moves experts that are busy to ranks that are not (EPLB)."""
    launcher: Launcher = "solo"
    """What starts its ranks: Ray, or a process of the engine's own on each host; solo: all are on one."""
    hosts: int = 1
    places: tuple[str, ...] = ()
    """With `ray`, the address of each rank's host, in order of ranks."""
    nodes: Nodes | None = None
    """With `mp`, which of its processes this one is."""
    replicas: int = 1
    """Data parallel: engines side by side behind one address, each with all of the above."""
    replicas_here: int = 1
    """Of these on this host; `replicas_before`: on the hosts before it."""
    replicas_before: int = 0
    kv_cache_bytes: int | None = None
    kv_cache_tokens: int | None = None
    """The same in tokens, as the rank with the fewest holds them."""
    kv_type: KvType = "auto"
    memory_utilization: float | None = None
    """Share of a GPU's memory that the engine may take."""
    static_share: float | None = None
    """The part of it for weights and KV cache alone."""
    threads: int = 1
    """Of the host's CPU, where that runs the model: the fewest of all hosts."""
    context: int | None = None
    """Tokens of the longest sequence; None: the longest that fits."""
    beyond_config: bool = False
    """Whether that is more than config.json gives."""
    longest: int | None = None
    """How long that is, so that it surely fits."""
    finds_longest: bool = True
    """Whether the engine finds it by itself."""
    sequences: int | None = None
    batch_tokens: int | None = None
    dtype: Literal["float32"] | None = None
    """The numbers that it computes with; None: those of the model's config.json."""
    states: int | None = None
    """Recurrent states of all sequences, where the engine must be given their number."""
    eager: bool = False
    arguments: Arguments = ()
    variables: Variables = ()
    unread: tuple[str, ...] = ()
    """Parsers of the model that this version of the engine does not have."""
    compile_jobs: int | None = None
    """Compilers that may run at once on a host while the engine starts; None on a CPU, or where unknown."""
    start_limit_s: int = START_LIMIT_S
    """Seconds until it must be ready, at a first start that compiles the kernels of experts, too."""
    why: tuple[str, ...] = ()


def plan(
    choice: Choice,
    facts: Mapping[str, Facts],
    model: Model | None = None,
    *,
    context: int | None = None,
    launcher: Launcher = "solo",
    arguments: Arguments = (),
    variables: Variables = (),
    cache_in_bytes: bool = False,
    engine: EngineName = "vllm",
    flags: tuple[str, ...] = (),
) -> Plan:
    """How an engine runs this choice; `facts`: its hosts', `context`: as asked for, `flags`: the user's own.

    `cache_in_bytes`: the engine gets the size of its KV cache, even where a share of memory says the same.
    """
    shape, layout, fit, cpu = choice.work.shape, choice.layout, choice.fit, on_cpu(choice.layout)
    bare = unplanned(layout, facts, model, launcher=launcher, asked=Asked(engine=engine, flags=flags))
    in_bytes = cache_in_bytes or not fit.utilization_does
    jobs = None if cpu else compile_jobs(fit.ranks, facts)
    cached, reason = (
        _cpu_cache(choice, _cpu_share(layout, facts), context) if cpu else _gpu_cache(fit, in_bytes)
    )
    return replace(
        bare,
        partition=layers(layout) if len(layout.stages) > 1 else None,
        expert_parallel=layout.expert_parallel,
        kv_cache_bytes=cached,
        kv_cache_tokens=_tokens(choice, cached or fit.kv_cache_bytes),
        kv_type="fp8" if shape.kv_bits == _FP8_BITS else "auto",
        memory_utilization=None if cpu else fit.utilization,
        static_share=None if cpu else _static_share(fit),
        context=context,
        beyond_config=choice.work.beyond_config,
        # The engine's own memory is an estimate, and it refuses too long a context.
        longest=shape.context if fit.context >= shape.context else fit.context * 7 // 8,
        sequences=fit.sequences,
        batch_tokens=_batch_tokens(fit, shape, bare.batch_tokens),
        dtype="float32" if shape.compute_bits == _FLOAT32_BITS else None,
        states=fit.sequences * copies if (copies := shape.state_copies.most) > 1 else None,
        arguments=arguments,
        variables=variables,
        compile_jobs=jobs,
        start_limit_s=START_LIMIT_S + (_EXPERTS_FILES * _FILE_S // jobs if jobs and shape.experts else 0),
        why=(*choice.why, *choice.warnings, reason, *bare.why),
    )


@dataclass(frozen=True)
class Asked:
    """What a user asked of an engine; it reaches the engine with and without a plan."""

    context: int | None = None
    """Tokens of a stream; None: the engine's default."""
    concurrency: int = 1
    kv_type: KvType = "auto"
    balanced: bool = False
    """--eplb."""
    engine: EngineName = "vllm"
    flags: tuple[str, ...] = ()
    """The engine's own flags."""


def unplanned(
    layout: Layout,
    facts: Mapping[str, Facts],
    model: Model | None = None,
    *,
    launcher: Launcher = "solo",
    asked: Asked | None = None,
) -> Plan:
    """Return the ranks of a model whose shape is unknown, with what was asked; nothing is checked to fit."""
    asked = asked or Asked()
    (tensor, stages, replicas), hosts, cpu = sizes(layout), hosts_of(layout), on_cpu(layout)
    compiled = compilation(layout, facts, model, asked.engine, asked.flags)
    found = Plan(
        gpus=tuple(device.index for device in devices_of(layout)) if launcher == "solo" and not cpu else (),
        tensor_parallel=tensor,
        stages=stages,
        launcher=launcher,
        hosts=len(hosts),
        replicas=replicas,
        kv_cache_bytes=_cpu_share(layout, facts) if cpu else None,
        memory_utilization=(None if cpu else utilization(devices_of(layout))) or None,
        threads=min(facts[host].cpu.threads for host in hosts) if cpu else 1,
        context=asked.context,
        kv_type=asked.kv_type,
        # One stream fits into any engine's own limit.
        sequences=max(SEQUENCES, asked.concurrency) if asked.concurrency > 1 else None,
        batch_tokens=compiled.warmup_tokens,
        eager=compiled.eager,
        why=compiled.why,
    )
    return balanced(found, None) if asked.balanced else found


def understood(plan: Plan, engine: EngineName, version: str | None, chat: ChatFormat) -> Plan:
    """The same for an engine of this version, which may be older than the one that our locks have."""
    known = tuple(int(part) for part in re.findall(r"\d+", version or "")[:3])
    if engine != "vllm" or not known:
        return plan
    parsers = (chat.tool_parser, chat.reasoning_parser)
    unread = [name for name in dict.fromkeys(parsers) if name and known < _PARSER_SINCE.get(name, ())]
    why = [f"vLLM {version} has no parser {name}: what it would read stays text" for name in unread]
    if known < _AUTO_SINCE and plan.longest and not plan.context:
        why.append(f"a context of {plan.longest} tokens: vLLM {version} does not find the longest by itself")
        plan = replace(plan, finds_longest=False)
    return replace(plan, unread=tuple(unread), why=(*plan.why, *why))


def balanced(plan: Plan, experts: int | None) -> Plan:
    """The same with whole experts on each rank, and the load balancer that moves them; a Problem without.

    `experts`: of a layer; None where the shape is unknown.
    """
    ranks = plan.tensor_parallel * plan.replicas
    if experts == 0 or ranks == 1:
        raise Problem(
            "there are no experts to balance",
            cause="this model has none" if experts == 0 else "all of them are on one rank",
            fix="leave --eplb out" if experts == 0 else "--tp 2, or more: experts are spread over ranks",
        )
    count = "the" if experts is None else experts
    why = f"--eplb, as asked: {count} experts of a layer, whole, over {ranks} ranks"
    return replace(plan, expert_parallel=True, balanced=True, why=(*plan.why, why))


def compile_jobs(ranks: Sequence[Rank], facts: Mapping[str, Facts]) -> int:
    """MAX_JOBS for all hosts of these ranks: that of the host which bears the fewest, at least 1."""
    bounds = []
    for host in {rank.device.host for rank in ranks}:
        # The memory of a GPU that is not shared with the host leaves the host's alone.
        shared = [rank for rank in ranks if rank.device.host == host and is_unified(rank.device.kind)]
        free = facts[host].memory.available_bytes
        bounds += [
            (free - sum(rank.weights_bytes for rank in shared) - _SYSTEM) // _EXPERTS_JOB,
            (free - sum(rank.device.memory_bytes for rank in shared)) // _ATTENTION_JOB,
            facts[host].cpu.threads,
        ]
    return max(1, min(bounds, default=1))


def _batch_tokens(fit: Fit, shape: Shape, warmup_tokens: int | None) -> int:
    """Tokens of a batch: a small one where all of it is a warm-up, but one for each sequence at least."""
    if warmup_tokens is None or recurs(shape):
        return fit.batch_tokens
    return max(fit.sequences, min(warmup_tokens, fit.batch_tokens))


def _tokens(choice: Choice, cached: int | None) -> int | None:
    """How many the rank with the largest cache holds in so many bytes, the recurrent states aside.

    Never fewer than were asked for: the states of all sequences that may run can take more than there is, and
    SGLang runs as many sequences as have a state.
    """
    fit, work = choice.fit, choice.work
    each = max((rank.need.token_bytes + rank.need.windowed_bytes for rank in fit.ranks), default=0)
    if not cached or not each:
        return None
    states = max(rank.need.state_bytes for rank in fit.ranks) * fit.sequences
    asked = -(-work.load.concurrency // (1 + len(choice.layout.replicas))) * work.context
    return max(asked, (cached - states) // each)


def _static_share(fit: Fit) -> float | None:
    """What every rank may take, less what its engine takes beside weights and KV cache."""
    if fit.utilization is None:
        return None
    parts = [rank.overhead_bytes / (rank.device.total_bytes or 1) for rank in fit.ranks]
    return max(0.01, math.floor((fit.utilization - max(parts)) * 100) / 100)


def _gpu_cache(fit: Fit, in_bytes: bool) -> tuple[int | None, str]:  # noqa: FBT001 - computed by its caller
    """Each rank's KV cache, or None where a share of its memory says the same."""
    if not in_bytes:
        why = f"{fit.utilization:.0%} of each GPU's memory: weights, engine, and KV cache with the rest"
        return None, why
    words = gib(fit.kv_cache_bytes or 0)
    return fit.kv_cache_bytes, f"KV cache {words} GiB on each rank: all that the tightest has left"


def _cpu_share(layout: Layout, facts: Mapping[str, Facts]) -> int:
    return min(facts[host].memory.available_bytes for host in hosts_of(layout)) // _CPU_KV_SHARE


def _cpu_cache(choice: Choice, share: int, context: int | None) -> tuple[int, str]:
    """Each rank's: what can be of use, or the host's share; never less than what was asked for needs."""
    fit, longest = choice.fit, context or choice.work.shape.context
    streams = min(fit.sequences, max(choice.work.load.concurrency, cache_streams(choice.layout)))
    useful = max(rank.need.kv_bytes(longest, streams) for rank in fit.ranks)
    asked = max(rank.kv_bytes for rank in fit.ranks)
    cached = max(asked, min(share, useful, fit.kv_cache_bytes or 0))
    reasons = {
        asked: "what was asked for needs no less",
        share: f"a quarter of the {gib(_CPU_KV_SHARE * share)} GiB available",
        useful: f"{streams} streams of {longest} tokens need no more; --concurrency raises it",
    }
    why = reasons.get(cached, "all that the tightest host has left")
    return -(-cached // _MIB) * _MIB, f"KV cache {cached / GIB:.2f} GiB on each rank: {why}"
