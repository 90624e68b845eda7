"""Wires are what joins the hosts of a layout, as slow as the slowest pair."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations

from medley.layout.shapes import Link

LinkOf = Callable[[str, str], Link | str | None]
"""The link between two hosts; None where they cannot talk, or what else keeps them apart, in words."""
# Tensor parallel talks twice a layer. Over 10GbE TCP it is known to work (two AGX Orin, jetson-containers'
# distributed-inference.md); below, nobody reports a gain.
FAST_MBIT = 10_000


@dataclass(frozen=True)
class Apart:
    """Two hosts that no layout can have both of."""

    hosts: tuple[str, str]
    because: str = "have no link"


@dataclass(frozen=True)
class Wires:
    link_of: LinkOf
    _pairs: dict[tuple[str, str], Link | str | None] = field(default_factory=dict)
    _groups: dict[frozenset[str], Link | Apart | None] = field(default_factory=dict)

    def between(self, hosts: Iterable[str]) -> Link | Apart | None:
        """The worst of all pairs; None for one host."""
        names = frozenset(hosts)
        if names not in self._groups:
            self._groups[names] = self._worst(sorted(names))
        return self._groups[names]

    def _worst(self, names: list[str]) -> Link | Apart | None:
        worst: Link | None = None
        for pair in combinations(names, 2):
            if pair not in self._pairs:
                self._pairs[pair] = self.link_of(*pair)
            link = self._pairs[pair]
            if not isinstance(link, Link):
                return Apart(pair, link) if link else Apart(pair)
            worst = link if worst is None else slower(worst, link)
        return worst


def slower(one: Link, other: Link) -> Link:
    return Link(
        mbit=min(one.mbit, other.mbit),
        latency_us=max(one.latency_us, other.latency_us),
        rdma=one.rdma and other.rdma,
        measured=one.measured and other.measured,
    )


def fast(link: Link | None) -> bool:
    """Whether tensor parallel over it is worth a look."""
    return link is None or link.rdma or link.mbit >= FAST_MBIT
