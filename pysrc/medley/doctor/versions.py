"""Versions, clocks, kinds, drivers that must agree."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from medley.cluster import checks
from medley.doctor.checks import (
    ALL,
    UNASKED,
    Case,
    Check,
    ExaminedHost,
    Subject,
    case_check,
    health_check,
    host_check,
)
from medley.host.health.access import Clock
from medley.host.health.software import Leftovers
from medley.schema import EngineName

_MUST = {"ray": "Ray", "python": "Python", "vllm": "vLLM", "sglang": "SGLang"}
_SHOULD = {"nccl": "NCCL", "torch": "torch"}
_DRIVER = "sudo ubuntu-drivers install; sudo reboot  # or as the system's own documents say"
_NTP_ON = ("timedatectl", "set-ntp", "true")


@case_check("answers", "SSH and medley")
def answers(case: Case) -> Iterator[Check]:
    yield from (Subject(name).failed(problem) for name, problem in case.silent.items())
    yield from (host.ok("answers") for host in case.hosts.values() if host.greeting)


@case_check("medley", "medley's version")
def same_medley(case: Case) -> Iterator[Check]:
    for host in _greeted(case):
        theirs = host.greeting["medley"]
        problem = checks.other_medley(host.name, theirs, case.digest or "")
        yield host.failed(problem) if problem else host.ok(f"version {theirs}, the same as here")


@case_check("time", "clock difference")
def same_time(case: Case) -> Iterator[Check]:
    for host in _greeted(case):
        ahead = float(host.greeting["ahead_s"])
        if problem := checks.clock_off(host.name, ahead):
            yield host.wrong(problem.what, cause=problem.cause, fix=host.mend(*_NTP_ON, root=True))
        else:
            yield host.ok(f"within {max(1.0, abs(ahead)):.0f} s of this host's")


def _greeted(case: Case) -> Iterator[ExaminedHost]:
    yield from (host for host in case.hosts.values() if host.greeting and case.digest)


@health_check("ntp", "clock synchronization", lambda health: health.clock)
def kept_time(host: ExaminedHost, clock: Clock) -> Iterator[Check]:
    if clock.right is None:
        yield host.unknown("timedatectl is not installed")
    elif clock.right:
        yield host.ok("NTP keeps it")
    else:
        yield host.better(
            "Clock is not synchronized",
            cause=f"NTP is {'on, and has not reached a server' if clock.wanted else 'off'}; unsynchronized "
            "clocks drift apart, and certificates and logs then disagree",
            fix="timedatectl timesync-status" if clock.wanted else host.mend(*_NTP_ON, root=True),
        )


@host_check("kind", "kind of host")
def kinds(host: ExaminedHost) -> Iterator[Check]:
    """Whether its driver answers and its system is one that is known."""
    if host.kind_problem:
        yield host.failed(host.kind_problem)
    elif host.kind:
        said = host.kind.warning
        # A driver that is older than a field of the query is asked again without: nothing is lost.
        if said and "not a valid field" not in said:
            yield host.better(
                said,
                cause=f"medley takes it for {host.kind.name}: {host.kind.why}",
                fix=_DRIVER if "no nvidia-smi" in said else "nvidia-smi  # then fix what it reports",
            )
        else:
            yield host.ok(f"{host.kind.name}: {host.kind.why}")


@case_check("driver", "NVIDIA driver")
def drivers(case: Case) -> Iterator[Check]:
    by_kind: dict[str, dict[str, str]] = defaultdict(dict)
    for name, host in case.hosts.items():
        if host.gpu_kind is None:
            continue
        version = host.facts.driver.version
        if version:
            by_kind[host.gpu_kind.name][name] = version
        if problem := checks.old_driver(name, host.facts, host.gpu_kind):
            yield host.failed(problem)
        elif runs := checks.cuda(host.facts):
            yield host.ok(f"{version or 'the driver'} runs CUDA {runs}")
        elif version:
            yield host.ok(f"{version} is new enough")
        else:
            yield host.unknown("nvidia-smi does not say which CUDA the driver runs")
    for kind, by_host in by_kind.items():
        if len(set(by_host.values())) > 1:
            yield ALL.better(
                f"hosts of kind {kind} have different drivers",
                cause=_listed(by_host),
                fix="sudo apt-get update; sudo apt-get upgrade; sudo reboot  # on the older ones",
            )


@case_check("versions", "versions of Ray, Python, engine, NCCL")
def versions(case: Case) -> Iterator[Check]:
    """Of what ranks must have alike, by where each has its engine from and by the packages that lie there."""
    kinds = {name: (host.kind, host.member) for name, host in case.hosts.items() if host.kind}
    # Up leaves out a host whose engine is known to be another than the first one's.
    for name, problem in checks.origins(kinds, case.engine, next(iter(kinds), "")):
        yield Subject(name).failed(problem)
    every: dict[str, list[dict[str, str]]] = {}
    for name, host in case.hosts.items():
        if host.health.keeping is None:
            yield host.unknown(UNASKED)
        elif packages := _packages(host, host.health.keeping, case.engine):
            every[name] = packages
        else:
            yield host.ok(f"no environment for {case.engine} yet: it is built at first use")
    there = _likest(every)
    differ = [each for each in _MUST if len({found.get(each) for found in there.values()}) > 1]
    differ += [each for each in _SHOULD if len({p[each] for p in there.values() if each in p}) > 1]
    for each in differ:
        yield ALL.report(
            "wrong" if each in _MUST else "better",
            f"{(_MUST | _SHOULD)[each]} differs between the hosts",
            cause=_listed({name: found.get(each) or "none" for name, found in there.items()}),
            fix="medley env build  # on each of them, with the same medley: git pull, or the same flake",
        )
    for name, found in there.items() if not differ else ():
        named = (f"{each} {found[each]}" for each in (*_MUST, *_SHOULD) if each in found)
        yield Subject(name).ok(", ".join(named))


def _packages(host: ExaminedHost, keeping: Leftovers, engine: EngineName) -> list[dict[str, str]]:
    """Of the environments that its kind has for the engine; of its own where cluster.toml names one."""
    if host.member.env and keeping.own is not None:
        return [_plain(keeping.own)]
    name = host.kind.host.environments.get(engine) if host.kind else None
    named = keeping.packages.items()
    return [_plain(packages) for each, packages in named if name and each.rpartition("-")[0] == name]


def _likest(every: Mapping[str, list[dict[str, str]]]) -> dict[str, dict[str, str]]:
    """One of each host: that which all have, where there is one, for old ones lie beside it."""
    for first in next(iter(every.values()), []):
        if all(first in each for each in every.values()):
            return dict.fromkeys(every, first)
    return {name: each[-1] for name, each in every.items()}


def _plain(packages: Mapping[str, str]) -> dict[str, str]:
    """Without what a build adds for its device, and with NCCL by one name."""
    return {
        "nccl" if name.startswith("nvidia_nccl") else name: version.partition("+")[0]
        for name, version in packages.items()
    }


def _listed(by_host: Mapping[str, str]) -> str:
    return ", ".join(f"{host} {version}" for host, version in by_host.items())


@host_check("own-environment", "virtualenv of cluster.toml")
def own_environment(host: ExaminedHost) -> Iterator[Check]:
    named, keeping = host.member.env, host.health.keeping
    if not named or "/" not in named:
        return
    if keeping is None:
        yield host.unknown(UNASKED)
    elif keeping.own is None:
        yield host.wrong(
            f"{named} is not a virtualenv",
            cause="cluster.toml names it as env, and it has no bin/python",
            fix=f"python3.12 -m venv {named}  # and install the engine in it; or leave env out: one is built",
        )
    elif "ray" not in keeping.programs:
        yield host.wrong(
            f"{named} has no ray",
            cause="newer images and wheels of vLLM come without it, and over hosts Ray starts the ranks",
            fix=f"{named}/bin/python -m pip install 'ray[cgraph]'  # the version that the others have",
        )
    else:
        yield host.ok(", ".join(f"{name} {version}" for name, version in keeping.own.items()))
