"""Name the shape of a cabling: pair, line, ring, mesh, or star with a switch."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, Literal

from medley.values import Value

Shape = Literal["pair", "double pair", "line", "ring", "mesh", "star", "partial mesh"]

_SEPARATOR = " – "
_RING_HOSTS = 3


class Cable(Value):
    """A cable between two hosts; both interfaces of a QSFP port are one cable."""

    hosts: tuple[str, str]
    interfaces: tuple[tuple[str, ...], tuple[str, ...]]
    """The interfaces of each host, in PCI order."""
    networks: tuple[str, ...]

    def __str__(self) -> str:
        ends = zip(self.hosts, self.interfaces, strict=True)
        return _SEPARATOR.join(f"{host} {names[0]}" for host, names in ends)


class CabledGroup(Value):
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


class Cabling(Value):
    """The cables of a group of hosts, without the network of their sockets."""

    groups: tuple[CabledGroup, ...] = ()
    """The connected sets of hosts, those on a switch first."""
    others: tuple[str, ...] = ()
    """Hosts without a cable to another host of the group."""

    @property
    def name(self) -> str:
        if not self.groups:
            return "network only"
        return "mixed" if self.others or len(self.groups) > 1 else self.groups[0].name

    @property
    def only_group(self) -> CabledGroup | None:
        """The only group, if it has all hosts."""
        return self.groups[0] if len(self.groups) == 1 and not self.others else None

    def __str__(self) -> str:
        texts = [str(group) for group in self.groups]
        if self.others:
            texts.append(f"{', '.join(self.others)} on the network only")
        return "; ".join(texts)

    @property
    def table(self) -> dict[str, Any]:
        return {"name": self.name, "text": str(self), **self.to_table()}


def build_cabling(
    hosts: tuple[str, ...], cables: tuple[Cable, ...], stars: tuple[CabledGroup, ...]
) -> Cabling:
    """Name the shape of each set of cabled hosts; `hosts` are sorted by name."""
    groups = (*stars, *(_classify_group(names, cables) for names in _list_connected_hosts(cables)))
    cabled_hosts = {host for group in groups for host in group.hosts}
    return Cabling(groups, tuple(host for host in hosts if host not in cabled_hosts))


def list_missing_pairs(group: CabledGroup) -> tuple[tuple[str, str], ...]:
    """Return the pairs without a cable in a ring of three; no cable helps other sizes."""
    if len(group.hosts) != _RING_HOSTS:
        return ()
    cabled_pairs = {cable.hosts for cable in group.cables}
    return tuple(pair for pair in combinations(sorted(group.hosts), 2) if pair not in cabled_pairs)


def _list_connected_hosts(cables: tuple[Cable, ...]) -> Iterator[tuple[str, ...]]:
    """Yield each set of hosts that cables connect, directly or through others; sorted by name."""
    neighbors = _find_neighbors(cables)
    ungrouped = sorted({host for cable in cables for host in cable.hosts})
    while ungrouped:
        connected, edge = {ungrouped[0]}, {ungrouped[0]}
        while edge:
            edge = {neighbor for host in edge for neighbor in neighbors[host]} - connected
            connected |= edge
        yield tuple(sorted(connected))
        ungrouped = [host for host in ungrouped if host not in connected]


def _find_neighbors(cables: tuple[Cable, ...]) -> dict[str, set[str]]:
    """Return by host the hosts at the other ends of its cables."""
    neighbors: dict[str, set[str]] = {}
    for first, second in (cable.hosts for cable in cables):
        neighbors.setdefault(first, set()).add(second)
        neighbors.setdefault(second, set()).add(first)
    return neighbors


def _classify_group(hosts: tuple[str, ...], all_cables: tuple[Cable, ...]) -> CabledGroup:
    """Return the group of these hosts with the shape of its cabling, in the order of a line or ring."""
    cables = tuple(cable for cable in all_cables if cable.hosts[0] in hosts)
    neighbors = _find_neighbors(cables)
    ends = [host for host in hosts if len(neighbors[host]) == 1]
    shape: Shape = "partial mesh"
    if len(hosts) == 2:  # noqa: PLR2004 - a pair
        shape = "pair" if len(cables) == 1 else "double pair"
    elif all(len(neighbors[host]) == 2 for host in hosts):  # noqa: PLR2004 - a ring's neighbors
        shape, hosts = "ring", _order_hosts(hosts[0], neighbors)
    elif all(len(neighbors[host]) == len(hosts) - 1 for host in hosts):
        shape = "mesh"
    elif len(ends) == 2 and all(len(neighbors[host]) <= 2 for host in hosts):  # noqa: PLR2004 - a line's
        shape, hosts = "line", _order_hosts(ends[0], neighbors)
    return CabledGroup(shape, hosts, cables)


def _order_hosts(first: str, neighbors: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Return the hosts along a line or ring from `first`, at each step to the neighbor first by name."""
    walked = [first]
    while following := sorted(neighbors[walked[-1]] - set(walked)):
        walked.append(following[0])
    return tuple(walked)
