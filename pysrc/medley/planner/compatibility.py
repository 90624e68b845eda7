"""Decide which engine, kind of host, weight format and architecture go together, by the tables in hosts/."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from medley.environment.engine_source import brings_nvcc, numbers
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host_schema import Arguments as ArgumentsRule
from medley.host_schema import HostTable
from medley.host_schema import Incompatible as IncompatibleRule
from medley.planner import listed
from medley.planner.memory import is_latent
from medley.planner.plan import Arguments, Variables
from medley.planner.remedies import NoLayout
from medley.planner.topology import Topology
from medley.schema import TITLES, EngineName, Shape

_FP8_BITS = 8


def refusal(site: Topology, hosts: Iterable[str], engine: EngineName, shape: Shape) -> str | None:
    """Return why one of these hosts cannot have a rank of this model with this engine, with its name."""
    found = ((host, _reason(site, host, engine, shape)) for host in hosts)
    return next((f"{host}: {because}" for host, because in found if because), None)


def require_host(site: Topology, engine: EngineName, shape: Shape) -> None:
    """Raise a Problem with each reason once if no host can have a rank of this model with this engine."""
    hosts: dict[str | None, list[str]] = {}
    for host in site.hosts:
        hosts.setdefault(_reason(site, host, engine, shape), []).append(host)
    if hosts and None not in hosts:
        raise NoLayout(
            f"{TITLES[engine]} cannot run this model on {listed(site.hosts)}",
            cause="\n".join(f"{listed(names)}: {because}" for because, names in hosts.items()),
            fix="medley models  # choose another model, or other hosts",
        )


def _reason(site: Topology, host: str, engine: EngineName, shape: Shape) -> str | None:
    origin = site.origin(host)
    return origin.absent or origin.lacks or _fault(site, host, engine, shape)


def _fault(site: Topology, host: str, engine: EngineName, shape: Shape) -> str | None:
    """Return what is known against the model in the engine of a lock or of the default image.

    An image or environment of the user's own may have a fix, so nothing is known against it.
    """
    capability, known = site.capability(host) or "", getattr(shape.capabilities, engine)
    unsupported = bool(known) and capability != "" and _major(capability) not in known
    if unsupported and site.engine_version(host, engine):
        takes = listed(f"{major}.x" for major in known)
        return (
            f"{TITLES[engine]} has no attention backend of this model for compute capability {capability}, "
            f"only for {takes}"
        )
    for version, rule in _faults(site, host, engine, shape):
        return f"{TITLES[engine]} {version} {rule.because} ({rule.source})"
    return None


def _faults(
    site: Topology, host: str, engine: EngineName, shape: Shape
) -> Iterator[tuple[str, IncompatibleRule]]:
    """Yield the rules against the model, each with the version of the host's engine."""
    rules = site.hosts[host][1].host.incompatible
    against = [each for each in rules if _concerns(site, host, each, engine, shape)]
    if against and (version := site.engine_version(host, engine)):
        found = (each for each in against if each.before is None or numbers(version) < numbers(each.before))
        yield from ((version, each) for each in found)


def fixes(site: Topology, engine: EngineName, shape: Shape) -> Iterator[str]:
    """Yield a command for each fault of a host that has one, with the hosts that need it."""
    hosts: dict[str, list[str]] = {}
    for host in site.hosts:
        for _, rule in _faults(site, host, engine, shape):
            # An image has its own programs.
            if rule.fix and not site.origin(host).image:
                hosts.setdefault(rule.fix, []).append(host)
    yield from (f"{fix}  # on {listed(names)}" for fix, names in hosts.items())


def has_compiler(site: Topology, host: str, engine: EngineName) -> bool:
    """Return whether CUDA code can be compiled where the engine runs; also where nobody knows."""
    facts, kind = site.hosts[host]
    origin, image = site.origin(host), kind.host.container
    if origin.image:
        return origin.name != image.image or "nvcc" not in image.lacks
    lock = origin.name if host in site.origins else kind.host.environments.get(engine, "")
    if site.pinned or site.engine_version(host, engine) is None or brings_nvcc(lock):
        return True
    return has_toolkit(facts, kind.host)


def has_toolkit(facts: Facts, host: HostTable) -> bool:
    """Return whether the host has an nvcc, of no version that is known to be too old for its GPU."""
    cuda, least = facts.software.cuda, host.toolkit.least_nvcc if host.toolkit else None
    if cuda is None:
        return "nvcc" in facts.software.programs
    return least is None or numbers(cuda) >= numbers(least)


def engine_settings(
    site: Topology, hosts: Collection[str], engine: EngineName, shape: Shape, user_flags: Iterable[str] = ()
) -> tuple[Arguments, Variables]:
    """Return the flags and variables that these hosts need for this model, each with its reason."""
    given = _names(user_flags)
    rules = [
        each
        for each in _arguments(site, hosts, engine, shape)
        if given.isdisjoint(each.unless) and (each.hosts != "several" or len(hosts) > 1)
    ]
    flags = tuple(dict.fromkeys((each.flags, each.why) for each in rules if each.flags))
    variables = ((name, value, each.why) for each in rules for name, value in each.variables.items())
    return flags, tuple(dict.fromkeys(variables))


def needs_cache_bytes(
    site: Topology, hosts: Iterable[str], engine: EngineName, user_flags: Iterable[str] = ()
) -> bool:
    """Return whether the engine must get the size of its KV cache, as the user gave no share of memory."""
    if "--gpu-memory-utilization" in _names(user_flags):
        return False
    return any(engine in site.hosts[host][1].host.memory.cache_in_bytes for host in hosts)


def require_flag_values(
    site: Topology, hosts: Iterable[str], engine: EngineName, user_flags: Sequence[str]
) -> None:
    """Raise a Problem for a user's flag with which the engine of a lock answers wrongly on such a host."""
    for host in hosts:
        version = site.engine_version(host, engine)
        rules = {each.flag: each for each in site.hosts[host][1].host.flag_values if each.engine == engine}
        for word, after in zip(user_flags, (*user_flags, "")[1:], strict=True):
            name, equals, value = word.partition("=")
            rule, value = rules.get(name.replace("_", "-")), value if equals else after
            if rule and version and value not in rule.values:
                raise Problem(
                    f"{TITLES[engine]} {version} cannot serve with {name} {value} on {host}",
                    cause=f"it {rule.because} ({rule.source})",
                    fix=f"leave it out, or give {rule.flag} one of: {', '.join(rule.values)}",
                )


def _names(user_flags: Iterable[str]) -> set[str]:
    return {word.partition("=")[0] for word in user_flags}


def _arguments(
    site: Topology, hosts: Collection[str], engine: EngineName, shape: Shape
) -> Iterator[ArgumentsRule]:
    of_hosts = [
        [each for each in site.hosts[host][1].host.arguments if _concerns(site, host, each, engine, shape)]
        for host in hosts
    ]
    for rules in of_hosts:
        for rule in rules:
            shared = all(any(_alike(rule, each) for each in others) for others in of_hosts)
            if shared or rule.hosts != "all":
                yield rule


def _alike(one: ArgumentsRule, other: ArgumentsRule) -> bool:
    return (one.flags, one.variables) == (other.flags, other.variables)


def _concerns(
    site: Topology, host: str, rule: ArgumentsRule | IncompatibleRule, engine: EngineName, shape: Shape
) -> bool:
    return (
        rule.engine == engine
        and (not rule.experts or (shape.experts > 0 and shape.weights in rule.experts))
        and (not rule.weights or shape.weights in rule.weights)
        and (not rule.architectures or shape.architecture in rule.architectures)
        and (rule.cache is None or (shape.kv_bits == _FP8_BITS and not is_latent(shape)))
        and (not rule.gpus or _major(site.capability(host) or "") in rule.gpus)
        and not (rule.without_nvcc and has_compiler(site, host, engine))
    )


def _major(capability: str) -> str:
    return capability.partition(".")[0]
