"""Check versions, clocks, kinds and drivers, which must agree on all hosts."""

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping

from medley.cluster import checks
from medley.doctor.checks import (
    ALL_HOSTS,
    NOT_RECORDED,
    Check,
    Examination,
    ExaminedHost,
    Subject,
    all_hosts_check,
    health_check,
    host_check,
)
from medley.host.health.access import Clock
from medley.host.health.software import MedleyFiles
from medley.schema import EngineName

_REQUIRED_EQUAL = {"ray": "Ray", "python": "Python", "vllm": "vLLM", "sglang": "SGLang"}
_ADVISED_EQUAL = {"nccl": "NCCL", "torch": "torch"}
_DRIVER_FIX = "sudo ubuntu-drivers install; sudo reboot  # or as the system's own documents say"
_ENABLE_NTP = ("timedatectl", "set-ntp", "true")


@all_hosts_check("answers", "SSH and medley")
def answers(examination: Examination) -> Iterator[Check]:
    yield from (Subject(name).report_problem(problem) for name, problem in examination.silent_hosts.items())
    yield from (host.report_ok("answers") for host in examination.hosts.values() if host.greeting)


@all_hosts_check("medley", "medley's version")
def medley_version(examination: Examination) -> Iterator[Check]:
    for host in _list_greeted_hosts(examination):
        digest = host.greeting["medley"]
        problem = checks.other_version_problem(host.name, digest, examination.digest or "")
        yield (
            host.report_problem(problem) if problem else host.report_ok(f"version {digest}, the same as here")
        )


@all_hosts_check("time", "clock difference")
def clock_difference(examination: Examination) -> Iterator[Check]:
    for host in _list_greeted_hosts(examination):
        ahead_s = float(host.greeting["ahead_s"])
        if problem := checks.clock_problem(host.name, ahead_s):
            yield host.report_wrong(
                problem.what, cause=problem.cause, fix=host.build_fix(*_ENABLE_NTP, needs_root=True)
            )
        else:
            yield host.report_ok(f"within {max(1.0, abs(ahead_s)):.0f} s of this host's")


def _list_greeted_hosts(examination: Examination) -> Iterator[ExaminedHost]:
    yield from (host for host in examination.hosts.values() if host.greeting and examination.digest)


@health_check("ntp", "clock synchronization", lambda health: health.clock)
def clock_sync(host: ExaminedHost, clock: Clock) -> Iterator[Check]:
    if clock.is_synchronized is None:
        yield host.report_unknown("timedatectl is not installed")
    elif clock.is_synchronized:
        yield host.report_ok("NTP keeps it")
    else:
        yield host.report_improvable(
            "Clock is not synchronized",
            cause=f"NTP is {'on, and has not reached a server' if clock.is_synchronization_on else 'off'}; "
            "unsynchronized clocks drift apart, and certificates and logs then disagree",
            fix="timedatectl timesync-status"
            if clock.is_synchronization_on
            else host.build_fix(*_ENABLE_NTP, needs_root=True),
        )


@host_check("kind", "kind of host")
def kinds(host: ExaminedHost) -> Iterator[Check]:
    """Check that the driver answers and that medley knows the kind of host."""
    if host.kind_problem:
        yield host.report_problem(host.kind_problem)
    elif host.kind:
        warning = host.kind.warning
        # An older driver refuses a field of the query, and medley repeats the query without it.
        if warning and "not a valid field" not in warning:
            yield host.report_improvable(
                warning,
                cause=f"medley takes it for {host.kind.name}: {host.kind.why}",
                fix=_DRIVER_FIX if "no nvidia-smi" in warning else "nvidia-smi  # then fix what it reports",
            )
        else:
            yield host.report_ok(f"{host.kind.name}: {host.kind.why}")


@all_hosts_check("driver", "NVIDIA driver")
def drivers(examination: Examination) -> Iterator[Check]:
    by_kind: dict[str, dict[str, str]] = defaultdict(dict)
    for name, host in examination.hosts.items():
        if host.gpu_kind is None:
            continue
        version = host.facts.driver.version
        if version:
            by_kind[host.gpu_kind.name][name] = version
        if problem := checks.driver_problem(name, host.facts, host.gpu_kind):
            yield host.report_problem(problem)
        elif cuda := checks.find_cuda_version(host.facts):
            yield host.report_ok(f"{version or 'the driver'} runs CUDA {cuda}")
        elif version:
            yield host.report_ok(f"{version} is new enough")
        else:
            yield host.report_unknown("nvidia-smi does not say which CUDA the driver runs")
    for kind, by_host in by_kind.items():
        if len(set(by_host.values())) > 1:
            yield ALL_HOSTS.report_improvable(
                f"hosts of kind {kind} have different drivers",
                cause=_format_by_host(by_host),
                fix="sudo apt-get update; sudo apt-get upgrade; sudo reboot  # on the older ones",
            )


@all_hosts_check("versions", "versions of Ray, Python, engine, NCCL")
def versions(examination: Examination) -> Iterator[Check]:
    """Compare what must be equal on all ranks: the origin of the engines, and the versions of packages."""
    kinds = {name: (host.kind, host.member) for name, host in examination.hosts.items() if host.kind}
    # `medley up` leaves out a host whose engine differs from that of the first host.
    for name, problem in checks.list_engine_mismatches(kinds, examination.engine, next(iter(kinds), "")):
        yield Subject(name).report_problem(problem)
    environments: dict[str, list[dict[str, str]]] = {}
    for name, host in examination.hosts.items():
        if host.health.medley_files is None:
            yield host.report_unknown(NOT_RECORDED)
        elif packages := _list_packages(host, host.health.medley_files, examination.engine):
            environments[name] = packages
        else:
            yield host.report_ok(f"no environment for {examination.engine} yet: it is built at first use")
    by_host = _choose_environments(environments)
    differing = _list_differing(by_host)
    for package in differing:
        yield ALL_HOSTS.report(
            "wrong" if package in _REQUIRED_EQUAL else "better",
            f"{(_REQUIRED_EQUAL | _ADVISED_EQUAL)[package]} differs between the hosts",
            cause=_format_by_host(
                {name: packages.get(package) or "none" for name, packages in by_host.items()}
            ),
            fix="medley env build  # on each of them, with the same medley: git pull, or the same flake",
        )
    for name, package_versions in by_host.items() if not differing else ():
        texts = (
            f"{package} {package_versions[package]}"
            for package in (*_REQUIRED_EQUAL, *_ADVISED_EQUAL)
            if package in package_versions
        )
        yield Subject(name).report_ok(", ".join(texts))


def _list_differing(by_host: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the packages whose versions differ; one that should agree may be absent on a host."""
    required = {name: {packages.get(name) for packages in by_host.values()} for name in _REQUIRED_EQUAL}
    advised = {
        name: {packages[name] for packages in by_host.values() if name in packages} for name in _ADVISED_EQUAL
    }
    return [name for name, values in (required | advised).items() if len(values) > 1]


def _list_packages(host: ExaminedHost, medley_files: MedleyFiles, engine: EngineName) -> list[dict[str, str]]:
    """Return the packages of the virtualenv in cluster.toml, or of each environment that its kind uses."""
    if host.member.env and medley_files.user_packages is not None:
        return [_normalize_packages(medley_files.user_packages)]
    lock = host.kind.table.environments.get(engine) if host.kind else None
    return [
        _normalize_packages(packages)
        for environment, packages in medley_files.packages.items()
        if lock and environment.rpartition("-")[0] == lock
    ]


def _choose_environments(environments: Mapping[str, list[dict[str, str]]]) -> dict[str, dict[str, str]]:
    """Choose one environment of each host: one that all have, if there is one, because old ones remain."""
    for candidate in next(iter(environments.values()), []):
        if all(candidate in packages for packages in environments.values()):
            return dict.fromkeys(environments, candidate)
    return {name: packages[-1] for name, packages in environments.items()}


def _normalize_packages(packages: Mapping[str, str]) -> dict[str, str]:
    """Drop the local part of versions, as +cu130, and give NCCL one name for all CUDA versions."""
    return {
        "nccl" if name.startswith("nvidia_nccl") else name: version.partition("+")[0]
        for name, version in packages.items()
    }


def _format_by_host(by_host: Mapping[str, str]) -> str:
    return ", ".join(f"{host} {version}" for host, version in by_host.items())


@host_check("own-environment", "virtualenv of cluster.toml")
def own_environment(host: ExaminedHost) -> Iterator[Check]:
    env, medley_files = host.member.env, host.health.medley_files
    if not env or "/" not in env:
        return
    # A shell expands ~ only outside of quotes.
    home, folder = ("~/", env[2:]) if env.startswith("~/") else ("", env)
    python = home + shlex.quote(f"{folder}/bin/python")
    if medley_files is None:
        yield host.report_unknown(NOT_RECORDED)
    elif medley_files.user_packages is None:
        yield host.report_wrong(
            f"{env} is not a virtualenv",
            cause="cluster.toml names it as env, and it has no bin/python",
            fix=f"python3.12 -m venv {home}{shlex.quote(folder)}  "
            "# and install the engine in it; or leave env out: one is built",
        )
    elif "ray" not in medley_files.user_programs:
        yield host.report_wrong(
            f"{env} has no ray",
            cause="newer images and wheels of vLLM come without it, and over hosts Ray starts the ranks",
            fix=f"{python} -m pip install 'ray[cgraph]'  # the version that the others have",
        )
    else:
        yield host.report_ok(
            ", ".join(f"{name} {version}" for name, version in medley_files.user_packages.items())
        )
