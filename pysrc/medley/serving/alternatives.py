"""Suggest commands that fit instead of one that does not; each is planned before it is shown."""

import platform
from collections.abc import Iterator
from contextlib import suppress
from shlex import join
from typing import NamedTuple

from medley import config
from medley.cluster import cluster_file
from medley.command import drop_switches, replace_word, set_switch
from medley.engine.launch import ENGINES, LaunchOrder
from medley.environment.engine_source import EngineRequest
from medley.errors import Problem
from medley.host.hypothetical import build_hosts
from medley.host.kind import SiteHost, find_kind
from medley.host_schema import ENGINE_TABLES
from medley.model.table import remove_format
from medley.planner import Device, compatibility
from medley.planner.candidates import NO_FORCED_SIZES, ForcedSizes
from medley.planner.choose import Choice
from medley.planner.context import find_longest_context
from medley.planner.fit import format_gib
from medley.planner.placement import PlacementOptions, describe_idle_ports_gain, place_model
from medley.planner.remedies import NoLayout, Remedies, quantize_shape
from medley.planner.site import Site, list_incompatible_remedies
from medley.schema import Model, Shape
from medley.serving.engine_sources import add_engine_gaps, add_engine_sources
from medley.values import Value

_SIZE_SWITCHES = ("--tp", "--pp", "--dp")
_CONTEXT_STEP_TOKENS = 1024
_MIN_CONTEXT_TOKENS = 16
_MAX_HOST_COUNT = 64
_MAX_HOST_COUNTS_TRIED = 3
_TYPICAL_HOST_COUNTS: tuple[int, ...] = (1, 2, 4, 8)
_MIN_QUANTIZATION_GAIN = 1.5
"""A quantization must be faster by this factor to be suggested."""
_MAX_MEMORY_RATIO = 1.25
"""Hosts count as alike if their memory differs by less than this factor."""
_MAX_MODELS_SHOWN = 3


def plan_order(order: LaunchOrder, shape: Shape, site: Site) -> Choice:
    """Plan a model as ordered; if it does not fit, the Problem's fix lists commands that would."""
    try:
        choice = place_model(shape, site, order.placement)
    except NoLayout as problem:
        fixes = (
            *_list_missing_hosts(site),
            *_list_changes(order, shape, site, problem),
            *compatibility.list_fixes(site, order.engine, shape),
            *_list_other_engines(order, shape, site),
            *list_incompatible_remedies(site.engine_sources),
            *_list_gpu_hints(order, shape, site),
        )
        problem.fix = "\n".join(fixes) or problem.fix
        raise
    gains = describe_idle_ports_gain(shape, site, order.placement, choice)
    return choice.replace(warnings=(*choice.warnings, *gains))


def _list_missing_hosts(site: Site) -> Iterator[str]:
    """Yield `medley up` where hosts of cluster.toml are missing in the cluster, or this host plans alone."""
    path = cluster_file.find_cluster_file()
    if not (site.rank_order or set(site.hosts) == {platform.node()}) or path is None:
        return
    # Reading the file only counts its hosts: no command of it runs.
    joined, total = len(site.hosts), len(cluster_file.read_cluster(str(path)).hosts)
    if total > joined:
        yield f"medley up  # {joined} of the {total} hosts of cluster.toml have joined; then run this again"


def _list_other_engines(order: LaunchOrder, shape: Shape, site: Site) -> Iterator[str]:
    """Yield the command with another engine where this one cannot run the model on one of these hosts."""
    refusal = compatibility.find_refusal(site, site.hosts, order.engine, shape)
    if refusal is None or site.rank_order or any(source.is_image for source in site.engine_sources.values()):
        return
    for engine in ENGINES:
        placement = order.placement.replace(engine=engine, partition=None)
        if engine != order.engine:
            other_site = add_engine_sources(site, placement, EngineRequest(), order.weights.model)
            if _fits(shape, other_site, placement):
                yield join(set_switch(_list_command_words(order), "--engine", engine))


def _list_gpu_hints(order: LaunchOrder, shape: Shape, site: Site) -> Iterator[str]:
    """Yield `medley models` if the GPUs of a host with an engine cannot run the model."""
    hosts = [
        host
        for host in site.hosts
        if not site.find_engine_source(host).absent_reason
        and not site.find_engine_source(host).lacking_reason
    ]
    if any(compatibility.find_refusal(site, (host,), order.engine, shape) for host in hosts):
        yield "medley models  # this model needs other GPUs: choose another model or other hosts"


def _list_changes(order: LaunchOrder, shape: Shape, site: Site, problem: NoLayout) -> Iterator[str]:
    """Yield the user's command with one change each; a comment names a change that the words do not show."""
    placement, command = order.placement, _list_command_words(order)
    # A running cluster, or the user, may place ranks differently than the planner did.
    evaluation = None if site.rank_order or placement.partition else problem.evaluation
    sizes, command_without_sizes = placement.sizes, drop_switches(command, _SIZE_SWITCHES)

    def fits_with(sizes: ForcedSizes) -> bool:
        """Return whether it fits with these sizes, by the evaluation or a new plan."""
        if evaluation and evaluation.list_fitting_rows(sizes):
            return True
        if evaluation and sizes == NO_FORCED_SIZES:
            return False
        return _fits(shape, site, placement.replace(sizes=sizes))

    if sizes != NO_FORCED_SIZES and fits_with(NO_FORCED_SIZES):
        yield join(command_without_sizes)
    stages = sizes.stages or sizes.tensor_parallel
    if sizes.tensor_parallel and fits_with(ForcedSizes(stages=stages)):
        yield join(set_switch(command_without_sizes, "--pp", str(stages)))
    yield from _list_shorter_contexts(order, shape, site)
    yield from _list_remedies(order, shape, site, problem, has_evaluation=evaluation is not None)


def _list_remedies(
    order: LaunchOrder,
    shape: Shape,
    site: Site,
    problem: NoLayout,
    *,
    has_evaluation: bool,
) -> Iterator[str]:
    """Yield the command with less context or fewer streams, smaller quantizations, other hosts or models.

    `has_evaluation`: context and streams are from the planner's evaluation, and need no new plan.
    """
    placement, command, remedies = order.placement, _list_command_words(order), problem.remedies
    if remedies is None:
        return
    # Rows of the evaluation have both, by their own arithmetic.
    context, concurrency = _round_context(remedies.context), remedies.concurrency
    if context and (has_evaluation or _fits(shape, site, placement.replace(context=context))):
        yield join(set_switch(command, "--context", str(context)))
    if concurrency and (has_evaluation or _fits(shape, site, placement.replace(concurrency=concurrency))):
        yield join(set_switch(command, "--concurrency", str(concurrency)))
    smaller_quantizations = tuple(_list_smaller_quantizations(order, shape, site, remedies))
    yield from smaller_quantizations
    more_hosts = _suggest_hosts(order, shape, site, remedies)
    if not (context or concurrency or smaller_quantizations or (more_hosts and more_hosts.is_same_kind)):
        yield from _list_other_models(order, site, problem)
    if more_hosts:
        yield more_hosts.command


def _list_shorter_contexts(order: LaunchOrder, shape: Shape, site: Site) -> Iterator[str]:
    """Yield the command with the model's longest context, and the one that allows a longer context."""
    placement, longest = order.placement, find_longest_context(shape, order.engine)
    if not placement.context or placement.context <= longest or placement.allows_longer_context:
        return
    if _fits(shape, site, placement.replace(context=longest)):
        yield join(set_switch(_list_command_words(order), "--context", str(longest)))
    if _fits(shape, site, placement.replace(allows_longer_context=True)):
        risk = "if its maker serves that much: otherwise answers may be wrong"
        yield f"{ENGINE_TABLES[order.engine].context_variable}=1 {join(_list_command_words(order))}  # {risk}"


def _fits(shape: Shape, site: Site, placement: PlacementOptions) -> bool:
    """Return whether it fits with as much memory free as is safe."""
    try:
        return not place_model(shape, site, placement).is_overcommitted
    except Problem:
        return False


def _round_context(context: int) -> int:
    """Return the context in whole steps of tokens; 0 for one that is too short to suggest."""
    if context < _MIN_CONTEXT_TOKENS:
        return 0
    return context // _CONTEXT_STEP_TOKENS * _CONTEXT_STEP_TOKENS or context


class Quantization(Value):
    """Another quantization of a model, and its best layout."""

    name: str
    choice: Choice
    command: str
    """The command that plans it."""

    @property
    def speed_text(self) -> str | None:
        """The predicted speed, if any."""
        prediction = self.choice.prediction
        return f"{prediction.tokens_per_s:.1f} tok/s" if prediction.is_calibrated else None

    @property
    def fit_text(self) -> str:
        """The predicted speed, and a warning if it is overcommitted; empty without both."""
        warning = "less memory free than is safe" if self.choice.is_overcommitted else None
        return ", ".join(filter(None, (self.speed_text, warning)))


def list_quantizations(order: LaunchOrder, shape: Shape, site: Site) -> Iterator[Quantization]:
    """Yield the quantizations with a TOML file that are smaller than this one and fit."""
    for name, model in _find_quantizations(order).items():
        if model.shape and model.shape.weights_bytes < shape.weights_bytes:
            with suppress(Problem):
                choice = place_model(model.shape, add_engine_gaps(site, order.engine, model), order.placement)
                yield Quantization(name, choice, join(_replace_model(order, name)))


def _find_quantizations(order: LaunchOrder) -> dict[str, Model]:
    """Return the other quantizations of the ordered model that have a TOML file."""
    weights, models = order.weights, config.load_models()
    if weights.model is None or weights.model.repository != weights.target:
        return {}
    name = weights.name
    if name not in models:  # it was named by its repository
        name = next(name for name, model in models.items() if model.repository == weights.target)
    # By name first: each file is read when it is looked up.
    quantizations = (
        other for other in models if other != name and remove_format(other) == remove_format(name)
    )
    return {other: models[other] for other in quantizations}


def list_faster_quantizations(order: LaunchOrder, site: Site, choice: Choice) -> list[Quantization]:
    """Return the quantizations that are predicted to be much faster than the choice, the fastest first."""
    if not choice.prediction.is_calibrated:
        return []
    min_tokens_per_s = _MIN_QUANTIZATION_GAIN * choice.prediction.tokens_per_s
    faster = []
    for quantization in list_quantizations(order, choice.workload.shape, site):
        prediction = quantization.choice.prediction
        if prediction.is_calibrated and prediction.tokens_per_s >= min_tokens_per_s:
            faster.append(quantization)
    return sorted(faster, key=lambda quantization: -quantization.choice.prediction.tokens_per_s)


def predict_four_bit_tokens_per_s(order: LaunchOrder, site: Site, choice: Choice) -> float | None:
    """Return the tokens/s with 4-bit weights if medley knows none and they are much faster; else None."""
    four_bit, prediction = quantize_shape(choice.workload.shape, "nvfp4"), choice.prediction
    if four_bit is None or not prediction.is_calibrated or _find_quantizations(order):
        return None
    try:
        rate = place_model(four_bit, site, order.placement).prediction.tokens_per_s
    except Problem:
        return None
    return rate if rate >= _MIN_QUANTIZATION_GAIN * prediction.tokens_per_s else None


def _list_command_words(order: LaunchOrder) -> tuple[str, ...]:
    return order.user_command or ("medley", "plan", order.weights.name)


def _replace_model(order: LaunchOrder, name: str) -> tuple[str, ...]:
    """Return the command with another model, however the user wrote this one."""
    model_word = (order.user_command and order.weights.word) or order.weights.name
    return replace_word(_list_command_words(order), model_word, name)


def _list_smaller_quantizations(
    order: LaunchOrder, shape: Shape, site: Site, remedies: Remedies
) -> Iterator[str]:
    """Yield smaller quantizations that have a TOML file, else one to look for."""
    fitting = list(list_quantizations(order, shape, site))
    for quantization in fitting:
        yield quantization.command + (f"  # {quantization.fit_text}" if quantization.fit_text else "")
    # Do not suggest a quantization that is known to be too large.
    known_formats = {model.shape.weights for model in _find_quantizations(order).values() if model.shape}
    variants = (variant for variant in remedies.variants if variant.weights not in known_formats)
    variant = next((variant for variant in variants if variant.fits), None)
    if variant and not fitting:
        size = f"about {format_gib(variant.size_bytes)} GiB, which fits"
        line = join(_replace_model(order, "ORG/NAME"))
        yield f"{line}  # a repository with {variant.weights} weights: {size}"


def _list_other_models(order: LaunchOrder, site: Site, problem: NoLayout) -> Iterator[str]:
    """Yield the largest known models that fit these hosts, else how large one may be on a single device."""
    models = list(_list_fitting_models(site, order.placement))
    for name, size_bytes in models:
        line = join(_replace_model(order, name))
        yield f"{line}  # another model, which fits: {format_gib(size_bytes)} GiB of weights"
    ranks = [row.fit.ranks for row in problem.evaluation.rows] if problem.evaluation else []
    if models or any(len(row_ranks) > 1 for row_ranks in ranks):
        return
    if ranks:
        (rank,) = ranks[0]
        room_bytes = rank.device.memory_bytes - rank.kv_bytes - rank.overhead_bytes
        if room_bytes > 0:
            line = join(_replace_model(order, "ORG/NAME"))
            size = format_gib(room_bytes)
            yield f"{line}  # a model with at most {size} GiB of weights: no known model is so small"


def _list_fitting_models(site: Site, placement: PlacementOptions) -> Iterator[tuple[str, int]]:
    """Yield the largest models with a shape that fit the site, and the bytes of their weights."""
    room_bytes = sum(device.memory_bytes for device in site.list_devices(placement.gpus))
    candidates = [
        (name, model, model.shape)
        for name, model in config.load_models().items()
        # A model that medley builds itself only tests an installation, so it is not suggested.
        if model.shape and not model.is_built and model.shape.weights_bytes < room_bytes
    ]
    shown = 0
    for name, model, shape in sorted(candidates, key=lambda candidate: -candidate[2].weights_bytes):
        if shown == _MAX_MODELS_SHOWN:
            return
        if _fits(shape, add_engine_gaps(site, placement.engine, model), placement):
            yield name, shape.weights_bytes
            shown += 1


class HostSuggestion(NamedTuple):
    """A command that plans for more or other hosts."""

    command: str
    is_same_kind: bool
    """Whether these hosts are of the kind of the user's largest host."""


def _suggest_hosts(order: LaunchOrder, shape: Shape, site: Site, remedies: Remedies) -> HostSuggestion | None:
    """Return a plan with enough hosts like the largest, else with Sparks; None where neither fits."""
    largest = next(device for device in site.list_devices() if device.host == remedies.largest_host)
    kind = _find_typical_kind(largest)
    placement = order.placement.replace(sizes=ForcedSizes(), host_count=None, gpus=None, partition=None)
    # Where a pipeline is not possible its fewest hosts are no guide.
    min_count, counts = remedies.hosts, _TYPICAL_HOST_COUNTS
    if min_count:
        counts = tuple(range(min_count, min(min_count + _MAX_HOST_COUNTS_TRIED, _MAX_HOST_COUNT + 1)))
    candidates = [(kind, count, remedies.largest_host) for count in counts] if kind else []
    candidates += [("spark", count, "a DGX Spark") for count in _TYPICAL_HOST_COUNTS]
    for name, count, example in candidates:
        hosts = f"{name}:{count}"
        larger_site = add_engine_sources(
            _build_site(hosts), order.placement, EngineRequest(), order.weights.model
        )
        if _fits(shape, larger_site, placement):
            comment = f"plan it for {count} host{'s' * (count > 1)} like {example}"
            command = f"{_format_plan_command(order, hosts)}  # {comment}"
            return HostSuggestion(command, example == remedies.largest_host)
    return None


def _find_typical_kind(device: Device) -> str | None:
    """Return the name in --hosts of a host with this device, and about as much memory."""
    for kind in config.find_table_files("hosts/typical", ".txt"):
        (other, *_) = _build_site(kind).list_devices()
        # The memory tells a Jetson Orin Nano from an AGX Orin, which the driver names alike.
        smaller, larger = sorted(unit.total_bytes or unit.memory_bytes for unit in (other, device))
        has_same_name = device.kind == "cpu" or other.name == device.name
        if other.kind == device.kind and has_same_name and larger <= _MAX_MEMORY_RATIO * smaller:
            return kind
    return None


def _build_site(hosts: str) -> Site:
    return Site({name: SiteHost(facts, find_kind(facts)) for name, facts in build_hosts(hosts).items()})


def _format_plan_command(order: LaunchOrder, hosts: str) -> str:
    words, defaults = ["medley", "plan", order.weights.name, "--hosts", hosts], PlacementOptions()
    for name, field in (
        ("--for", "goal"),
        ("--context", "context"),
        ("--concurrency", "concurrency"),
        ("--kv-type", "kv_type"),
        ("--engine", "engine"),
    ):
        if (value := getattr(order.placement, field)) != getattr(defaults, field):
            words += [name, str(value)]
    return join(words)
