"""A visit is one look at a host over ssh: whether it lets us in, medley is there, and what the host is."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from medley import kind
from medley.fabric import Finding, Wishes, fabric
from medley.fabric.alone import alone
from medley.fabric.speed import shown
from medley.facts import Facts
from medley.kind import Kind
from medley.mention import is_address, is_plain, parts
from medley.problem import Problem

_GIB = 1 << 30


@dataclass(frozen=True)
class Visit:
    """Of one host; without facts there is the Problem that says why."""

    name: str
    target: str
    here: bool = False
    called: str = ""
    """The name that it has for itself."""
    facts: Facts | None = None
    kind: Kind | None = None
    problem: Problem | None = None

    @property
    def imaged(self) -> bool:
        """Whether an image is all that it can run an engine out of."""
        host = self.kind.host if self.kind else None
        return bool(host and host.no_environment and host.container.image)

    @property
    def memory_bytes(self) -> int:
        """What a model may lie in: of its GPUs, or its own."""
        if self.facts is None:
            return 0
        found, host = self.facts, self.kind.host if self.kind else None
        own = [kind.gpu_memory_bytes(gpu, host, found) if host else gpu.memory_bytes for gpu in found.gpus]
        # GPUs that share the host's memory have it once.
        shared = all(gpu.memory_bytes is None for gpu in found.gpus)
        return found.memory.total_bytes if shared else sum(each or 0 for each in own)

    @property
    def said(self) -> str:
        """In a line."""
        if self.facts is None:
            return f"not reached: {self.problem.cause if self.problem else ''}"
        what = f"{self.kind.name if self.kind else 'of no known kind'}, {self.memory_bytes / _GIB:.1f} GiB"
        ways = alone(self.name, self.facts, Wishes()).ways
        if not ways:
            return f"{what}, no link that others could reach"
        rdma = " RDMA" if ways[0].port else ""
        return f"{what}, {ways[0].link.name} {ways[0].ip}, {shown(ways[0].mbit)}{rdma}"

    @property
    def about(self) -> str:
        """The same for who reads cluster.toml later."""
        return self.said if self.facts else f"When this was written it was {self.said}"

    @property
    def parts(self) -> tuple[str, ...]:
        return (f"To mend it: {self.problem.fix}",) if self.problem else ()


def named(made: Mapping[str, Visit]) -> dict[str, Visit]:
    """Those that are known by an address alone get the name that they have for themselves."""
    taken, renamed = set(made), {}
    for name, each in made.items():
        own = each.called.partition(".")[0]
        better = is_address(name) and is_plain(own) and own not in {*taken, "localhost"}
        renamed[own if better else name] = replace(each, name=own) if better else each
        taken.add(own)
    return renamed


def head(made: Mapping[str, Visit], wanted: str | None) -> str:
    """The one that is wanted; else this host, the first with the most memory, or the first."""
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
        fix=f"take one of these: --head {names[0]}",
    )


def require_apart(made: Mapping[str, Visit]) -> None:
    """One host under two names would join itself."""
    for one, other in combinations(made.values(), 2):
        same = _addresses(one) & _addresses(other)
        if same and one.called == other.called and _addresses(one) == _addresses(other):
            raise Problem(
                f"{one.name} and {other.name} are one host",
                cause=f"both call themselves {one.called} and have the address {min(same)}",
                fix="name it once",
            )


def wire(made: Mapping[str, Visit]) -> tuple[tuple[str, ...], str | None]:
    """What there is to say of the wire that they share, and its network."""
    found = {name: each.facts for name, each in made.items() if each.facts}
    if len(found) < 2:  # noqa: PLR2004 - a wire has two ends
        return ("Too few hosts answered to say which that is.",), None
    try:
        best = fabric(found)
    except Problem as problem:
        return (f"There is none: {problem.what}: {problem.cause}.", f"To mend it: {problem.fix}"), None
    ends = ", ".join(f"{name} {end.interface} {end.address}" for name, end in best.ends.items())
    mbit = min(end.mbit or 0 for end in best.ends.values())
    how = {"rdma": "RDMA", "tcp": "TCP", "none": ""}[best.transport]
    where = best.networks[0] if best.networks else "no network"
    missing = [name for name, each in made.items() if not each.facts]
    but = f" Without {', '.join(missing)}: not reached." if missing else ""
    return (f"Now that is {where}, {how} at {shown(mbit)}: {ends}.{but}", *_noted(best.findings)), where


def _noted(findings: Iterable[Finding]) -> Iterator[str]:
    for each in findings:
        yield f"But {each.what}: {each.cause}. To mend it: {each.fix}"


def _addresses(visit: Visit) -> set[str]:
    found = alone(visit.name, visit.facts, Wishes()).ways if visit.facts else ()
    return {str(way.ip) for way in found}
