"""What hosts must have alike, and what each is: medley's own text, clocks, kinds, drivers, versions."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from medley import agreement
from medley.doctor.shapes import (
    GROUP,
    UNASKED,
    Case,
    Check,
    Host,
    Mend,
    better,
    mended,
    ok,
    told,
    unknown,
    wrong,
)

_MUST = {"ray": "Ray", "python": "Python", "vllm": "vLLM", "sglang": "SGLang"}
_DRIVER = "sudo ubuntu-drivers install; sudo reboot  # or as the system's own documents say"
_SHOULD = {"nccl": "NCCL", "torch": "torch"}


def answers(case: Case) -> Iterator[Check]:
    yield from (told(host, "wrong", problem) for host, problem in case.silent.items())
    yield from (ok(name, "it answers") for name, host in case.hosts.items() if host.told)


def same_medley(case: Case) -> Iterator[Check]:
    for name, host in _greeted(case):
        problem = next(agreement.differences(name, host.told, case.digest or "", 0), None)
        if problem:
            yield told(name, "wrong", problem)
        else:
            yield ok(name, f"its text is {host.told['medley']}, as here")


def same_time(case: Case) -> Iterator[Check]:
    for name, host in _greeted(case):
        ahead = float(host.told["ahead_s"])
        problem = next(agreement.differences(name, {"medley": ""}, "", ahead), None)
        if problem:
            found = wrong(name, problem.what, cause=problem.cause, fix=problem.fix)
            yield mended(found, Mend(name, ("timedatectl", "set-ntp", "true"), root=True))
        else:
            yield ok(name, f"within {max(1.0, abs(ahead)):.0f} s of this host's")


def _greeted(case: Case) -> Iterator[tuple[str, Host]]:
    yield from ((name, host) for name, host in case.hosts.items() if host.told and case.digest)


def kept_time(host: Host) -> Iterator[Check]:
    clock = host.condition.clock
    if clock is None or clock.right is None:
        yield unknown(host.name, UNASKED if clock is None else "there is no timedatectl to ask")
    elif clock.right:
        yield ok(host.name, "it is kept by NTP")
    else:
        found = better(
            host.name,
            "nothing keeps the clock right",
            cause=f"NTP is {'on, and has not reached a server' if clock.wanted else 'off'}; clocks drift, "
            "and certificates and logs of hosts with them",
            fix="timedatectl timesync-status",
        )
        yield (
            found
            if clock.wanted
            else mended(found, Mend(host.name, ("timedatectl", "set-ntp", "true"), root=True))
        )


def kinds(host: Host) -> Iterator[Check]:
    """What sort of host it is, which says whether its driver answers and its system is one that is known."""
    if host.trouble:
        yield told(host.name, "wrong", host.trouble)
    elif host.kind:
        said = host.kind.warning
        # A driver that is older than a field of the query is asked again without: nothing is lost.
        if said and "not a valid field" not in said:
            yield better(
                host.name,
                said,
                cause=f"it is taken for {host.kind.name}: {host.kind.why}",
                fix=_DRIVER if "no nvidia-smi" in said else "nvidia-smi  # and mend what it says",
            )
        else:
            yield ok(host.name, f"{host.kind.name}: {host.kind.why}")


def drivers(case: Case) -> Iterator[Check]:
    versions: dict[str, dict[str, str]] = defaultdict(dict)
    for name, host in case.hosts.items():
        if host.kind is None or host.kind.host.device == "cpu":
            continue
        found = host.facts.driver
        if found.version:
            versions[host.kind.name][name] = found.version
        problem = next(agreement.driver(name, host.facts, host.kind), None)
        if problem:
            yield told(name, "wrong", problem)
        elif runs := agreement.cuda(host.facts):
            yield ok(name, f"{found.version or 'it'} runs CUDA {runs}")
        elif found.version:
            yield ok(name, f"{found.version} is new enough")
        else:
            yield unknown(name, "nvidia-smi does not say which CUDA the driver runs")
    for kind, by_host in versions.items():
        if len(set(by_host.values())) > 1:
            yield better(
                GROUP,
                f"hosts of kind {kind} have different drivers",
                cause=_listed(by_host),
                fix="sudo apt-get update; sudo apt-get upgrade; sudo reboot  # on the older ones",
            )


def versions(case: Case) -> Iterator[Check]:
    """Of what ranks must have alike, by where each has its engine from and by the packages that lie there."""
    yield from _origins(case)
    every = {name: _packages(host, case) for name, host in case.hosts.items()}
    for name, host in case.hosts.items():
        if host.condition.keeping is None:
            yield unknown(name, UNASKED)
        elif not every[name]:
            yield ok(name, f"no environment for {case.engine} yet: it is built at first use")
    there = _likest({name: packages for name, packages in every.items() if packages})
    differ = [each for each in _MUST if len({packages.get(each) for packages in there.values()}) > 1]
    differ += [each for each in _SHOULD if len({p[each] for p in there.values() if each in p}) > 1]
    for each in differ:
        by_host = {name: packages.get(each) or "none" for name, packages in there.items()}
        state = wrong if each in _MUST else better
        yield state(
            GROUP,
            f"{(_MUST | _SHOULD)[each]} differs between the hosts",
            cause=_listed(by_host),
            fix="medley env build  # on each of them, with the same medley: git pull, or the same flake",
        )
    if not differ:
        for name, packages in there.items():
            yield ok(
                name, ", ".join(f"{each} {packages[each]}" for each in (*_MUST, *_SHOULD) if each in packages)
            )


def _origins(case: Case) -> Iterator[Check]:
    """Hosts whose engine is known to be another than the first one's: up leaves them out."""
    there = {name: (host.kind, host.member) for name, host in case.hosts.items() if host.kind}
    first = next(iter(there), "")
    for name, problem in agreement.origins(there, case.engine, first):
        yield told(name, "wrong", problem)


def _packages(host: Host, case: Case) -> list[dict[str, str]]:
    """Of the environments that its kind has for the engine; of its own where cluster.toml names one."""
    keeping = host.condition.keeping
    if keeping is None:
        return []
    if host.member.env and keeping.own is not None:
        return [_plain(keeping.own)]
    name = host.kind.host.environments.get(case.engine) if host.kind else None
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


def own_environment(host: Host) -> Iterator[Check]:
    """A virtualenv of the user's own, named in cluster.toml: Ray and an engine are in it."""
    named, keeping = host.member.env, host.condition.keeping
    if not named or "/" not in named:
        return
    if keeping is None:
        yield unknown(host.name, UNASKED)
    elif keeping.own is None:
        yield wrong(
            host.name,
            f"{named} is no virtualenv",
            cause="cluster.toml names it as env, and it has no bin/python",
            fix=f"python3.12 -m venv {named}  # and install the engine in it; or leave env out: one is built",
        )
    elif "ray" not in keeping.programs:
        yield wrong(
            host.name,
            f"{named} has no ray",
            cause="newer images and wheels of vLLM come without it, and over hosts Ray starts the ranks",
            fix=f"{named}/bin/python -m pip install 'ray[cgraph]'  # the version that the others have",
        )
    else:
        yield ok(host.name, ", ".join(f"{name} {version}" for name, version in keeping.own.items()))
