"""The chosen layout as its ranks will lie, and what idle fast ports would gain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from medley.errors import Problem
from medley.network.fabric.types import NetworkOptions, speed_text
from medley.planner import (
    Device,
    Goal,
    Layout,
    Load,
    Stage,
    by_host,
    compatibility,
    cpu,
    devices,
    devices_of,
    hosts_of,
    listed,
    named,
    on_cpu,
    pipeline,
    pipelines,
    sizes,
    topology,
)
from medley.planner.candidates import Request, Sizes
from medley.planner.choose import CONTEXT, Choice, choose, figures, score
from medley.planner.context import LONGER, limits, longest_context
from medley.planner.fit import fit, gib
from medley.planner.host_order import VARIABLE, landing
from medley.planner.memory import PipelinePosition, need
from medley.planner.partition import Workload, recut, unchecked
from medley.planner.plan import KvType, Launcher
from medley.planner.prediction import predict, timed
from medley.planner.remedies import NoLayout
from medley.planner.tight import choose_tight
from medley.planner.topology import Topology
from medley.schema import TITLES, EngineName, Shape, StateCopies

_ANY_ORDER = 2
"""Stages: the head's is the first, so there is only one order."""
_USUAL_CONTEXT = 1024
"""Tokens that a stream has behind it, on average, where nobody says."""
_WORTH = 1.05
"""Predictions that are nearer than this are equal."""


@dataclass(frozen=True)
class PlacementOptions:
    """What a user asks of a placement; None leaves it to us."""

    goal: Goal = "latency"
    concurrency: int = 1
    context: int | None = None
    sizes: Sizes = field(default_factory=Sizes)
    hosts: int | None = None
    gpus: str | None = None
    """All of these GPUs of one host: indexes, or `all`."""
    wishes: NetworkOptions = field(default_factory=NetworkOptions)
    partition: str | None = None
    """Layers of each stage, as the engine's own variable has them in the user's environment."""
    one_server: bool = False
    """Only what one server can run: replicas each on one host, and what its launcher starts."""
    engine: EngineName = "vllm"
    launcher: Launcher | None = None
    """What is to start ranks on several hosts; None: Ray, where hosts have joined."""
    kv_type: KvType = "auto"
    longer_context: bool = False
    """Whether the user's environment lets the engine serve more than config.json gives."""
    balanced: bool = False
    """Experts by expert parallel, with the load balancer."""
    dtype: str | None = None
    """The numbers to compute with, as the user's --dtype has them; None: the hosts' kind decides."""


def placement(shape: Shape, site: Topology, wanted: PlacementOptions) -> Choice:
    """The best layout, landed where Ray puts its ranks; a Problem with the numbers where none fits."""
    longest = longest_context(shape, wanted.engine)
    if wanted.context and wanted.context > longest and not wanted.longer_context:
        raise NoLayout(
            f"--context {wanted.context} is more than {TITLES[wanted.engine]} serves of this model",
            cause=limits(shape, wanted.engine),
            fix=f"--context {longest}, or less",
        )
    work, found = _workload(shape, wanted), site.devices(wanted.gpus)
    compatibility.require_host(site, wanted.engine, work.shape)
    links = site.link_of(wanted.wishes, wanted.engine)
    _require_memory(found)
    refusal = partial(_refusal, site, wanted, work.shape, len(found))
    whole = site.group_link(wanted.wishes, wanted.engine)
    request = Request(work, found, links, wanted.sizes, site.head, refusal, whole)
    chosen = _chosen(request)
    chosen = _with_dtype(shape, site, wanted, request, chosen) if on_cpu(chosen.layout) else chosen
    layout = chosen.layout
    why = [
        *chosen.why,
        *devices.reasons(site.hosts, site.measured),
        *(
            f"{host}: {gib(size)} GiB of the model's tables are in its own memory, not on its GPUs"
            for host, size in _host_tables(shape, layout).items()
        ),
        *topology.source_reasons(site.origins, hosts_of(layout)),
    ]
    # Before there is a cluster nobody knows in which order Ray takes its workers.
    if not site.order and any(len(stages) > _ANY_ORDER for stages in pipelines(layout)):
        why.append("the order of the stages after the first is Ray's choice; serve cuts the layers for it")
    warnings = [
        *chosen.warnings,
        *topology.incompatible_warnings(site.origins, hosts_of(layout)),
        *site.cabling_warnings(wanted.wishes, wanted.engine),
        *_guesses(shape, layout),
        *([_beyond(shape, wanted)] if work.beyond_config else []),
    ]
    if shape.weights != "bf16" and on_cpu(layout):
        untried = f"vLLM's kernels for {shape.weights} on a CPU were not tried; 16 bits were"
        warnings.insert(len(chosen.warnings), untried)
    cabling = site.cabling(hosts_of(layout), wanted.wishes, wanted.engine)
    chosen = replace(chosen, why=tuple(why), warnings=tuple(warnings), cabling=cabling)
    return _landed(chosen, site, wanted)


def _chosen(request: Request) -> Choice:
    try:
        return choose(request, predict)
    except NoLayout as problem:
        return choose_tight(request, problem)


def _with_dtype(
    shape: Shape, site: Topology, wanted: PlacementOptions, request: Request, chosen: Choice
) -> Choice:
    """Return the choice for the numbers that CPUs compute with: float32 by default, where it fits."""
    wide, short_bytes = cpu.is_float32(wanted.dtype), 0
    if wanted.dtype is None and cpu.wants_float32(shape, chosen.layout, site.facts):
        only = tuple(device for device in request.devices if device.kind == "cpu")
        work = _workload(cpu.in_float32(shape), wanted)
        try:
            chosen, wide = _chosen(replace(request, work=work, devices=only)), True
        except NoLayout as problem:
            rows = problem.rows.rows if problem.rows else ()
            short_bytes = min((row.fit.short_bytes for row in rows), default=0)
    reason = cpu.dtype_reason(shape, chosen.layout, site.facts, wide=wide, short_bytes=short_bytes)
    return replace(chosen, why=(*chosen.why, *([reason] if reason else [])))


def _guesses(shape: Shape, layout: Layout) -> Iterator[str]:
    """Yield a warning for each number of the shape that nobody published."""
    if shape.weights_source != "headers":
        total = {
            "index": "only their total is in model.safetensors.index.json",
            "config": "no index gives their total either",
        }[shape.weights_source]
        yield f"the weights' bytes are an estimate from config.json. Their headers were not read; {total}"
    tensor, _, _ = sizes(layout)
    if gap := unchecked(shape, tensor, expert_parallel=layout.expert_parallel):
        yield gap


def _workload(shape: Shape, wanted: PlacementOptions) -> Workload:
    """The model with the context and KV cache that were asked for, and what it is to carry."""
    if cpu.is_float32(wanted.dtype):
        shape = cpu.in_float32(shape)
    if wanted.kv_type == "fp8":
        shape = shape.model_copy(update={"kv_bits": 8})
    here = tuple(engine for engine in shape.one_stage if engine == wanted.engine)
    copies = StateCopies.model_validate({wanted.engine: getattr(shape.state_copies, wanted.engine)})
    shape = shape.model_copy(update={"one_stage": here, "state_copies": copies})
    beyond = bool(wanted.context and wanted.context > shape.context)
    if beyond:
        shape = shape.model_copy(update={"context": wanted.context})
    load = Load(wanted.concurrency, context_tokens=min(wanted.context or _USUAL_CONTEXT, shape.context))
    context = wanted.context or min(shape.context, CONTEXT)
    return Workload(shape, context, load, wanted.goal, timed(shape, load), beyond)


def _beyond(shape: Shape, wanted: PlacementOptions) -> str:
    engine, context = wanted.engine, wanted.context or 0
    if context <= longest_context(shape, engine):
        return f"--context {context:,}: {limits(shape, engine)}. The command sets {LONGER[engine]}=1"
    return (
        f"--context {context:,} only by your {LONGER[engine]}: {limits(shape, engine)}. "
        "Answers may be wrong past that, or NaN"
    )


def _require_memory(found: Sequence[Device]) -> None:
    """A Problem where not one device has memory to give, or nobody says how much."""
    if not found or any(device.memory_bytes for device in found):
        return
    names = listed(f"{device.host} {device.index} ({device.name or device.kind})" for device in found)
    if any(device.total_bytes is None and device.kind != "cpu" for device in found):
        raise Problem(
            f"the memory of {names} is not known",
            cause="nvidia-smi does not say it",
            fix="medley facts shows what it says; medley serve MODEL --unplanned leaves it to the engine",
        )
    raise Problem(
        f"there is too little memory free on {names}",
        cause="what is available is no more than what the system keeps; medley facts shows it",
        fix="end what holds it: ps aux --sort=-rss | head\n"
        "or give back the page cache: sync; echo 3 | sudo tee /proc/sys/vm/drop_caches",
    )


def _refusal(
    site: Topology, wanted: PlacementOptions, shape: Shape, ranks: int, layout: Layout
) -> str | None:
    """Why this layout is not what was asked for."""
    used = hosts_of(layout)
    if because := compatibility.refusal(site, used, wanted.engine, shape):
        return because
    if site.head is not None and site.head not in used:
        return f"the engine starts on {site.head} and needs a rank there; from that host: --hosts 1"
    if wanted.hosts and len(used) != wanted.hosts:
        return f"{len(used)} of the {wanted.hosts} hosts asked for"
    if wanted.gpus and len(devices_of(layout)) != ranks:
        return f"not all of --gpus {wanted.gpus}"
    if site.order and layout.replicas and len(used) > len(pipelines(layout)):
        return "a second pipeline over several hosts needs a cluster of its own"
    of_one_server = _of_one_server(layout, wanted) if wanted.one_server else None
    return of_one_server or _short_of_host_memory(site, shape, layout)


def _short_of_host_memory(site: Topology, shape: Shape, layout: Layout) -> str | None:
    """Why a host's memory does not hold the tables that its GPUs leave there."""
    for host, needed in _host_tables(shape, layout).items():
        if needed > (available := site.facts[host].memory.available_bytes):
            return (
                f"{host}: its memory has {gib(available)} GiB available, and the model's tables next to its "
                f"GPUs need {gib(needed)} GiB"
            )
    return None


def _host_tables(shape: Shape, layout: Layout) -> dict[str, int]:
    """Bytes of tables in the memory of each host, next to the GPUs of its first stages."""
    tables: dict[str, int] = {}
    for stages in pipelines(layout) if shape.host_table_bytes else ():
        place = PipelinePosition(stages[0].layers, len(stages[0].devices))
        for device in stages[0].devices:
            if each := need(shape, place, device.kind).host_table_bytes:
                tables[device.host] = tables.get(device.host, 0) + each
    return tables


def _of_one_server(layout: Layout, wanted: PlacementOptions) -> str | None:
    """What no launcher starts as one server."""
    ranks = {host: len(held) for host, held in by_host(devices_of(layout)).items()}
    if layout.replicas:
        if any(len({one.host for stage in each for one in stage.devices}) > 1 for each in pipelines(layout)):
            return "each replica is on several hosts, and is a server of its own"
        if wanted.engine == "sglang" and len(ranks) > 1:
            return "SGLang's replicas are on one host; on others each is a server of its own"
    elif wanted.launcher == "mp" and len(set(ranks.values())) > 1:
        return "without Ray every host has as many ranks as the next"
    return None


def _landed(chosen: Choice, site: Topology, wanted: PlacementOptions) -> Choice:
    """The same choice as Ray places its ranks, or with the layers that the user gave each stage."""
    work, layout = chosen.work, chosen.layout
    if site.order and len(hosts_of(layout)) > 1 and not layout.replicas:
        layout, places = landing(layout, site.order)
        # Otherwise embedding and head are on other hosts.
        if list(places) != sorted(places):
            layout = recut(work, layout)
    if wanted.partition is not None:
        layout = _partitioned(work.shape, layout, wanted.partition, VARIABLE[wanted.engine])
    if layout == chosen.layout:
        return chosen
    fitted, told = fit(work, layout), predict(work.shape, layout, work.load)
    if not fitted.fits:
        raise Problem(
            f"the layout does not fit: {named(layout)}",
            cause=f"{gib(fitted.short_bytes)} GiB short: {fitted.worst}; planned was {named(chosen.layout)}",
            fix=f"unset {VARIABLE[wanted.engine]}: it sets the layers of each stage"
            if wanted.partition
            else "on a worker: medley ray-stop, then medley ray-worker HEAD, which gives it another place",
        )
    stale = figures(work, chosen.fit, chosen.prediction)
    why = (
        *(each for each in chosen.why if each not in stale),
        f"planned {named(chosen.layout)}; the running cluster gives {named(layout)}",
        *figures(work, fitted, told),
    )
    return replace(chosen, layout=layout, fit=fitted, prediction=told, why=why)


def _partitioned(shape: Shape, layout: Layout, partition: str, variable: str) -> Layout:
    words = partition.split(",")
    layers = [int(word) if word.strip().isdecimal() else 0 for word in words]
    if len(layers) != len(layout.stages) or sum(layers) != shape.layers or not all(layers):
        raise Problem(
            f"{variable}={partition} does not cut this model",
            cause=f"it has {shape.layers} layers, and planned is {named(layout)}",
            fix=f"unset {variable}, or force as many stages as it names: --pp {len(words)}",
        )
    first, *copies = (pipeline((stage.devices for stage in stages), layers) for stages in pipelines(layout))
    return replace(layout, stages=first, replicas=tuple(copies))


def unplaced(site: Topology, wanted: PlacementOptions) -> Layout:
    """So many ranks as were asked for, on the first hosts, of a model of which no more is known.

    Replicas are copies on one host; a Problem where they need more, because only a plan places them there.
    """
    found, forced, copies = site.devices(wanted.gpus), wanted.sizes, wanted.sizes.replicas or 1
    count = len(found) // copies if wanted.gpus else (forced.tensor or 1) * (forced.stages or 1)
    wide = forced.tensor or count // (forced.stages or 1)
    largest = sorted(found, key=lambda device: -device.memory_bytes)
    ranks = [device for host in site.order or site.hosts for device in largest if device.host == host]
    cut = bool(wide) and count % wide == 0 and (forced.stages or count // wide) * wide == count
    if not cut or count * copies > len(ranks) or (wanted.gpus and count * copies != len(found)):
        raise Problem(
            f"{count * copies} ranks cannot be made of the {len(ranks)} GPUs or CPUs there are",
            cause=f"each takes one; tensor parallel {wide}, {forced.stages or 1} stages, {copies} replicas",
            fix="other --tp, --pp and --dp, or join more hosts: medley ray-head",
        )
    first, *others = (
        tuple(Stage(tuple(ranks[at : at + wide]), 0) for at in range(copy * count, (copy + 1) * count, wide))
        for copy in range(copies)
    )
    made = Layout(first, replicas=tuple(others))
    if others and len(hosts_of(made)) > 1:
        raise Problem(
            f"--dp {copies} needs a plan on several hosts",
            cause=f"{count * copies} ranks would run on {listed(hosts_of(made))}; only a plan places them",
            fix="leave --dp out, or write the model's [shape] down: docs/reference/tables.md",
        )
    if wanted.hosts and len(hosts_of(made)) != wanted.hosts:
        raise Problem(
            f"{count * copies} ranks cannot run on {wanted.hosts} hosts",
            cause=f"they would run on {listed(hosts_of(made))}: without its shape the model has one split",
            fix="--tp and --pp, together as many ranks as these hosts have GPUs, or CPUs",
        )
    return made


def idle_ports_gain(shape: Shape, site: Topology, wanted: PlacementOptions, choice: Choice) -> Iterator[str]:
    """In a sentence what to type and how fast it would be; nothing where it would be no faster."""
    found = site.idle_ports(wanted.wishes, wanted.engine)
    if not found or wanted.wishes.transport == "tcp":
        return
    addressed = site.with_addresses(found)
    try:
        better = placement(shape, addressed, wanted)
    except Problem:
        return
    now, then = (score(wanted.goal, each.prediction) for each in (choice, better))
    if then >= _WORTH * now and better.prediction.fitted:
        speed = speed_text(max(link.mbit or 0 for links in found.values() for link in links))
        yield (
            f"{', '.join(found)} have fast ports that lie idle ({speed}): with addresses on them "
            f"{then:.1f} tok/s instead of {now:.1f} ({named(better.layout)}); "
            "on each: sudo $(command -v medley) link setup"
        )
