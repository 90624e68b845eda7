"""Suggest commands that fit instead, each planned before; find the engine sources of hosts."""

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from shlex import join
from typing import NamedTuple

from medley import cluster, config
from medley.command import renamed, switched, without
from medley.engine.launch import ENGINES, Order
from medley.environment import engine_source
from medley.errors import Problem
from medley.host.hypothetical import imagined
from medley.host.kind import kind_of
from medley.model.table import base_name
from medley.planner import Device, compatibility, topology
from medley.planner.candidates import FREE, Sizes
from medley.planner.choose import Choice
from medley.planner.context import LONGER_CONTEXT_VARIABLES, find_longest_context
from medley.planner.fit import format_gib
from medley.planner.placement import PlacementOptions, describe_idle_ports_gain, place_model
from medley.planner.remedies import NoLayout, Remedies, quantize
from medley.planner.topology import Topology
from medley.schema import EngineName, Model, Shape

_SIZES = ("--tp", "--pp", "--dp")
_GRAIN = 1024
_LEAST_CONTEXT = 16
_MOST_HOSTS = 64
_TRIED = 3
_COUNTS = (1, 2, 4, 8)
_MUCH = 1.5
"""A build must be faster by this factor to be suggested."""
_NEAR = 1.25
"""Hosts count as alike if their memory differs by less than this factor."""
_OTHERS = 3


def with_engine_sources(
    site: Topology, wanted: PlacementOptions, asked: engine_source.EngineRequest, model: Model | None = None
) -> Topology:
    """Return the site with the engine sources of its hosts; those of a running cluster agree already."""
    if site.rank_order:
        return site
    images, engine = wanted.launcher != "mp", wanted.engine
    locked = engine_source.locked()
    has_toolkit = site.has_nix_toolkit or engine_source.is_pinned()
    pinned = has_toolkit or bool(os.environ.get(engine_source.OWN_NCCL))
    origins = {
        name: engine_source.engine_source(kind, engine, asked, locked, images=images, pinned=pinned)
        for name, (_, kind) in site.hosts.items()
    }
    return of_model(replace(site, engine_sources=origins, has_nix_toolkit=has_toolkit), engine, model)


def placed(order: Order, shape: Shape, site: Topology) -> Choice:
    """Return its placement; where it does not fit, the Problem's fix lists commands that would."""
    try:
        choice = place_model(shape, site, order.placement)
    except NoLayout as problem:
        changed = _changes(order, shape, site, problem)
        others = topology.list_incompatible_remedies(site.engine_sources)
        engines = _other_engines(order, shape, site)
        fixes = compatibility.list_fixes(site, order.placement.engine, shape)
        found = (*_missing_hosts(site), *changed, *fixes, *engines, *others)
        found = (*found, *_other_gpus(order, shape, site))
        problem.fix = "\n".join(found) or problem.fix
        raise
    gained = describe_idle_ports_gain(shape, site, order.placement, choice)
    return replace(choice, warnings=(*choice.warnings, *gained))


def _missing_hosts(site: Topology) -> Iterator[str]:
    """Yield `medley up` where hosts of cluster.toml are missing in the cluster, or this host plans alone."""
    if not (site.rank_order or set(site.hosts) == {platform.node()}) or cluster.file() is None:
        return
    here, wanted = len(site.hosts), len(cluster.read().hosts)
    if wanted > here:
        yield f"medley up  # {here} of the {wanted} hosts of cluster.toml have joined; then run this again"


def _other_engines(order: Order, shape: Shape, site: Topology) -> Iterator[str]:
    """Yield the command with another engine where this one cannot run the model on one of these hosts."""
    refused = compatibility.find_refusal(site, site.hosts, order.placement.engine, shape)
    if refused is None or site.rank_order or any(each.image for each in site.engine_sources.values()):
        return
    for engine in ENGINES:
        wanted = replace(order.placement, engine=engine, partition=None)
        if engine != order.placement.engine:
            there = with_engine_sources(site, wanted, engine_source.EngineRequest(), order.weights.model)
            if _fits(shape, there, wanted):
                yield join(switched(_typed(order), "--engine", engine))


def _other_gpus(order: Order, shape: Shape, site: Topology) -> Iterator[str]:
    hosts = [
        host
        for host in site.hosts
        if not site.find_engine_source(host).absent and not site.find_engine_source(host).lacks
    ]
    if any(compatibility.find_refusal(site, (host,), order.placement.engine, shape) for host in hosts):
        yield "medley models  # this model needs other GPUs: choose another model or other hosts"


def _changes(order: Order, shape: Shape, site: Topology, problem: NoLayout) -> Iterator[str]:
    """Yield changed commands; a comment names a change that is not visible."""
    wanted, typed = order.placement, _typed(order)
    # A running cluster, or the user, may place ranks differently than the planner's table.
    table = None if site.rank_order or wanted.partition else problem.evaluation
    sizes, free = wanted.sizes, without(typed, _SIZES)

    def holds(sizes: Sizes) -> bool:
        """Whether it fits with these sizes, by the table or a new plan."""
        rows = table.list_fitting_rows(sizes) if table else []
        return bool(rows) or (
            not (table and sizes == FREE) and _fits(shape, site, replace(wanted, sizes=sizes))
        )

    if sizes != FREE and holds(FREE):
        yield join(free)
    stages = sizes.stages or sizes.tensor
    if sizes.tensor and holds(Sizes(stages=stages)):
        yield join(switched(free, "--pp", str(stages)))
    yield from _shorter(order, shape, site)
    if (remedies := problem.remedies) is None:
        return
    # Rows of the table hold both, by their own arithmetic.
    context, many = _rounded(remedies.context), remedies.concurrency
    if context and (table or _fits(shape, site, replace(wanted, context=context))):
        yield join(switched(typed, "--context", str(context)))
    if many and (table or _fits(shape, site, replace(wanted, concurrency=many))):
        yield join(switched(typed, "--concurrency", str(many)))
    smaller = tuple(_smaller(order, shape, site, remedies))
    yield from smaller
    larger = _more_hosts(order, shape, site, remedies)
    helps = context or many or smaller or (larger and larger.alike)
    yield from () if helps else _other_models(order, site, problem)
    yield from (larger.typed,) if larger else ()


def _shorter(order: Order, shape: Shape, site: Topology) -> Iterator[str]:
    """Yield the longest context that the model has, and the user's own way past it."""
    wanted, longest = order.placement, find_longest_context(shape, order.placement.engine)
    if not wanted.context or wanted.context <= longest or wanted.longer_context:
        return
    if _fits(shape, site, replace(wanted, context=longest)):
        yield join(switched(_typed(order), "--context", str(longest)))
    if _fits(shape, site, replace(wanted, longer_context=True)):
        risk = "if its maker serves that much: otherwise answers may be wrong"
        yield f"{LONGER_CONTEXT_VARIABLES[wanted.engine]}=1 {join(_typed(order))}  # {risk}"


def _fits(shape: Shape, site: Topology, wanted: PlacementOptions) -> bool:
    """Whether it fits with as much memory free as is safe."""
    try:
        return not place_model(shape, site, wanted).tight
    except Problem:
        return False


def _rounded(context: int) -> int:
    return 0 if context < _LEAST_CONTEXT else context // _GRAIN * _GRAIN or context


@dataclass(frozen=True)
class Build:
    """Another quantization of a model, and its best layout."""

    name: str
    choice: Choice
    typed: str
    """The command that plans it."""

    @property
    def rate(self) -> str | None:
        """The predicted speed, if any."""
        told = self.choice.prediction
        return f"{told.tokens_per_s:.1f} tok/s" if told.fitted else None

    @property
    def fits_how(self) -> str:
        """Its speed and, in a comment, that its memory is tight; empty where neither is known."""
        tight = "less memory free than is safe" if self.choice.tight else None
        return ", ".join(filter(None, (self.rate, tight)))


def builds(order: Order, shape: Shape, site: Topology) -> Iterator[Build]:
    """Return the builds with a table that are smaller than this one and fit."""
    for name, model in _siblings(order).items():
        if model.shape and model.shape.weights_bytes < shape.weights_bytes:
            with suppress(Problem):
                engine = order.placement.engine
                choice = place_model(model.shape, of_model(site, engine, model), order.placement)
                yield Build(name, choice, join(_with_model(order, name)))


def _siblings(order: Order) -> dict[str, Model]:
    known = config.models()
    name = next((name for name, each in known.items() if each.repository == order.weights.target), None)
    others = (each for each in known if name and each != name and base_name(each) == base_name(name))
    return {each: known[each] for each in others}


def faster_builds(order: Order, site: Topology, choice: Choice) -> list[Build]:
    """Return the builds that are predicted to be much faster than the choice, the fastest first."""
    now = choice.prediction
    if not now.fitted:
        return []
    found = (each for each in builds(order, choice.workload.shape, site) if each.choice.prediction.fitted)
    faster = (each for each in found if each.choice.prediction.tokens_per_s >= _MUCH * now.tokens_per_s)
    return sorted(faster, key=lambda each: -each.choice.prediction.tokens_per_s)


def four_bit_rate(order: Order, site: Topology, choice: Choice) -> float | None:
    """Tokens per second of a 4-bit build where medley knows none and it would be much faster."""
    smaller, now = quantize(choice.workload.shape, "nvfp4"), choice.prediction
    if smaller and now.fitted and not _siblings(order):
        with suppress(Problem):
            rate = place_model(smaller, site, order.placement).prediction.tokens_per_s
            return rate if rate >= _MUCH * now.tokens_per_s else None
    return None


def of_model(site: Topology, engine: EngineName, model: Model | None) -> Topology:
    """Return the site with what its engines lack for this model."""
    origins = {
        name: replace(each, lacks=engine_source.unknown(model, engine, each.versions.get(engine)))
        for name, each in site.engine_sources.items()
    }
    return replace(site, engine_sources=origins)


def _typed(order: Order) -> tuple[str, ...]:
    return order.user_command or ("medley", "plan", order.weights.name)


def _with_model(order: Order, name: str) -> tuple[str, ...]:
    """Return the command with another model, however the user wrote this one."""
    return renamed(_typed(order), (order.user_command and order.weights.word) or order.weights.name, name)


def _smaller(order: Order, shape: Shape, site: Topology, remedies: Remedies) -> Iterator[str]:
    """Yield smaller builds of the model that have a table, else a quantization to look for."""
    fitting = list(builds(order, shape, site))
    for each in fitting:
        yield each.typed + (f"  # {each.fits_how}" if each.fits_how else "")
    # Do not suggest a quantization whose known build is too large.
    known = {model.shape.weights for model in _siblings(order).values() if model.shape}
    variant = next((each for each in remedies.variants if each.fits and each.weights not in known), None)
    if variant and not fitting:
        size = f"about {format_gib(variant.size_bytes)} GiB, which fits"
        line = join(_with_model(order, "ORG/NAME"))
        yield f"{line}  # a repository with {variant.weights} weights: {size}"


def _other_models(order: Order, site: Topology, problem: NoLayout) -> Iterator[str]:
    """Yield the largest known models that fit these hosts, else how large one may be on a single device."""
    names = list(_fitting(site, order.placement))
    for name, size_bytes in names:
        line = join(_with_model(order, name))
        yield f"{line}  # another model, which fits: {format_gib(size_bytes)} GiB of weights"
    ranks = [row.fit.ranks for row in problem.evaluation.rows] if problem.evaluation else []
    if names or any(len(each) > 1 for each in ranks):
        return
    for (rank,) in ranks[:1]:
        room = rank.device.memory_bytes - rank.kv_bytes - rank.overhead_bytes
        if room > 0:
            line = join(_with_model(order, "ORG/NAME"))
            size = format_gib(room)
            yield f"{line}  # a model with at most {size} GiB of weights: no known model is so small"


def _fitting(site: Topology, wanted: PlacementOptions) -> Iterator[tuple[str, int]]:
    """Yield the largest models with a shape that fit the site, and the bytes of their weights."""
    room = sum(device.memory_bytes for device in site.list_devices(wanted.gpus))
    able = [
        (name, model, model.shape)
        for name, model in config.models().items()
        # A model that medley builds is for trying medley, not an answer to a user's wish.
        if model.shape and not model.is_built and model.shape.weights_bytes < room
    ]
    found = 0
    for name, model, shape in sorted(able, key=lambda each: -each[2].weights_bytes):
        if found < _OTHERS and _fits(shape, of_model(site, wanted.engine, model), wanted):
            yield name, shape.weights_bytes
            found += 1


class Larger(NamedTuple):
    """A plan on more or other hosts."""

    typed: str
    alike: bool
    """Whether these hosts are like the user's largest."""


def _more_hosts(order: Order, shape: Shape, site: Topology, remedies: Remedies) -> Larger | None:
    """Return a plan with enough hosts like the largest, else with Sparks; None where neither fits."""
    kind = _typical(next(each for each in site.list_devices() if each.host == remedies.largest_host))
    free = replace(order.placement, sizes=Sizes(), hosts=None, gpus=None, partition=None)
    request, model = engine_source.EngineRequest(), order.weights.model
    # Where a pipeline is not possible its fewest hosts are no guide.
    fewest = remedies.hosts
    numbers = range(fewest, min(fewest + _TRIED, _MOST_HOSTS + 1)) if fewest else _COUNTS
    alike = [(kind, number, remedies.largest_host) for number in numbers] if kind else []
    for name, number, like in [*alike, *(("spark", number, "a DGX Spark") for number in _COUNTS)]:
        hosts = f"{name}:{number}"
        larger = with_engine_sources(_site(hosts), order.placement, request, model)
        if _fits(shape, larger, free):
            why = f"plan it for {number} host{'s' * (number > 1)} like {like}"
            return Larger(f"{_plan(order, hosts)}  # {why}", like == remedies.largest_host)
    return None


def _typical(device: Device) -> str | None:
    """Return the name in --hosts of a host with this device, and about as much memory."""
    for kind in config.files("hosts/typical", ".txt"):
        (other, *_) = _site(kind).list_devices()
        # The memory tells a Jetson Orin Nano from an AGX Orin, which the driver names alike.
        sizes = (each.total_bytes or each.memory_bytes for each in (other, device))
        less, more = sorted(sizes)
        alike = more <= _NEAR * less and (device.kind == "cpu" or other.name == device.name)
        if other.kind == device.kind and alike:
            return kind
    return None


def _site(hosts: str) -> Topology:
    return Topology({name: (facts, kind_of(facts)) for name, facts in imagined(hosts).items()})


def _plan(order: Order, hosts: str) -> str:
    wanted = order.placement
    words = ["medley", "plan", order.weights.name, "--hosts", hosts]
    for name, field in (
        ("--for", "goal"),
        ("--context", "context"),
        ("--concurrency", "concurrency"),
        ("--kv-type", "kv_type"),
        ("--engine", "engine"),
    ):
        if (value := getattr(wanted, field)) != getattr(PlacementOptions, field):
            words += [name, str(value)]
    return join(words)
