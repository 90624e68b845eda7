"""Survey each candidate over ssh, and choose head, names and network of a new cluster."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from medley import config, transcript
from medley.cluster.cluster_file import Cluster
from medley.cluster.discovery.candidates import HostCandidate, is_address, is_valid_host_name, split_target
from medley.cluster.fleet import Fleet, format_host_count, is_this_host
from medley.errors import Problem
from medley.host import facts, kind
from medley.host.facts import GIB, Facts
from medley.host.kind import Kind
from medley.network.fabric.choice import NetworkOptions, find_slowest_mbit
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.per_host import rank_host_links
from medley.network.fabric.speed import format_speed
from medley.network.fabric.subgroups import find_faster_subgroups
from medley.progress import Progress
from medley.values import Value

_FACTS_LIMIT_S = 90


class HostSurvey(Value):
    """The facts of one host, or the Problem why there are none."""

    name: str
    target: str
    is_this_host: bool = False
    hostname: str = ""
    facts: Facts | None = None
    kind: Kind | None = None
    problem: Problem | None = None

    @property
    def is_container_only(self) -> bool:
        """Whether it can run an engine only in a container."""
        table = self.kind.table if self.kind else None
        return bool(table and table.no_environment and table.container.image)

    @property
    def memory_bytes(self) -> int:
        """The bytes of memory for models: those of its GPUs, or the host's if they share it."""
        if self.facts is None:
            return 0
        host_facts, table = self.facts, self.kind.table if self.kind else None
        gpu_bytes = [kind.find_gpu_memory_bytes(gpu, table, host_facts) for gpu in host_facts.gpus]
        # GPUs that share the host's memory count it only once.
        is_shared = all(gpu.memory_bytes is None for gpu in host_facts.gpus)
        return (
            host_facts.memory.total_bytes if is_shared else sum(size_bytes or 0 for size_bytes in gpu_bytes)
        )

    @property
    def description(self) -> str:
        if self.facts is None:
            return f"not reached: {self.problem.cause if self.problem else ''}"
        kind_and_memory = (
            f"{self.kind.name if self.kind else 'unknown kind'}, {self.memory_bytes / GIB:.1f} GiB"
        )
        candidates = rank_host_links(self.name, self.facts, NetworkOptions()).candidates
        if not candidates:
            return f"{kind_and_memory}, no link that other hosts can reach"
        best = candidates[0]
        rdma = " RDMA" if best.port else ""
        return f"{kind_and_memory}, {best.link.name} {best.ip}, {format_speed(best.mbit)}{rdma}"

    @property
    def comments(self) -> Iterator[str]:
        """Yield comments for cluster.toml: the host, and how to fix its problem."""
        yield self.description if self.facts else f"When this file was written it was {self.description}"
        if self.problem:
            yield f"To fix it: {self.problem.fix}"


def use_hostnames(surveys: Mapping[str, HostSurvey]) -> dict[str, HostSurvey]:
    used_names, renamed = set(surveys), {}
    for name, survey in surveys.items():
        hostname = survey.hostname.partition(".")[0]
        is_better = (
            is_address(name) and is_valid_host_name(hostname) and hostname not in {*used_names, "localhost"}
        )
        renamed[hostname if is_better else name] = survey.replace(name=hostname) if is_better else survey
        used_names.add(hostname)
    return renamed


def choose_head(surveys: Mapping[str, HostSurvey], head_option: str | None) -> str:
    """Return the head that the user named, else this host, else the host with the most memory."""
    if head_option:
        for name, survey in surveys.items():
            if head_option in {name, split_target(survey.target)[1]}:
                return name
        raise no_head_problem(head_option, surveys)
    own_name = next((name for name, survey in surveys.items() if survey.is_this_host), None)
    return own_name or max(surveys, key=lambda name: surveys[name].memory_bytes)


def no_head_problem(head_option: str, host_names: Iterable[str]) -> Problem:
    names = tuple(host_names)
    return Problem(
        f"{head_option[:60]} cannot be the head",
        cause=f"the hosts are {', '.join(names)}",
        fix=f"name one of these: --head {names[0]}",
    )


def require_distinct_hosts(surveys: Mapping[str, HostSurvey]) -> None:
    """Raise a Problem for one host under two names, because it would join its own cluster twice."""
    for survey, other in combinations(surveys.values(), 2):
        shared_addresses = _list_addresses(survey) & _list_addresses(other)
        if (
            shared_addresses
            and survey.hostname == other.hostname
            and _list_addresses(survey) == _list_addresses(other)
        ):
            raise Problem(
                f"{survey.name} and {other.name} are one host",
                cause=f"both have the hostname {survey.hostname} and the address {min(shared_addresses)}",
                fix="name it once",
            )


def describe_network(surveys: Mapping[str, HostSurvey]) -> tuple[tuple[str, ...], str | None]:
    """Return comments on the shared network for cluster.toml, and that network."""
    facts_by_host = {name: survey.facts for name, survey in surveys.items() if survey.facts}
    if len(facts_by_host) < 2:  # noqa: PLR2004 - a link has two ends
        return ("Too few hosts answered to choose it.",), None
    try:
        best = choose_fabric(facts_by_host)
    except Problem as problem:
        return (f"No shared network: {problem.what}: {problem.cause}.", f"To fix it: {problem.fix}"), None
    endpoints = ", ".join(
        f"{name} {endpoint.interface} {endpoint.address}" for name, endpoint in best.endpoints.items()
    )
    transport = {"rdma": "RDMA", "tcp": "TCP", "none": ""}[best.transport]
    network = best.networks[0] if best.networks else "no network"
    missing = [name for name, survey in surveys.items() if not survey.facts]
    missing_note = f" Without {', '.join(missing)}: not reached." if missing else ""
    subgroups, idle = find_faster_subgroups(facts_by_host, best, NetworkOptions())
    subgroup_notes = (f"{str(subgroup)[0].upper()}{str(subgroup)[1:]}." for subgroup in subgroups)
    finding_notes = (
        f"But {finding.what}: {finding.cause}. To fix it: {finding.fix}"
        for finding in (*best.findings, *idle)
    )
    speed = format_speed(find_slowest_mbit(best))
    return (
        f"Now that is {network}, {transport} at {speed}: {endpoints}.{missing_note}",
        *subgroup_notes,
        *finding_notes,
    ), network


def _list_addresses(survey: HostSurvey) -> set[str]:
    candidates = (
        rank_host_links(survey.name, survey.facts, NetworkOptions()).candidates if survey.facts else ()
    )
    return {str(candidate.ip) for candidate in candidates}


def survey_hosts(candidates: Mapping[str, HostCandidate], progress: Progress) -> dict[str, HostSurvey]:
    """Survey all candidates concurrently; return the surveys by the hosts' names in the cluster."""
    hosts = {name: {"ssh": candidate.target} for name, candidate in candidates.items()}
    cluster = config.build_table({"hosts": hosts}, Cluster, "the hosts")
    with progress.stage(f"check {format_host_count(candidates)}"), Fleet(cluster, progress) as fleet:
        states = fleet.ask("look", limit_s=_FACTS_LIMIT_S)
        surveys = {}
        for name, candidate in candidates.items():
            hostname, host_facts, host_kind = "", None, None
            if name in states:
                hostname = str(fleet.remotes[name].greeting.get("host", ""))
                host_facts = facts.read_facts(transcript.parse_transcript(str(states[name]["transcript"])))
                with fleet.record_failure(name):
                    host_kind = kind.find_kind(host_facts)
            is_own_host, problem = is_this_host(cluster, name), fleet.failed.get(name)
            surveys[name] = HostSurvey(
                name, candidate.target, is_own_host, hostname, host_facts, host_kind, problem
            )
    return surveys
