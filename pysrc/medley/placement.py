"""A placement is where a model lies on a site: the layout that was chosen, as its ranks will really lie."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from medley import apart, survey
from medley.fabric import Wishes
from medley.layout.candidates import Sizes
from medley.layout.choose import CONTEXT, Choice, Goal, choose, figures
from medley.layout.fit import fit, gib
from medley.layout.order import VARIABLE, landing
from medley.layout.remedies import NoLayout
from medley.layout.shapes import Device, Layout, Stage
from medley.layout.split import By, recut
from medley.layout.words import devices, hosts, listed, named, pipelines
from medley.plan import KvType, Launcher
from medley.predict import Load, Prediction, predict, timed
from medley.problem import Problem
from medley.site import Site
from medley.tables import Engine, Shape

_ANY_ORDER = 2  # the head's stage is the first, so there is but one
_USUAL_CONTEXT = 1024  # what a stream has behind it, on average, where nobody says


@dataclass(frozen=True)
class Wanted:
    """What a user asks of a placement; None leaves it to us."""

    goal: Goal = "latency"
    concurrency: int = 1
    context: int | None = None
    sizes: Sizes = field(default_factory=Sizes)
    hosts: int | None = None
    """So many hosts, no more and no fewer."""
    gpus: str | None = None
    """All of these GPUs of one host: indexes, or `all`."""
    wishes: Wishes = field(default_factory=Wishes)
    partition: str | None = None
    """Layers of each stage, as the engine's own variable has them in the user's environment."""
    one_server: bool = False
    """Only what one server can run: replicas each on one host, and what its launcher starts."""
    engine: Engine = "vllm"
    launcher: Launcher | None = None
    """What is to start ranks on several hosts; None: Ray, where hosts have joined."""
    kv_type: KvType = "auto"
    balanced: bool = False
    """Experts by expert parallel, with the load balancer."""


def placement(shape: Shape, site: Site, wanted: Wanted) -> Choice[Prediction]:
    """The best layout, landed where Ray puts its ranks; a Problem with the numbers where none fits."""
    if wanted.context and wanted.context > shape.context:
        raise NoLayout(
            f"--context {wanted.context} is more than this model can do",
            cause=f"it was made for {shape.context} tokens",
            fix=f"--context {shape.context}, or less",
        )
    shape = cached(shape, wanted)
    context, load = _asked(shape, wanted)
    found = site.devices(wanted.gpus)
    _require_memory(found)
    link_of = survey.link_of(site.facts, site.wishes(wanted.wishes), site.measured)
    chosen = choose(
        shape,
        found,
        apart.joined(link_of, site.origins),
        goal=wanted.goal,
        load=load,
        predict=predict,
        timed=timed(shape, load),
        context=context,
        sizes=wanted.sizes,
        head=site.head,
        only=lambda layout: _refusal(layout, site, wanted, len(found)),
    )
    chosen = replace(
        chosen,
        why=(*chosen.why, *_reasons(chosen.layout, site)),
        warnings=(*chosen.warnings, *_untried(shape, chosen.layout), *apart.warnings(site.origins)),
    )
    lain = _lain(shape, chosen.layout, site, wanted)
    return chosen if lain == chosen.layout else _again(shape, chosen, lain, wanted)


def cached(shape: Shape, wanted: Wanted) -> Shape:
    """The model with the KV cache that was asked for."""
    return shape.model_copy(update={"kv_bits": 8}) if wanted.kv_type == "fp8" else shape


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


def _reasons(layout: Layout, site: Site) -> Iterator[str]:
    yield from survey.reasons(site.hosts, site.measured)
    yield from apart.reasons(site.origins, hosts(layout))
    yield from _order(layout, site)


def _order(layout: Layout, site: Site) -> Iterator[str]:
    """Before there is a cluster nobody knows in which order Ray takes its workers."""
    if not site.order and any(len(stages) > _ANY_ORDER for stages in pipelines(layout)):
        yield "the order of the stages after the first is Ray's choice; serve cuts the layers for it"


def _untried(shape: Shape, layout: Layout) -> Iterator[str]:
    if shape.weights != "bf16" and layout.stages[0].devices[0].kind == "cpu":
        yield f"vLLM's kernels for {shape.weights} on a CPU were not tried; 16 bits were"


def unplaced(site: Site, wanted: Wanted) -> Layout:
    """So many ranks as were asked for, on the first hosts, of a model of which no more is known."""
    found, sizes = site.devices(wanted.gpus), wanted.sizes
    count = len(found) if wanted.gpus else (sizes.tensor or 1) * (sizes.stages or 1)
    wide = sizes.tensor or count // (sizes.stages or 1)
    largest = sorted(found, key=lambda device: -device.memory_bytes)
    ranks = [device for host in site.order or site.hosts for device in largest if device.host == host]
    if count > len(ranks) or not wide or count % wide or (sizes.stages or count // wide) * wide != count:
        raise Problem(
            f"{count} ranks cannot be made of the {len(ranks)} GPUs or CPUs there are",
            cause=f"each takes one; tensor parallel {wide}, {sizes.stages or 1} stages",
            fix="other --tp and --pp, or join more hosts: medley ray-head",
        )
    made = Layout(tuple(Stage(tuple(ranks[at : at + wide]), 0) for at in range(0, count, wide)))
    if wanted.hosts and len(hosts(made)) != wanted.hosts:
        raise Problem(
            f"{count} ranks do not lie on {wanted.hosts} hosts",
            cause=f"they lie on {listed(hosts(made))}; nothing is known of this model by which to cut it",
            fix="--tp and --pp, together as many ranks as these hosts have GPUs, or CPUs",
        )
    return made


def _asked(shape: Shape, wanted: Wanted) -> tuple[int, Load]:
    """The context that must fit, and the load that the speed is predicted for."""
    context = wanted.context or min(shape.context, CONTEXT)
    behind = min(wanted.context or _USUAL_CONTEXT, shape.context)
    return context, Load(wanted.concurrency, context_tokens=behind)


def _refusal(layout: Layout, site: Site, wanted: Wanted, ranks: int) -> str | None:
    """Why this layout is not what was asked for."""
    used = hosts(layout)
    if lacks := site.lacks(used):
        return lacks
    if site.head is not None and site.head not in used:
        return f"the engine starts on {site.head} and needs a rank there; from that host: --hosts 1"
    if wanted.hosts and len(used) != wanted.hosts:
        return f"{len(used)} of the {wanted.hosts} hosts asked for"
    if wanted.gpus and len(devices(layout)) != ranks:
        return f"not all of --gpus {wanted.gpus}"
    if site.order and layout.replicas and len(used) > len(pipelines(layout)):
        return "a second pipeline over several hosts needs a cluster of its own"
    return _of_one_server(layout, wanted) if wanted.one_server else None


def _of_one_server(layout: Layout, wanted: Wanted) -> str | None:
    """What no launcher starts as one server."""
    ranks = Counter(device.host for device in devices(layout))
    if layout.replicas:
        if any(
            len({device.host for stage in stages for device in stage.devices}) > 1
            for stages in pipelines(layout)
        ):
            return "each replica is on several hosts, and is a server of its own"
        if wanted.engine == "sglang" and len(ranks) > 1:
            return "SGLang's replicas are on one host; on others each is a server of its own"
    elif wanted.launcher == "mp" and len(set(ranks.values())) > 1:
        return "without Ray every host has as many ranks as the next"
    return None


def _lain(shape: Shape, layout: Layout, site: Site, wanted: Wanted) -> Layout:
    """The layout as Ray places its ranks, or with the layers that the user gave each stage."""
    if site.order and len(hosts(layout)) > 1 and not layout.replicas:
        landed = landing(layout, site.order)
        layout = landed.layout
        if not landed.as_planned:
            by: By = "memory" if wanted.goal == "context" else "speed"
            context, load = _asked(shape, wanted)
            paced, many = timed(shape, load), load.concurrency
            layout = recut(shape, layout, context=context, concurrency=many, by=by, timed=paced)
    return (
        layout
        if wanted.partition is None
        else _partitioned(shape, layout, wanted.partition, VARIABLE[wanted.engine])
    )


def _partitioned(shape: Shape, layout: Layout, partition: str, variable: str) -> Layout:
    words = partition.split(",")
    layers = [int(word) if word.strip().isdecimal() else 0 for word in words]
    if len(layers) != len(layout.stages) or sum(layers) != shape.layers or not all(layers):
        raise Problem(
            f"{variable}={partition} does not cut this model",
            cause=f"it has {shape.layers} layers, and planned is {named(layout)}",
            fix=f"unset {variable}, or force so many stages as it names: --pp {len(words)}",
        )
    first, *copies = (
        tuple(Stage(stage.devices, count) for stage, count in zip(stages, layers, strict=True))
        for stages in pipelines(layout)
    )
    return replace(layout, stages=first, replicas=tuple(copies))


def _again(shape: Shape, chosen: Choice[Prediction], lain: Layout, wanted: Wanted) -> Choice[Prediction]:
    """The same choice for the layout as it lies."""
    context, load = _asked(shape, wanted)
    fitted, told = fit(shape, lain, context, load.concurrency), predict(shape, lain, load)
    if not fitted.fits:
        raise Problem(
            f"it does not fit as it would lie: {named(lain)}",
            cause=f"{gib(fitted.short_bytes)} GiB short: {fitted.worst}; planned was {named(chosen.layout)}",
            fix=f"unset {VARIABLE[wanted.engine]}: it cuts the layers so"
            if wanted.partition
            else "on a worker: medley ray-stop, then medley ray-worker HEAD, which gives it another place",
        )
    stale = figures(chosen.fit, chosen.prediction, context, load.concurrency)
    why = (
        *(each for each in chosen.why if each not in stale),
        f"planned {named(chosen.layout)}; lies as {named(lain)}",
        *figures(fitted, told, context, load.concurrency),
    )
    return replace(chosen, layout=lain, fit=fitted, prediction=told, why=why)
