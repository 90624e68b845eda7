"""Decide which engines, hosts, weight formats and architectures go together, by the tables in hosts/."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from medley.environment.engine_source import has_matching_nvcc, is_older
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host_schema import Arguments as ArgumentsRule
from medley.host_schema import HostTable
from medley.host_schema import Incompatible as IncompatibleRule
from medley.planner import join_names
from medley.planner.memory import is_latent
from medley.planner.plan import Arguments, Variables
from medley.planner.remedies import NoLayout
from medley.planner.site import Site
from medley.schema import TITLES, EngineName, Shape

_FP8_BITS = 8


def find_refusal(site: Site, hosts: Iterable[str], engine: EngineName, shape: Shape) -> str | None:
    """Return why one of these hosts cannot have a rank of this model with this engine, with its name."""
    reasons = ((host, _find_host_refusal(site, host, engine, shape)) for host in hosts)
    return next((f"{host}: {reason}" for host, reason in reasons if reason), None)


def require_capable_host(site: Site, engine: EngineName, shape: Shape) -> None:
    """Raise a Problem with each reason once if no host can have a rank of this model with this engine."""
    hosts: dict[str | None, list[str]] = {}
    for host in site.hosts:
        hosts.setdefault(_find_host_refusal(site, host, engine, shape), []).append(host)
    if hosts and None not in hosts:
        raise NoLayout(
            f"{TITLES[engine]} cannot run this model on {join_names(site.hosts)}",
            cause="\n".join(f"{join_names(names)}: {reason}" for reason, names in hosts.items()),
            fix="medley models  # choose another model, or other hosts",
        )


def _find_host_refusal(site: Site, host: str, engine: EngineName, shape: Shape) -> str | None:
    """Return why a host cannot have a rank of this model; None if it can."""
    source = site.find_engine_source(host)
    return source.absent_reason or source.lacking_reason or _find_fault(site, host, engine, shape)


def _find_fault(site: Site, host: str, engine: EngineName, shape: Shape) -> str | None:
    """Return why the engine of a lock or of the default image cannot run the model; None if it can.

    Return None also for the user's own image or environment, because it may have a fix.
    """
    capability, supported = site.find_capability(host) or "", getattr(shape.capabilities, engine)
    is_unsupported = bool(supported) and capability != "" and _get_major_version(capability) not in supported
    if is_unsupported and site.find_engine_version(host, engine):
        supported_names = join_names(f"{major}.x" for major in supported)
        return (
            f"{TITLES[engine]} has no attention backend of this model for compute capability {capability}, "
            f"only for {supported_names}"
        )
    for version, rule in _list_faults(site, host, engine, shape):
        return f"{TITLES[engine]} {version} {rule.because} ({rule.source})"
    return None


def _list_faults(
    site: Site, host: str, engine: EngineName, shape: Shape
) -> Iterator[tuple[str, IncompatibleRule]]:
    """Yield the rules that exclude the model, each with the version of the host's engine."""
    rules = site.hosts[host].kind.table.incompatible
    matching_rules = [rule for rule in rules if _applies_to(site, host, rule, engine, shape)]
    if matching_rules and (version := site.find_engine_version(host, engine)):
        broken = (rule for rule in matching_rules if rule.before is None or is_older(version, rule.before))
        yield from ((version, rule) for rule in broken)


def list_fixes(site: Site, engine: EngineName, shape: Shape) -> Iterator[str]:
    """Yield a command for each fault of a host that has one, with the hosts that need it."""
    hosts: dict[str, list[str]] = {}
    for host in site.hosts:
        for _, rule in _list_faults(site, host, engine, shape):
            # The fix installs a program on the host, and an image uses only its own programs.
            if rule.fix and not site.find_engine_source(host).is_image:
                hosts.setdefault(rule.fix, []).append(host)
    yield from (f"{fix}  # on {join_names(names)}" for fix, names in hosts.items())


def has_compiler(site: Site, host: str, engine: EngineName) -> bool:
    """Return whether CUDA code can be compiled where the engine runs; True if that is unknown."""
    facts, kind = site.hosts[host]
    source, image = site.find_engine_source(host), kind.table.container
    if source.is_image:
        return source.name != image.image or "nvcc" not in image.lacks
    lock = source.name if host in site.engine_sources else kind.table.environments.get(engine, "")
    if site.has_nix_toolkit or site.find_engine_version(host, engine) is None or has_matching_nvcc(lock):
        return True
    return has_toolkit(facts, kind.table)


def has_toolkit(facts: Facts, table: HostTable) -> bool:
    """Return whether the host has an nvcc that is not known to be too old for its GPU."""
    cuda, min_version = facts.software.cuda, table.toolkit.least_nvcc if table.toolkit else None
    if cuda is None:
        return "nvcc" in facts.software.programs
    return min_version is None or not is_older(cuda, min_version)


def list_engine_settings(
    site: Site, hosts: Collection[str], engine: EngineName, shape: Shape, user_flags: Iterable[str] = ()
) -> tuple[Arguments, Variables]:
    """Return the flags and variables that these hosts need for this model, each with its reason."""
    names = _list_flag_names(user_flags)
    rules = [
        rule
        for rule in _list_rules(site, hosts, engine, shape)
        if names.isdisjoint(rule.unless) and (rule.hosts != "several" or len(hosts) > 1)
    ]
    flags = tuple(dict.fromkeys((rule.flags, rule.why) for rule in rules if rule.flags))
    variables = ((name, value, rule.why) for rule in rules for name, value in rule.variables.items())
    return flags, tuple(dict.fromkeys(variables))


def needs_cache_bytes(
    site: Site, hosts: Iterable[str], engine: EngineName, user_flags: Iterable[str] = ()
) -> bool:
    """Return whether the engine needs the size of its KV cache, because the user gave no share of memory."""
    if "--gpu-memory-utilization" in _list_flag_names(user_flags):
        return False
    return any(engine in site.hosts[host].kind.table.memory.cache_in_bytes for host in hosts)


def require_flag_values(
    site: Site, hosts: Iterable[str], engine: EngineName, user_flags: Sequence[str]
) -> None:
    """Raise a Problem for a value of a user's flag with which the engine of a lock answers wrongly."""
    for host in hosts:
        version = site.find_engine_version(host, engine)
        rules = {rule.flag: rule for rule in site.hosts[host].kind.table.flag_values if rule.engine == engine}
        for argument, next_argument in zip(user_flags, (*user_flags, "")[1:], strict=True):
            name, equals, value = argument.partition("=")
            rule, value = rules.get(name.replace("_", "-")), value if equals else next_argument
            if rule and version and value not in rule.values:
                raise Problem(
                    f"{TITLES[engine]} {version} cannot serve with {name} {value} on {host}",
                    cause=f"it {rule.because} ({rule.source})",
                    fix=f"leave it out, or give {rule.flag} one of: {', '.join(rule.values)}",
                )


def _list_flag_names(user_flags: Iterable[str]) -> set[str]:
    return {argument.partition("=")[0] for argument in user_flags}


def _list_rules(
    site: Site, hosts: Collection[str], engine: EngineName, shape: Shape
) -> Iterator[ArgumentsRule]:
    """Yield the rules of each host that concern the model; a rule for all hosts only if all have it."""
    rules_by_host = []
    for host in hosts:
        rules = site.hosts[host].kind.table.arguments
        rules_by_host.append([rule for rule in rules if _applies_to(site, host, rule, engine, shape)])
    for matching_rules in rules_by_host:
        for rule in matching_rules:
            is_shared = all(
                any(_has_same_settings(rule, candidate) for candidate in candidates)
                for candidates in rules_by_host
            )
            if is_shared or rule.hosts != "all":
                yield rule


def _has_same_settings(first: ArgumentsRule, second: ArgumentsRule) -> bool:
    return (first.flags, first.variables) == (second.flags, second.variables)


def _applies_to(
    site: Site, host: str, rule: ArgumentsRule | IncompatibleRule, engine: EngineName, shape: Shape
) -> bool:
    """Return whether a rule of a host holds for this engine and model."""
    return (
        rule.engine == engine
        and (not rule.experts or (shape.experts > 0 and shape.weights in rule.experts))
        and (not rule.weights or shape.weights in rule.weights)
        and (not rule.architectures or shape.architecture in rule.architectures)
        and (rule.cache is None or (shape.kv_bits == _FP8_BITS and not is_latent(shape)))
        and (not rule.gpus or _get_major_version(site.find_capability(host) or "") in rule.gpus)
        and not (rule.without_nvcc and has_compiler(site, host, engine))
    )


def _get_major_version(capability: str) -> str:
    return capability.partition(".")[0]
