"""Find hosts of a group that share a faster network with each other than with the whole group."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from medley.errors import Finding, Problem
from medley.host.facts import Facts
from medley.network.fabric import fabric
from medley.network.fabric.types import Fabric, NetworkOptions, least_mbit, speed_text

_PAIR = 2


@dataclass(frozen=True)
class Subgroup:
    """Some hosts of a cluster, and what a model on only these uses."""

    hosts: tuple[str, ...]
    fabric: Fabric
    whole_mbit: int

    @property
    def table(self) -> dict[str, Any]:
        return {
            "hosts": self.hosts,
            "transport": self.fabric.transport,
            "networks": self.fabric.networks[1:],
            "mbit": least_mbit(self.fabric) or None,
        }

    def __str__(self) -> str:
        transport = "RDMA" if self.fabric.transport == "rdma" else "TCP"
        speeds = speed_text(least_mbit(self.fabric)), speed_text(self.whole_mbit)
        return (
            f"a model on {' and '.join(self.hosts)} alone uses {' and '.join(self.fabric.networks[1:])}: "
            f"{transport} at {speeds[0]}, and over all hosts {speeds[1]}"
        )


def faster_subgroups(
    hosts: Mapping[str, Facts], whole: Fabric, options: NetworkOptions
) -> tuple[tuple[Subgroup, ...], tuple[Finding, ...]]:
    """Return the subgroups with a faster network than `whole`, and why others cannot use theirs.

    `whole` is the fabric of all these hosts; Ray has its addresses there.
    """
    if len(hosts) <= _PAIR:
        return (), ()
    joined = replace(options, link=None, joined={host: end.address for host, end in whole.ends.items()})
    by_networks: dict[tuple[str, ...], set[str]] = {}
    findings: list[Finding] = []
    for pair in combinations(sorted(whole.ends), _PAIR):
        found = _fabric_of(hosts, pair, joined)
        if found and least_mbit(found) > least_mbit(whole):
            by_networks.setdefault(found.networks, set()).update(pair)
        elif found:
            findings += (each for each in found.findings if each.topic == "names")
    groups = (tuple(sorted(names)) for names in by_networks.values() if len(names) < len(hosts))
    shared = ((names, _fabric_of(hosts, names, joined)) for names in groups)
    subgroups = tuple(Subgroup(names, found, least_mbit(whole)) for names, found in shared if found)
    return subgroups, tuple(each for each in dict.fromkeys(findings) if each not in whole.findings)


def _fabric_of(hosts: Mapping[str, Facts], names: tuple[str, ...], options: NetworkOptions) -> Fabric | None:
    try:
        return fabric({name: hosts[name] for name in names}, options)
    except Problem:
        return None
