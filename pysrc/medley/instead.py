"""Instead of what does not fit: what was typed, changed so that it does, each planned before it is named."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from shlex import join

from medley import apart, cabled, cluster, config, origin, origins
from medley.imagined import imagined
from medley.layout.candidates import Sizes
from medley.layout.choose import Choice
from medley.layout.fit import gib
from medley.layout.remedies import NoLayout, Remedies
from medley.layout.shapes import Device
from medley.placement import Wanted, placement
from medley.predict import Prediction
from medley.problem import Problem
from medley.recipe import Order
from medley.recognised import kind_of
from medley.retyped import renamed, switched, without
from medley.site import Site
from medley.tables import Shape

_SIZES = ("--tp", "--pp", "--dp")
_GRAIN = 1024
_LEAST_CONTEXT = 16
_MOST_HOSTS = 64
"""That may be imagined."""
_TRIED = 3
_NEAR = 1.25
"""Memory of two hosts without a GPU that are taken to be alike."""


def placed(order: Order, shape: Shape, site: Site) -> Choice[Prediction]:
    """Where it lies, with a warning where idle ports would make it faster.

    Where it does not fit, the Problem's fix is what to type instead. That says too how hosts that are apart
    would come together.
    """
    try:
        choice = placement(shape, site, order.wanted)
        gained = cabled.gain(shape, site, order.wanted, choice)
        return replace(choice, warnings=(*choice.warnings, *gained))
    except NoLayout as problem:
        changed = _changes(order, shape, site, problem.remedies)
        found = (*_brought_back(site), *changed, *apart.remedies(site.origins))
        fix = "\n".join(found) or problem.fix
        raise Problem(problem.what, cause=problem.cause, fix=fix, status=problem.status) from problem


def _brought_back(site: Site) -> Iterator[str]:
    """Hosts of cluster.toml that are missing in the cluster which runs."""
    if not site.order or cluster.file() is None:
        return
    here, wanted = len(site.hosts), len(cluster.read().hosts)
    if wanted > here:
        yield f"medley up  # {here} of the {wanted} hosts of cluster.toml are here; then the same again"


def _changes(order: Order, shape: Shape, site: Site, remedies: Remedies | None) -> Iterator[str]:
    """As commands; behind # what they change, where it does not show."""
    wanted, typed = order.wanted, order.typed or ("medley", "plan", order.weights.name)
    yield from _otherwise_cut(typed, shape, site, wanted)
    if wanted.context and wanted.context > shape.context:
        yield join(switched(typed, "--context", str(shape.context)))
    if remedies is None:
        return
    context = _rounded(remedies.context)
    if context and _fits(shape, site, replace(wanted, context=context)):
        yield join(switched(typed, "--context", str(context)))
    many = remedies.concurrency
    if many and _fits(shape, site, replace(wanted, concurrency=many)):
        yield join(switched(typed, "--concurrency", str(many)))
    yield from _smaller(order, typed, site, remedies)
    yield from _more_hosts(order, shape, site, remedies)


def _otherwise_cut(typed: tuple[str, ...], shape: Shape, site: Site, wanted: Wanted) -> Iterator[str]:
    """Without the sizes that were forced, or by layers instead of across them."""
    sizes, free = wanted.sizes, without(typed, _SIZES)
    if sizes != Sizes() and _fits(shape, site, replace(wanted, sizes=Sizes())):
        yield join(free)
    stages = sizes.stages or sizes.tensor
    if sizes.tensor and _fits(shape, site, replace(wanted, sizes=Sizes(stages=stages))):
        yield join(switched(free, "--pp", str(stages)))


def _fits(shape: Shape, site: Site, wanted: Wanted) -> bool:
    try:
        placement(shape, site, wanted)
    except Problem:
        return False
    return True


def _rounded(context: int) -> int:
    """A number that people would type, no larger."""
    return 0 if context < _LEAST_CONTEXT else context // _GRAIN * _GRAIN or context


def _smaller(order: Order, typed: tuple[str, ...], site: Site, remedies: Remedies) -> Iterator[str]:
    """The same model as it is published in fewer bits: one that has a table, else what to look for."""
    known = config.models()
    name = next((name for name, each in known.items() if each.repository == order.weights.target), None)
    siblings = {each: model.shape for each, model in known.items() if name and each.startswith(f"{name}-")}
    fitting = [each for each, shape in siblings.items() if shape and _fits(shape, site, order.wanted)]
    for each in fitting:
        yield join(renamed(typed, order.weights.name, each))
    variant = next((each for each in remedies.variants if each.fits), None)
    if variant and not fitting:
        size = f"about {gib(variant.size_bytes)} GiB, which fits"
        line = join(renamed(typed, order.weights.name, "ORG/NAME"))
        yield f"{line}  # a repository that has it in {variant.weights}: {size}"


def _more_hosts(order: Order, shape: Shape, site: Site, remedies: Remedies) -> Iterator[str]:
    """As many like the largest as it takes, where it is known what such a host is like."""
    if not remedies.hosts:
        return
    kind = _typical(next(each for each in site.devices() if each.host == remedies.host))
    free = replace(order.wanted, sizes=Sizes(), hosts=None, gpus=None, partition=None)
    for number in islice(count(remedies.hosts), _TRIED) if kind else ():
        if number <= _MOST_HOSTS and _fits(shape, _with_engines(order, f"{kind}:{number}"), free):
            yield f"{_plan(order, f'{kind}:{number}')}  # what {number} hosts like {remedies.host} would do"
            return
    yield f"{remedies.hosts} hosts like {remedies.host} would hold it, as a pipeline"


def _typical(device: Device) -> str | None:
    """What --hosts calls a host with this device."""
    for kind in config.files("hosts/typical", ".txt"):
        (other, *_) = _site(kind).devices()
        alike = max(other.memory_bytes, device.memory_bytes) <= _NEAR * min(
            other.memory_bytes, device.memory_bytes
        )
        if other.kind == device.kind and (alike if device.kind == "cpu" else other.name == device.name):
            return kind
    return None


def _site(hosts: str) -> Site:
    return Site({name: (facts, kind_of(facts)) for name, facts in imagined(hosts).items()})


def _with_engines(order: Order, hosts: str) -> Site:
    return origins.chosen(_site(hosts), order.wanted, origin.Asked(), order.weights.model)


def _plan(order: Order, hosts: str) -> str:
    """`medley plan` of the same on other hosts."""
    wanted = order.wanted
    usual = Wanted()
    words = ["medley", "plan", order.weights.name, "--hosts", hosts]
    switches = {
        "--for": (wanted.goal, usual.goal),
        "--context": (wanted.context, usual.context),
        "--concurrency": (wanted.concurrency, usual.concurrency),
        "--kv-type": (wanted.kv_type, usual.kv_type),
        "--engine": (wanted.engine, usual.engine),
    }
    for name, (value, default) in switches.items():
        if value != default:
            words += [name, str(value)]
    return join(words)
