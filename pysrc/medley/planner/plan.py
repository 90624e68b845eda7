"""Plan the settings of an engine: the chosen layout as numbers, each with its reason.

FlashInfer compiles the kernels of a model's experts after the weights are loaded. It calls ninja, which
starts a job for each core and two more unless MAX_JOBS says otherwise. Each job takes 3 to 8 GiB (flashinfer
issue 3634, pull requests 3636, 3665, 3899): the 22 jobs of a DGX Spark exhaust the memory that it shares with
its GPU.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from medley.environment.engine_source import parse_version
from medley.errors import Problem
from medley.host.facts import GIB, Facts
from medley.host_schema import ENGINE_TABLES
from medley.model.chat_format import ChatFormat
from medley.planner import (
    Layout,
    count_parallel_sizes,
    format_layers,
    list_devices,
    list_hosts,
    list_pipelines,
    runs_on_cpu,
)
from medley.planner.choose import Choice
from medley.planner.context import compute_safe_context
from medley.planner.cpu import choose_compilation, count_cache_streams
from medley.planner.fit import Fit, Rank, format_gib
from medley.planner.kinds import is_unified
from medley.planner.memory import DEFAULT_SEQUENCES, compute_utilization, is_recurrent
from medley.schema import DEFAULT_ENGINE, TITLES, EngineName, Model, Shape
from medley.values import Value

START_LIMIT_S = 1800
# FlashInfer 0.7.2 compiles 85 files for the experts of 12.x (fused_moe_120), and fewer for other GPUs.
# Two files of its FP4 kernels took 137 s on two cores, with nvcc 13.0.
_EXPERT_FILES, _SECONDS_PER_FILE = 85, 140
_EXPERTS_JOB_BYTES = 8 * GIB
_SYSTEM_BYTES = 16 * GIB
# An attention kernel is small, but it is compiled once the KV cache has taken what it may.
_ATTENTION_JOB_BYTES = 3 * GIB
# A CPU's memory is the host's: the cache takes no more of it than this, however much could be had.
_CPU_KV_DIVISOR = 4
_MIB = 1 << 20
_FP8_BITS = 8
_FLOAT32_BITS = 32

Launcher = Literal["solo", "ray", "mp"]
KvType = Literal["auto", "fp8"]
Arguments = tuple[tuple[tuple[str, ...], str], ...]
"""Flags, and why they are given."""
Variables = tuple[tuple[str, str, str], ...]
"""Names, values, and why they are set."""


class NodeProcess(Value):
    """One process of a model that starts without Ray, one on each host, and the address of the first."""

    node_count: int
    rank: int
    """The number of this process; process 0 has the API."""
    address: str
    """The address at which the others find the first process."""
    port: int
    own_address: str = ""
    """The address of this process in the same network."""


class Plan(Value):
    """The settings of one engine; None leaves a setting to the engine."""

    gpus: tuple[int, ...] = ()
    """The GPU indexes to use. Empty: all, or none on a CPU. Set only if everything runs on this host."""
    tensor_parallel: int = 1
    stages: int = 1
    layer_partition: str | None = None
    """Layers of each stage in order of ranks."""
    expert_parallel: bool = False
    balances_experts: bool = False
    """Whether the load balancer moves busy experts to idle ranks (EPLB)."""
    launcher: Launcher = "solo"
    """The program that starts the ranks: Ray, or an engine process on each host; solo: one host has all."""
    hosts: int = 1
    rank_addresses: tuple[str, ...] = ()
    """The address of each rank's host, in the order of ranks; only for `ray`."""
    node_process: NodeProcess | None = None
    """The number of this process and the address of the first; only for `mp`."""
    replicas: int = 1
    """Data parallel: engines in parallel behind one address, each with all of the above."""
    replicas_here: int = 1
    """The replicas on this host."""
    replicas_before: int = 0
    """The replicas on the hosts before this one."""
    kv_cache_bytes: int | None = None
    kv_cache_tokens: int | None = None
    """The KV cache in tokens, as the rank with the largest tokens holds them."""
    kv_type: KvType = "auto"
    memory_utilization: float | None = None
    """The share of a GPU's memory that the engine may take."""
    static_share: float | None = None
    """The share of a GPU's memory for weights and KV cache only."""
    threads: int = 1
    """CPU threads of the host with the fewest, if CPUs run the model."""
    context: int | None = None
    """Tokens of the longest sequence; None: the longest that fits."""
    is_beyond_config: bool = False
    """Whether `context` is longer than config.json gives."""
    longest_context: int | None = None
    """A context length in tokens that surely fits."""
    finds_longest: bool = True
    """Whether the engine finds the longest context by itself."""
    sequences: int | None = None
    batch_tokens: int | None = None
    dtype: Literal["float32"] | None = None
    """The numbers that the engine computes with; None: those of the model's config.json."""
    state_count: int | None = None
    """The number of recurrent states of all sequences, if the engine needs it."""
    is_eager: bool = False
    arguments: Arguments = ()
    variables: Variables = ()
    missing_parsers: tuple[str, ...] = ()
    """Parsers of the model that this version of the engine does not have."""
    compile_jobs: int | None = None
    """Concurrent compilers on a host while the engine starts; None on a CPU, or if unknown."""
    start_limit_s: int = START_LIMIT_S
    """Seconds until the engine must be ready, also at a first start that compiles the kernels of experts."""
    why: tuple[str, ...] = ()
    """A sentence for each decision."""


def plan_engine(
    choice: Choice,
    facts: Mapping[str, Facts],
    model: Model | None = None,
    *,
    context: int | None = None,
    launcher: Launcher = "solo",
    arguments: Arguments = (),
    variables: Variables = (),
    cache_in_bytes: bool = False,
    engine: EngineName = DEFAULT_ENGINE,
    flags: tuple[str, ...] = (),
) -> Plan:
    """Return how an engine runs this choice.

    `facts`: of its hosts; `context`: the user's, in tokens; `flags`: the user's own for the engine;
    `cache_in_bytes`: the engine gets the size of its KV cache even if a share of memory is enough.
    """
    shape, layout, fit, is_cpu = choice.workload.shape, choice.layout, choice.fit, runs_on_cpu(choice.layout)
    plan_without_fit = plan_without_shape(
        layout, facts, model, launcher=launcher, options=EngineOptions(engine=engine, flags=flags)
    )
    is_in_bytes = cache_in_bytes or not fit.utilization_does
    compile_jobs = None if is_cpu else compute_compile_jobs(fit.ranks, facts)
    cache_bytes, reason = _choose_gpu_cache(fit, is_in_bytes)
    if is_cpu:
        cache_bytes, reason = _choose_cpu_cache(choice, _compute_cpu_share(layout, facts), context)
    compile_s = 0
    if compile_jobs and shape.experts:
        compile_s = _EXPERT_FILES * _SECONDS_PER_FILE // compile_jobs
    return plan_without_fit.replace(
        layer_partition=format_layers(layout) if len(layout.stages) > 1 else None,
        expert_parallel=layout.expert_parallel,
        kv_cache_bytes=cache_bytes,
        kv_cache_tokens=_count_cache_tokens(choice, cache_bytes or fit.kv_cache_bytes),
        kv_type="fp8" if shape.kv_bits == _FP8_BITS else "auto",
        memory_utilization=None if is_cpu else fit.utilization,
        static_share=None if is_cpu else _compute_static_share(fit),
        context=context,
        is_beyond_config=choice.workload.is_beyond_config,
        longest_context=compute_safe_context(shape, fit.context),
        sequences=fit.sequences,
        batch_tokens=_choose_batch_tokens(fit, shape, plan_without_fit.batch_tokens),
        dtype="float32" if shape.compute_bits == _FLOAT32_BITS else None,
        state_count=fit.sequences * copies if (copies := shape.state_copies.most) > 1 else None,
        arguments=arguments,
        variables=variables,
        compile_jobs=compile_jobs,
        start_limit_s=START_LIMIT_S + compile_s,
        why=(*choice.why, *choice.warnings, reason, *plan_without_fit.why),
    )


class EngineOptions(Value):
    """The user's options for an engine, which hold with and without a plan."""

    context: int | None = None
    """Tokens of a stream; None: the engine's default."""
    concurrency: int = 1
    kv_type: KvType = "auto"
    balances_experts: bool = False
    """Whether the user gave --eplb."""
    engine: EngineName = DEFAULT_ENGINE
    flags: tuple[str, ...] = ()
    """The engine's own flags."""


def plan_without_shape(
    layout: Layout,
    facts: Mapping[str, Facts],
    model: Model | None = None,
    *,
    launcher: Launcher = "solo",
    options: EngineOptions | None = None,
) -> Plan:
    """Return the plan of a model whose shape is unknown, from the user's options; it may not fit."""
    options = options or EngineOptions()
    tensor_parallel, stages, replicas = count_parallel_sizes(layout)
    hosts = list_hosts(layout)
    is_cpu = runs_on_cpu(layout)
    compilation = choose_compilation(layout, facts, model, options.engine, options.flags)
    gpus = [device.index for device in list_devices(layout)] if launcher == "solo" and not is_cpu else []
    engine_plan = Plan(
        gpus=tuple(gpus),
        tensor_parallel=tensor_parallel,
        stages=stages,
        launcher=launcher,
        hosts=len(hosts),
        replicas=replicas,
        kv_cache_bytes=_compute_cpu_share(layout, facts) if is_cpu else None,
        memory_utilization=(None if is_cpu else compute_utilization(list_devices(layout))) or None,
        threads=min(facts[host].cpu.threads for host in hosts) if is_cpu else 1,
        context=options.context,
        kv_type=options.kv_type,
        # One stream fits into any engine's own limit.
        sequences=max(DEFAULT_SEQUENCES, options.concurrency) if options.concurrency > 1 else None,
        batch_tokens=compilation.warmup_tokens,
        is_eager=compilation.is_eager,
        why=compilation.why,
    )
    return balance_experts(engine_plan, None) if options.balances_experts else engine_plan


def adapt_to_version(engine_plan: Plan, engine: EngineName, version: str | None, chat: ChatFormat) -> Plan:
    """Return the plan for an engine of this version, which may be older than the one in medley's locks."""
    release, table, title = parse_version(version or "")[:3], ENGINE_TABLES[engine], TITLES[engine]
    if not release:
        return engine_plan
    parsers, since = (chat.tool_parser, chat.reasoning_parser), table.parsers_since
    unread = [
        name for name in dict.fromkeys(parsers) if name and release < parse_version(since.get(name, ""))
    ]
    why = [f"{title} {version} has no parser {name}: what it would read stays text" for name in unread]
    finds_longest = release >= parse_version(table.auto_context_since)
    if not finds_longest and engine_plan.longest_context and not engine_plan.context:
        reason = f"{title} {version} does not find the longest by itself"
        why.append(f"a context of {engine_plan.longest_context} tokens: {reason}")
        engine_plan = engine_plan.replace(finds_longest=False)
    return engine_plan.replace(missing_parsers=tuple(unread), why=(*engine_plan.why, *why))


def balance_experts(engine_plan: Plan, experts: int | None) -> Plan:
    """Add the load balancer, with whole experts on each rank; raise a Problem if there is nothing to balance.

    `experts`: the experts of a layer; None if the shape is unknown.
    """
    ranks = engine_plan.tensor_parallel * engine_plan.replicas
    if experts == 0 or ranks == 1:
        raise Problem(
            "there are no experts to balance",
            cause="this model has none" if experts == 0 else "all of them are on one rank",
            fix="leave --eplb out" if experts == 0 else "--tp 2, or more: experts are spread over ranks",
        )
    count = "the" if experts is None else experts
    why = f"--eplb, as asked: {count} experts of a layer, whole, over {ranks} ranks"
    return engine_plan.replace(expert_parallel=True, balances_experts=True, why=(*engine_plan.why, why))


def compute_compile_jobs(ranks: Sequence[Rank], facts: Mapping[str, Facts]) -> int:
    """Return MAX_JOBS for all hosts of these ranks: the number of the host with the fewest, at least 1."""
    bounds = []
    for host in {rank.device.host for rank in ranks}:
        # A GPU with its own memory takes none of the host's.
        shared = [rank for rank in ranks if rank.device.host == host and is_unified(rank.device.kind)]
        free = facts[host].memory.available_bytes
        bounds += [
            (free - sum(rank.weights_bytes for rank in shared) - _SYSTEM_BYTES) // _EXPERTS_JOB_BYTES,
            (free - sum(rank.device.memory_bytes for rank in shared)) // _ATTENTION_JOB_BYTES,
            facts[host].cpu.threads,
        ]
    return max(1, min(bounds, default=1))


def _choose_batch_tokens(fit: Fit, shape: Shape, warmup_tokens: int | None) -> int:
    """Return the tokens of a batch: few if a warm-up has all of them, but one for each sequence at least."""
    if warmup_tokens is None or is_recurrent(shape):
        return fit.batch_tokens
    return max(fit.sequences, min(warmup_tokens, fit.batch_tokens))


def _count_cache_tokens(choice: Choice, cache_bytes: int | None) -> int | None:
    """Return the tokens that the rank with the largest cache holds in so many bytes, without its states.

    They are never fewer than requested: the states of all sequences may need more than there is, but SGLang
    runs only as many sequences as have a state.
    """
    fit, workload = choice.fit, choice.workload
    token_bytes = max((rank.need.token_bytes + rank.need.windowed_bytes for rank in fit.ranks), default=0)
    if not cache_bytes or not token_bytes:
        return None
    states_bytes = max(rank.need.state_bytes for rank in fit.ranks) * fit.sequences
    streams = -(-workload.load.concurrency // len(list_pipelines(choice.layout)))
    return max(streams * workload.context, (cache_bytes - states_bytes) // token_bytes)


def _compute_static_share(fit: Fit) -> float | None:
    """Return the share that every rank may take, less the engine's memory besides weights and KV cache."""
    if fit.utilization is None:
        return None
    parts = [rank.overhead_bytes / (rank.device.total_bytes or 1) for rank in fit.ranks]
    return max(0.01, math.floor((fit.utilization - max(parts)) * 100) / 100)


def _choose_gpu_cache(fit: Fit, is_in_bytes: bool) -> tuple[int | None, str]:  # noqa: FBT001 - computed by its caller
    """Return the KV cache of each rank and the reason; None if a share of its memory is enough."""
    if not is_in_bytes:
        why = f"{fit.utilization:.0%} of each GPU's memory: weights, engine, and KV cache with the rest"
        return None, why
    size = format_gib(fit.kv_cache_bytes or 0)
    return fit.kv_cache_bytes, f"KV cache {size} GiB on each rank: all that the tightest has left"


def _compute_cpu_share(layout: Layout, facts: Mapping[str, Facts]) -> int:
    """Return the KV cache in bytes that every host has as its share of available memory."""
    return min(facts[host].memory.available_bytes for host in list_hosts(layout)) // _CPU_KV_DIVISOR


def _choose_cpu_cache(choice: Choice, share_bytes: int, context: int | None) -> tuple[int, str]:
    """Return the KV cache of each rank and the reason: at least the requested size, at most the share."""
    fit, longest = choice.fit, context or choice.workload.shape.context
    streams = min(fit.sequences, max(choice.workload.load.concurrency, count_cache_streams(choice.layout)))
    useful_bytes = max(rank.need.compute_kv_bytes(longest, streams) for rank in fit.ranks)
    requested_bytes = max(rank.kv_bytes for rank in fit.ranks)
    cache_bytes = max(requested_bytes, min(share_bytes, useful_bytes, fit.kv_cache_bytes or 0))
    reasons = {
        requested_bytes: "what was asked for needs no less",
        share_bytes: f"a quarter of the {format_gib(_CPU_KV_DIVISOR * share_bytes)} GiB available",
        useful_bytes: f"{streams} streams of {longest} tokens need no more; --concurrency raises it",
    }
    why = reasons.get(cache_bytes, "all that the tightest host has left")
    return -(-cache_bytes // _MIB) * _MIB, f"KV cache {cache_bytes / GIB:.2f} GiB on each rank: {why}"
