"""Find hosts of a group that share a faster network with each other than with the whole group."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from medley.errors import Finding, Problem
from medley.host.facts import Facts
from medley.network.fabric.choice import Fabric, NetworkOptions, find_slowest_mbit
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.speed import format_speed
from medley.values import Value

_PAIR_HOSTS = 2


class Subgroup(Value):
    """Some hosts of a cluster, and the fabric of a model on only these."""

    hosts: tuple[str, ...]
    fabric: Fabric
    whole_mbit: int
    """The speed of the slowest endpoint in the fabric of all hosts."""

    @property
    def table(self) -> dict[str, Any]:
        return {
            "hosts": self.hosts,
            "transport": self.fabric.transport,
            "networks": self.fabric.networks[1:],
            "mbit": find_slowest_mbit(self.fabric) or None,
        }

    def __str__(self) -> str:
        transport = "RDMA" if self.fabric.transport == "rdma" else "TCP"
        speeds = format_speed(find_slowest_mbit(self.fabric)), format_speed(self.whole_mbit)
        return (
            f"a model on {' and '.join(self.hosts)} alone uses {' and '.join(self.fabric.networks[1:])}: "
            f"{transport} at {speeds[0]}, and over all hosts {speeds[1]}"
        )


def find_faster_subgroups(
    hosts: Mapping[str, Facts], whole: Fabric, options: NetworkOptions
) -> tuple[tuple[Subgroup, ...], tuple[Finding, ...]]:
    """Return the subgroups with a faster network than `whole`, and why others cannot use theirs.

    `whole` is the fabric of all these hosts; Ray has its addresses there.
    """
    if len(hosts) <= _PAIR_HOSTS:
        return (), ()
    joined_options = options.replace(
        link=None, ray_addresses={host: end.address for host, end in whole.endpoints.items()}
    )
    by_networks: dict[tuple[str, ...], set[str]] = {}
    findings: list[Finding] = []
    for pair in combinations(sorted(whole.endpoints), _PAIR_HOSTS):
        pair_fabric = _choose_subgroup_fabric(hosts, pair, joined_options)
        if pair_fabric and find_slowest_mbit(pair_fabric) > find_slowest_mbit(whole):
            by_networks.setdefault(pair_fabric.networks, set()).update(pair)
        elif pair_fabric:
            findings += (finding for finding in pair_fabric.findings if finding.topic == "names")
    groups = (tuple(sorted(names)) for names in by_networks.values() if len(names) < len(hosts))
    fabrics = (
        (group_hosts, _choose_subgroup_fabric(hosts, group_hosts, joined_options)) for group_hosts in groups
    )
    subgroups = tuple(
        Subgroup(names, subgroup_fabric, find_slowest_mbit(whole))
        for names, subgroup_fabric in fabrics
        if subgroup_fabric
    )
    return subgroups, tuple(finding for finding in dict.fromkeys(findings) if finding not in whole.findings)


def _choose_subgroup_fabric(
    hosts: Mapping[str, Facts], names: tuple[str, ...], options: NetworkOptions
) -> Fabric | None:
    try:
        return choose_fabric({name: hosts[name] for name in names}, options)
    except Problem:
        return None
