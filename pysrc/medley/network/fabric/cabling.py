"""Name the shape of a cabling: pair, line, ring, mesh, or star with a switch."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal

Shape = Literal["pair", "double pair", "line", "ring", "mesh", "star", "partial mesh"]

_SEPARATOR = " – "
_RING = 3


@dataclass(frozen=True)
class Cable:
    """A cable between two hosts; both interfaces of a QSFP port are one cable."""

    hosts: tuple[str, str]
    interfaces: tuple[tuple[str, ...], tuple[str, ...]]
    """At each end, in PCI order."""
    networks: tuple[str, ...]

    def __str__(self) -> str:
        ends = zip(self.hosts, self.interfaces, strict=True)
        return _SEPARATOR.join(f"{host} {names[0]}" for host, names in ends)


@dataclass(frozen=True)
class CabledGroup:
    """Hosts connected by cables or a switch, in their order along a line or ring."""

    shape: Shape
    hosts: tuple[str, ...]
    cables: tuple[Cable, ...] = ()
    networks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.shape if self.shape in {"pair", "double pair"} else f"{self.shape} of {len(self.hosts)}"

    def __str__(self) -> str:
        if self.shape in {"mesh", "star"}:
            return f"{self.name}: {', '.join(self.hosts)}" + (" on a switch" if self.shape == "star" else "")
        if self.shape == "partial mesh":
            pairs = dict.fromkeys(_SEPARATOR.join(cable.hosts) for cable in self.cables)
            return f"{self.name}: {', '.join(pairs)}"
        return f"{self.name}: {_SEPARATOR.join(self.hosts)}"


@dataclass(frozen=True)
class Cabling:
    """The cables of a group of hosts, without the network of their sockets."""

    groups: tuple[CabledGroup, ...] = ()
    others: tuple[str, ...] = ()
    """Hosts without a cable to another host of the group."""

    @property
    def name(self) -> str:
        if not self.groups:
            return "network only"
        return "mixed" if self.others or len(self.groups) > 1 else self.groups[0].name

    @property
    def whole(self) -> CabledGroup | None:
        """The only group, if it has all hosts."""
        return self.groups[0] if len(self.groups) == 1 and not self.others else None

    def __str__(self) -> str:
        shown = [str(each) for each in self.groups]
        if self.others:
            shown.append(f"{', '.join(self.others)} on the network only")
        return "; ".join(shown)

    @property
    def table(self) -> dict[str, Any]:
        return {"name": self.name, "text": str(self), **asdict(self)}


def cabling(hosts: tuple[str, ...], cables: tuple[Cable, ...], stars: tuple[CabledGroup, ...]) -> Cabling:
    """Name the shape of each set of cabled hosts; `hosts` are sorted by name."""
    groups = (*stars, *(_shaped(names, cables) for names in _joined(cables)))
    named = {host for each in groups for host in each.hosts}
    return Cabling(groups, tuple(host for host in hosts if host not in named))


def missing(group: CabledGroup) -> tuple[tuple[str, str], ...]:
    """Return the pairs without a cable in a ring of three; no cable helps other sizes."""
    if len(group.hosts) != _RING:
        return ()
    joined = {cable.hosts for cable in group.cables}
    return tuple(pair for pair in combinations(sorted(group.hosts), 2) if pair not in joined)


def _joined(cables: tuple[Cable, ...]) -> Iterator[tuple[str, ...]]:
    near, left = _neighbors(cables), sorted({host for cable in cables for host in cable.hosts})
    while left:
        found, edge = {left[0]}, {left[0]}
        while edge:
            edge = {other for host in edge for other in near[host]} - found
            found |= edge
        yield tuple(sorted(found))
        left = [host for host in left if host not in found]


def _neighbors(cables: tuple[Cable, ...]) -> dict[str, set[str]]:
    near: dict[str, set[str]] = {}
    for one, other in (cable.hosts for cable in cables):
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    return near


def _shaped(hosts: tuple[str, ...], every: tuple[Cable, ...]) -> CabledGroup:
    cables = tuple(cable for cable in every if cable.hosts[0] in hosts)
    near = _neighbors(cables)
    ends = [host for host in hosts if len(near[host]) == 1]
    shape: Shape = "partial mesh"
    if len(hosts) == 2:  # noqa: PLR2004 - a pair
        shape = "pair" if len(cables) == 1 else "double pair"
    elif all(len(near[host]) == 2 for host in hosts):  # noqa: PLR2004 - a ring's neighbors
        shape, hosts = "ring", _walk(hosts[0], near)
    elif all(len(near[host]) == len(hosts) - 1 for host in hosts):
        shape = "mesh"
    elif len(ends) == 2 and all(len(near[host]) <= 2 for host in hosts):  # noqa: PLR2004 - a line's
        shape, hosts = "line", _walk(ends[0], near)
    return CabledGroup(shape, hosts, cables)


def _walk(first: str, near: Mapping[str, set[str]]) -> tuple[str, ...]:
    found = [first]
    while following := sorted(near[found[-1]] - set(found)):
        found.append(following[0])
    return tuple(found)
