"""Place a model on the hosts in the order of Ray's ranks, and find what idle fast ports would gain."""

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import field

from medley.errors import Problem
from medley.host_schema import ENGINE_TABLES
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.speed import format_speed
from medley.planner import (
    Device,
    Goal,
    Layout,
    Load,
    build_pipeline,
    compatibility,
    count_parallel_sizes,
    cpu,
    describe_layout,
    devices,
    group_by_host,
    join_names,
    list_devices,
    list_hosts,
    list_pipelines,
    runs_on_cpu,
)
from medley.planner.candidates import ForcedSizes, Request
from medley.planner.choose import (
    Choice,
    choose_layout,
    compute_score,
    describe_figures,
)
from medley.planner.context import (
    choose_context,
    describe_limits,
    find_longest_context,
)
from medley.planner.fit import compute_fit, format_gib
from medley.planner.host_order import (
    place_in_rank_order,
)
from medley.planner.memory import PipelinePosition, compute_memory_need
from medley.planner.overcommit import choose_overcommitted_layout
from medley.planner.partition import Workload, describe_unchecked_width, recut_layers
from medley.planner.plan import KvType, Launcher
from medley.planner.prediction import PredictedStageTimerFactory, predict_speed
from medley.planner.remedies import NoLayout
from medley.planner.site import Site, explain_sources, list_incompatible_warnings
from medley.schema import (
    DEFAULT_ENGINE,
    TITLES,
    EngineName,
    Shape,
    StateCopies,
)
from medley.values import Value

_MAX_FIXED_STAGES = 2
"""Up to so many stages there is only one order, because the head has the first stage."""
_DEFAULT_MEAN_CONTEXT = 1024
"""The mean tokens before the next one of a stream, if the user gives no --context."""
_MIN_GAIN = 1.05
"""The least factor of speed that is worth a sentence: nearer predictions count as equal."""


class PlacementOptions(Value):
    """The user's options for a placement; None leaves an option to the planner."""

    goal: Goal = "latency"
    concurrency: int = 1
    context: int | None = None
    sizes: ForcedSizes = field(default_factory=ForcedSizes)
    host_count: int | None = None
    gpus: str | None = None
    """The GPUs of one host that must all be used: indexes, or `all`."""
    network: NetworkOptions = field(default_factory=NetworkOptions)
    partition: str | None = None
    """The layers of each stage, from the engine's own variable in the user's environment."""
    needs_one_server: bool = False
    """Whether one server must run it: each replica is on one host, and the launcher can start all."""
    engine: EngineName = DEFAULT_ENGINE
    launcher: Launcher | None = None
    """The launcher of ranks on several hosts; None: Ray, if hosts have joined."""
    kv_type: KvType = "auto"
    allows_longer_context: bool = False
    """Whether the user's environment lets the engine serve more than config.json gives."""
    balances_experts: bool = False
    """Whether experts are whole on their ranks, with the load balancer (--eplb)."""
    dtype: str | None = None
    """The numbers to compute with, from the user's --dtype; None: the kind of host decides."""


def place_model(shape: Shape, site: Site, options: PlacementOptions) -> Choice:
    """Return the best layout in Ray's order of ranks; raise a Problem with the numbers if none fits."""
    longest = find_longest_context(shape, options.engine)
    if options.context and options.context > longest and not options.allows_longer_context:
        raise NoLayout(
            f"--context {options.context} is more than {TITLES[options.engine]} serves of this model",
            cause=describe_limits(shape, options.engine),
            fix=f"--context {longest}, or less",
        )
    workload, site_devices = _build_workload(shape, options), site.list_devices(options.gpus)
    compatibility.require_capable_host(site, options.engine, workload.shape)
    network = site.build_network(options.network, options.engine)
    _require_memory(site_devices)
    find_refusal = partial(_find_refusal, site, options, workload.shape, len(site_devices))
    request = Request(
        workload,
        site_devices,
        network.find_link,
        options.sizes,
        site.head,
        find_refusal,
        network.find_group_link,
    )
    choice = _choose_layout(request)
    choice = _choose_dtype(shape, site, options, request, choice) if runs_on_cpu(choice.layout) else choice
    layout = choice.layout
    why = [
        *choice.why,
        *devices.explain_measurements(site.hosts, site.measurements),
        *(
            f"{host}: {format_gib(size)} GiB of the model's tables are in its own memory, not on its GPUs"
            for host, size in _count_host_table_bytes(shape, layout).items()
        ),
        *explain_sources(site.engine_sources, list_hosts(layout)),
    ]
    # Without a cluster the order in which Ray takes its workers is unknown.
    if not site.rank_order and any(len(stages) > _MAX_FIXED_STAGES for stages in list_pipelines(layout)):
        why.append("the order of the stages after the first is Ray's choice; serve cuts the layers for it")
    warnings = [
        *choice.warnings,
        *list_incompatible_warnings(site.engine_sources, list_hosts(layout)),
        *network.list_cabling_warnings(),
        *_list_estimate_warnings(shape, layout),
        *([_describe_long_context(shape, options)] if workload.is_beyond_config else []),
    ]
    if shape.weights != "bf16" and runs_on_cpu(layout):
        untried = f"vLLM's kernels for {shape.weights} on a CPU were not tried; 16 bits were"
        warnings.insert(len(choice.warnings), untried)
    choice = choice.replace(why=tuple(why), warnings=tuple(warnings), network=network)
    return _adapt_to_cluster(choice, site, options)


def _choose_layout(request: Request) -> Choice:
    """Return the best layout, or an overcommitted one that may fit."""
    try:
        return choose_layout(request, predict_speed)
    except NoLayout as problem:
        return choose_overcommitted_layout(request, problem)


def _choose_dtype(
    shape: Shape, site: Site, options: PlacementOptions, request: Request, choice: Choice
) -> Choice:
    """Return the choice for the numbers that CPUs compute with: float32 by default, if it fits."""
    uses_float32, missing_bytes = cpu.is_float32(options.dtype), 0
    if options.dtype is None and cpu.prefers_float32(shape, choice.layout, site.facts):
        cpus = tuple(device for device in request.devices if device.kind == "cpu")
        workload = _build_workload(cpu.convert_to_float32(shape), options)
        try:
            choice, uses_float32 = _choose_layout(request.replace(workload=workload, devices=cpus)), True
        except NoLayout as problem:
            rows = problem.evaluation.rows if problem.evaluation else ()
            missing_bytes = min((row.fit.short_bytes for row in rows), default=0)
    reason = cpu.explain_dtype(
        shape, choice.layout, site.facts, uses_float32=uses_float32, missing_bytes=missing_bytes
    )
    return choice.replace(why=(*choice.why, *([reason] if reason else [])))


def _list_estimate_warnings(shape: Shape, layout: Layout) -> Iterator[str]:
    """Yield a warning for each number of the shape that is an estimate or unknown."""
    if shape.weights_source != "headers":
        total = {
            "index": "only their total is in model.safetensors.index.json",
            "config": "no index gives their total either",
        }[shape.weights_source]
        yield f"the weights' bytes are an estimate from config.json. Their headers were not read; {total}"
    tensor_parallel, _, _ = count_parallel_sizes(layout)
    if gap := describe_unchecked_width(shape, tensor_parallel, expert_parallel=layout.expert_parallel):
        yield gap


def _build_workload(shape: Shape, options: PlacementOptions) -> Workload:
    """Return the model with the requested context and KV cache, and the requested load."""
    if cpu.is_float32(options.dtype):
        shape = cpu.convert_to_float32(shape)
    if options.kv_type == "fp8":
        shape = shape.replace(kv_bits=8)
    engines_without_stages = tuple(engine for engine in shape.one_stage if engine == options.engine)
    copies = StateCopies.from_table({options.engine: getattr(shape.state_copies, options.engine)})
    shape = shape.replace(one_stage=engines_without_stages, state_copies=copies)
    is_beyond_config = bool(options.context and options.context > shape.context)
    if is_beyond_config:
        shape = shape.replace(context=options.context)
    mean_context = min(options.context or _DEFAULT_MEAN_CONTEXT, shape.context)
    load = Load(options.concurrency, context_tokens=mean_context)
    context = choose_context(shape, options.context)
    return Workload(
        shape, context, load, options.goal, PredictedStageTimerFactory(shape, load), is_beyond_config
    )


def _describe_long_context(shape: Shape, options: PlacementOptions) -> str:
    engine, context = options.engine, options.context or 0
    limits, variable = describe_limits(shape, engine), ENGINE_TABLES[engine].context_variable
    if context <= find_longest_context(shape, engine):
        return f"--context {context:,}: {limits}. The command sets {variable}=1"
    return f"--context {context:,} only by your {variable}: {limits}. Answers may be wrong past that, or NaN"


def _require_memory(site_devices: Sequence[Device]) -> None:
    """Raise a Problem if no device has free memory, or its size is unknown."""
    if not site_devices or any(device.memory_bytes for device in site_devices):
        return
    names = join_names(
        f"{device.host} {device.index} ({device.name or device.kind})" for device in site_devices
    )
    if any(device.total_bytes is None and device.kind != "cpu" for device in site_devices):
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


def _find_refusal(
    site: Site, options: PlacementOptions, shape: Shape, ranks: int, layout: Layout
) -> str | None:
    """Return why this layout does not match the user's options; None if it does."""
    hosts = list_hosts(layout)
    if reason := compatibility.find_refusal(site, hosts, options.engine, shape):
        return reason
    if site.head is not None and site.head not in hosts:
        return f"the engine starts on {site.head} and needs a rank there; from that host: --hosts 1"
    if options.host_count and len(hosts) != options.host_count:
        return f"{len(hosts)} of the {options.host_count} hosts asked for"
    if options.gpus and len(list_devices(layout)) != ranks:
        return f"not all of --gpus {options.gpus}"
    if site.rank_order and layout.other_pipelines and len(hosts) > len(list_pipelines(layout)):
        return "a second pipeline over several hosts needs a cluster of its own"
    one_server_refusal = _find_one_server_refusal(layout, options) if options.needs_one_server else None
    return one_server_refusal or _find_memory_refusal(site, shape, layout)


def _find_memory_refusal(site: Site, shape: Shape, layout: Layout) -> str | None:
    """Return why a host's memory does not hold the tables that its GPUs leave there."""
    for host, table_bytes in _count_host_table_bytes(shape, layout).items():
        available_bytes = site.facts[host].memory.available_bytes
        if table_bytes > available_bytes:
            return (
                f"{host}: its memory has {format_gib(available_bytes)} GiB available, and the model's tables "
                f"next to its GPUs need {format_gib(table_bytes)} GiB"
            )
    return None


def _count_host_table_bytes(shape: Shape, layout: Layout) -> dict[str, int]:
    """Return the bytes of tables in the memory of each host, next to the GPUs of its first stages."""
    tables: dict[str, int] = {}
    if not shape.host_table_bytes:
        return tables
    for stages in list_pipelines(layout):
        position = PipelinePosition(stages[0].layers, len(stages[0].devices))
        for device in stages[0].devices:
            if table_bytes := compute_memory_need(shape, position, device.kind).host_table_bytes:
                tables[device.host] = tables.get(device.host, 0) + table_bytes
    return tables


def _find_one_server_refusal(layout: Layout, options: PlacementOptions) -> str | None:
    """Return why no launcher starts this layout as one server; None if one does."""
    ranks = {host: len(on_host) for host, on_host in group_by_host(list_devices(layout)).items()}
    if layout.other_pipelines:
        pipelines = list_pipelines(layout)
        hosts = [{device.host for stage in stages for device in stage.devices} for stages in pipelines]
        if any(len(names) > 1 for names in hosts):
            return "each replica is on several hosts, and is a server of its own"
        if len(ranks) > 1 and not ENGINE_TABLES[options.engine].spreads_replicas:
            return (
                f"{TITLES[options.engine]}'s replicas are on one host; on others each is a server of its own"
            )
    elif options.launcher == "mp" and len(set(ranks.values())) > 1:
        return "without Ray every host has as many ranks as the next"
    return None


def _adapt_to_cluster(choice: Choice, site: Site, options: PlacementOptions) -> Choice:
    """Return the choice in Ray's order of ranks, or with the layers that the user gave each stage."""
    workload, layout = choice.workload, choice.layout
    if site.rank_order and len(list_hosts(layout)) > 1 and not layout.other_pipelines:
        layout, places = place_in_rank_order(layout, site.rank_order)
        # Embedding and head are on other hosts then, so the layers are cut again.
        if list(places) != sorted(places):
            layout = recut_layers(workload, layout)
    source = "the running cluster gives"
    if options.partition is not None:
        variable = ENGINE_TABLES[options.engine].partition_variable
        user_variable = f"your {variable}={options.partition}"
        is_moved = layout != choice.layout
        source = f"the running cluster and {user_variable} give" if is_moved else f"{user_variable} gives"
        layout = _apply_partition(workload.shape, layout, options.partition, variable)
    if layout == choice.layout:
        return choice
    layout_fit = compute_fit(workload, layout)
    prediction = predict_speed(workload.shape, layout, workload.load)
    if not layout_fit.fits:
        fix = "on a worker: medley ray-stop, then medley ray-worker HEAD, which gives it another place"
        if options.partition is not None:
            fix = (
                f"unset {ENGINE_TABLES[options.engine].partition_variable}: it sets the layers of each stage"
            )
        raise Problem(
            f"the layout does not fit: {describe_layout(layout)}",
            cause=f"{format_gib(layout_fit.short_bytes)} GiB short: {layout_fit.worst}; "
            f"planned was {describe_layout(choice.layout)}",
            fix=fix,
        )
    old_figures = describe_figures(workload, choice.fit, choice.prediction)
    why = (
        *(reason for reason in choice.why if reason not in old_figures),
        f"planned {describe_layout(choice.layout)}; {source} {describe_layout(layout)}",
        *describe_figures(workload, layout_fit, prediction),
    )
    return choice.replace(layout=layout, fit=layout_fit, prediction=prediction, why=why)


def _apply_partition(shape: Shape, layout: Layout, partition: str, variable: str) -> Layout:
    """Return the layout with the layers of the user's variable; raise a Problem if they do not match."""
    counts = partition.split(",")
    layers = [int(count) if count.strip().isdecimal() else 0 for count in counts]
    if len(layers) != len(layout.stages) or sum(layers) != shape.layers or not all(layers):
        raise Problem(
            f"{variable}={partition} does not cut this model",
            cause=f"it has {shape.layers} layers, and planned is {describe_layout(layout)}",
            fix=f"unset {variable}, or force as many stages as it names: --pp {len(counts)}",
        )
    first_pipeline, *replicas = (
        build_pipeline((stage.devices for stage in stages), layers) for stages in list_pipelines(layout)
    )
    return layout.replace(stages=first_pipeline, other_pipelines=tuple(replicas))


def describe_idle_ports_gain(
    shape: Shape, site: Site, options: PlacementOptions, choice: Choice
) -> Iterator[str]:
    """Yield the command that gives idle ports addresses, and the speed then; nothing if it gains nothing."""
    ports = choice.network.list_idle_ports() if choice.network else {}
    if not ports or options.network.transport == "tcp":
        return
    addressed = site.add_addresses(ports)
    try:
        better = place_model(shape, addressed, options)
    except Problem:
        return
    current_score = compute_score(options.goal, choice.prediction)
    better_score = compute_score(options.goal, better.prediction)
    if better_score >= _MIN_GAIN * current_score and better.prediction.is_calibrated:
        speed = format_speed(max(link.mbit or 0 for links in ports.values() for link in links))
        yield (
            f"{', '.join(ports)} have fast ports that lie idle ({speed}): with addresses on them "
            f"{better_score:.1f} tok/s instead of {current_score:.1f} ({describe_layout(better.layout)}); "
            "on each: sudo $(command -v medley) link setup"
        )
