"""Survey each candidate over ssh, and choose head, names and network of a new cluster."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from medley import config, transcript
from medley.cluster import Cluster
from medley.cluster.discovery import HostCandidate, is_address, is_plain, parts
from medley.cluster.fleet import Fleet, counted, is_here
from medley.errors import Problem
from medley.host import facts, kind
from medley.host.facts import GIB, Facts
from medley.host.kind import Kind
from medley.network.fabric import choose_fabric
from medley.network.fabric.per_host import rank_host_links
from medley.network.fabric.subgroups import find_faster_subgroups
from medley.network.fabric.types import NetworkOptions, find_slowest_mbit, format_speed
from medley.progress import Progress

_LOOK_LIMIT_S = 90


@dataclass(frozen=True)
class HostSurvey:
    """The facts of one host, or the Problem why there are none."""

    name: str
    target: str
    here: bool = False
    called: str = ""
    facts: Facts | None = None
    kind: Kind | None = None
    problem: Problem | None = None

    @property
    def imaged(self) -> bool:
        """Whether it can run an engine only in a container."""
        host = self.kind.host if self.kind else None
        return bool(host and host.no_environment and host.container.image)

    @property
    def memory_bytes(self) -> int:
        """The memory for models: of its GPUs, or the host's."""
        if self.facts is None:
            return 0
        found, host = self.facts, self.kind.host if self.kind else None
        own = [kind.find_gpu_memory_bytes(gpu, host, found) for gpu in found.gpus]
        # GPUs that share the host's memory count it only once.
        shared = all(gpu.memory_bytes is None for gpu in found.gpus)
        return found.memory.total_bytes if shared else sum(each or 0 for each in own)

    @property
    def said(self) -> str:
        if self.facts is None:
            return f"not reached: {self.problem.cause if self.problem else ''}"
        what = f"{self.kind.name if self.kind else 'unknown kind'}, {self.memory_bytes / GIB:.1f} GiB"
        ways = rank_host_links(self.name, self.facts, NetworkOptions()).candidates
        if not ways:
            return f"{what}, no link that other hosts can reach"
        rdma = " RDMA" if ways[0].port else ""
        return f"{what}, {ways[0].link.name} {ways[0].ip}, {format_speed(ways[0].mbit)}{rdma}"

    @property
    def comments(self) -> Iterator[str]:
        """Yield comments for cluster.toml: the host, and how to fix its problem."""
        yield self.said if self.facts else f"When this file was written it was {self.said}"
        if self.problem:
            yield f"To fix it: {self.problem.fix}"


def with_own_names(made: Mapping[str, HostSurvey]) -> dict[str, HostSurvey]:
    taken, renamed = set(made), {}
    for name, each in made.items():
        own = each.called.partition(".")[0]
        better = is_address(name) and is_plain(own) and own not in {*taken, "localhost"}
        renamed[own if better else name] = replace(each, name=own) if better else each
        taken.add(own)
    return renamed


def chosen_head(made: Mapping[str, HostSurvey], wanted: str | None) -> str:
    """Return the wanted head, else this host, else the host with the most memory."""
    if wanted:
        found = next((name for name, each in made.items() if wanted in {name, parts(each.target)[1]}), None)
        if found is None:
            raise no_head(wanted, made)
        return found
    here = next((name for name, each in made.items() if each.here), None)
    return here or max(made, key=lambda name: made[name].memory_bytes)


def no_head(wanted: str, among: Iterable[str]) -> Problem:
    names = tuple(among)
    return Problem(
        f"{wanted[:60]} cannot be the head",
        cause=f"the hosts are {', '.join(names)}",
        fix=f"name one of these: --head {names[0]}",
    )


def require_distinct(made: Mapping[str, HostSurvey]) -> None:
    """Raise a Problem for one host under two names, because it would join itself."""
    for one, other in combinations(made.values(), 2):
        same = _addresses(one) & _addresses(other)
        if same and one.called == other.called and _addresses(one) == _addresses(other):
            raise Problem(
                f"{one.name} and {other.name} are one host",
                cause=f"both have the hostname {one.called} and the address {min(same)}",
                fix="name it once",
            )


def shared_network(made: Mapping[str, HostSurvey]) -> tuple[tuple[str, ...], str | None]:
    """Return comments on the shared network for cluster.toml, and that network."""
    found = {name: each.facts for name, each in made.items() if each.facts}
    if len(found) < 2:  # noqa: PLR2004 - a link has two ends
        return ("Too few hosts answered to choose it.",), None
    try:
        best = choose_fabric(found)
    except Problem as problem:
        return (f"No shared network: {problem.what}: {problem.cause}.", f"To fix it: {problem.fix}"), None
    ends = ", ".join(f"{name} {end.interface} {end.address}" for name, end in best.endpoints.items())
    how = {"rdma": "RDMA", "tcp": "TCP", "none": ""}[best.transport]
    where = best.networks[0] if best.networks else "no network"
    missing = [name for name, each in made.items() if not each.facts]
    but = f" Without {', '.join(missing)}: not reached." if missing else ""
    subgroups, idle = find_faster_subgroups(found, best, NetworkOptions())
    faster = (f"{str(part)[0].upper()}{str(part)[1:]}." for part in subgroups)
    noted = (f"But {each.what}: {each.cause}. To fix it: {each.fix}" for each in (*best.findings, *idle))
    return (
        f"Now that is {where}, {how} at {format_speed(find_slowest_mbit(best))}: {ends}.{but}",
        *faster,
        *noted,
    ), where


def _addresses(visit: HostSurvey) -> set[str]:
    found = rank_host_links(visit.name, visit.facts, NetworkOptions()).candidates if visit.facts else ()
    return {str(way.ip) for way in found}


def survey_hosts(chosen: Mapping[str, HostCandidate], watch: Progress) -> dict[str, HostSurvey]:
    """Survey all of them concurrently; returns them by their names in the cluster."""
    hosts = {name: {"ssh": each.target} for name, each in chosen.items()}
    cluster = config.build({"hosts": hosts}, Cluster, "the hosts")
    with watch.stage(f"check {counted(chosen)}"), Fleet(cluster, watch) as everyone:
        looks = everyone.ask("look", limit_s=_LOOK_LIMIT_S)
        made = {}
        for name, each in chosen.items():
            called, found, known = "", None, None
            if name in looks:
                called = str(everyone.remotes[name].greeting.get("host", ""))
                found = facts.read_facts(transcript.parse(str(looks[name]["transcript"])))
                with everyone.failing(name):
                    known = kind.find_kind(found)
            here, problem = is_here(cluster, name), everyone.failed.get(name)
            made[name] = HostSurvey(name, each.target, here, called, found, known, problem)
    return made
