"""Compute the fabric of each group of hosts of a site once, and the links that a prediction counts with."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from msgspec import field

from medley.environment.engine_source import EngineSource
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.facts.network import Interface
from medley.host.hypothetical import change_addresses
from medley.network.fabric.cabling import Cabling
from medley.network.fabric.choice import Endpoint, Fabric, NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.findings import find_idle_ports
from medley.network.fabric.speed import DEFAULT_MBIT, RDMA_US, TCP_US
from medley.planner import HostLink
from medley.planner.devices import NO_MEASUREMENTS, Measurements
from medley.values import Value

_UNKNOWN_SOURCE = EngineSource(())


class SiteNetwork(Value):
    """The network between the hosts of a site, for one set of network options."""

    hosts: Mapping[str, Facts]
    options: NetworkOptions = field(default_factory=NetworkOptions)
    measurements: Measurements = NO_MEASUREMENTS
    engine_sources: Mapping[str, EngineSource] = field(default_factory=dict)
    """The engine source of each host; hosts whose sources differ cannot be in one cluster."""

    @cached_property
    def _fabrics(self) -> dict[tuple[str, ...], Fabric | Problem]:
        return {}

    @cached_property
    def _link_keys(self) -> dict[str, str]:
        return {}

    @cached_property
    def _links(self) -> dict[tuple[str, str], HostLink | None]:
        return {}

    def compute_fabric(self, names: Iterable[str] | None = None) -> Fabric:
        """Return the fabric of these hosts, or of all; raise the Problem of hosts that cannot talk."""
        key = tuple(self.hosts if names is None else names)
        if key not in self._fabrics:
            try:
                self._fabrics[key] = choose_fabric({name: self.hosts[name] for name in key}, self.options)
            except Problem as problem:
                self._fabrics[key] = problem
        result = self._fabrics[key]
        if isinstance(result, Problem):
            raise result
        return result

    def find_endpoints(self, names: Iterable[str]) -> dict[str, Endpoint]:
        """Return the end of each of these hosts; raise the Problem of hosts that cannot talk."""
        hosts = tuple(names)
        ends = self.compute_fabric(hosts).endpoints
        return {host: ends[host] for host in hosts}

    def find_link(self, first: str, second: str) -> HostLink | str | None:
        """Return the link of two hosts, why they cannot be in one cluster, or None without a link.

        A measurement counts only if it used the backend that the engine's collectives use. Hosts that differ
        only by their numbers in each network have the same links, which are computed once.
        """
        if differences := self._find_source_differences(first, second):
            return f"cannot be in one cluster: {', '.join(differences)}"
        key = (self._find_link_key(first), self._find_link_key(second))
        if key not in self._links:
            group_link = self.find_group_link(frozenset((first, second)))
            self._links[key] = group_link if isinstance(group_link, HostLink) else None
        fabric_link, measured_link = self._links[key], self.measurements.find_link(first, second)
        backend = "nccl" if self.hosts[first].gpus and self.hosts[second].gpus else "gloo"
        if fabric_link and measured_link and measured_link.backend == backend:
            mbit = max(1, int(measured_link.mbit))
            return HostLink(mbit, measured_link.latency_us, fabric_link.rdma, measured=True)
        return fabric_link

    def find_group_link(self, names: frozenset[str]) -> HostLink | str:
        """Return the network between these hosts as one link, or why there is none."""
        in_site_order = tuple(name for name in self.hosts if name in names)
        try:
            network = self.compute_fabric(in_site_order)
        except Problem as problem:
            return problem.what
        rdma = network.transport == "rdma"
        mbit = min(end.mbit or DEFAULT_MBIT for end in network.endpoints.values())
        return HostLink(mbit, RDMA_US if rdma else TCP_US, rdma)

    def find_cabling(self, names: Iterable[str]) -> Cabling:
        """Return the cables between these hosts; empty where they cannot talk."""
        used = set(names)
        try:
            return self.compute_fabric(name for name in self.hosts if name in used).cabling
        except Problem:
            return Cabling()

    def list_cabling_warnings(self) -> Iterator[str]:
        """Yield which cable keeps NCCL from the cables of all hosts; a layout on fewer hosts may use them."""
        try:
            findings = self.compute_fabric().findings
        except Problem:
            return
        yield from (str(finding) for finding in findings if finding.topic == "ring")

    def list_idle_ports(self) -> dict[str, tuple[Interface, ...]]:
        """Return the fast ports that each host does not use; hosts that cannot talk have none in use."""
        if len(self.hosts) == 1:
            return {}
        try:
            ends = self.compute_fabric().endpoints
        except Problem:
            ends = {}
        return find_idle_ports(self.hosts, ends)

    def _find_source_differences(self, first: str, second: str) -> list[str]:
        sources = self.engine_sources
        return sources.get(first, _UNKNOWN_SOURCE).list_differences(sources.get(second, _UNKNOWN_SOURCE))

    def _find_link_key(self, name: str) -> str:
        """Return a text that is equal for hosts whose links are equal."""
        if name not in self._link_keys:
            self._link_keys[name] = self._compute_link_key(name)
        return self._link_keys[name]

    def _compute_link_key(self, name: str) -> str:
        facts = self.hosts[name]
        bare = change_addresses(facts, lambda interface: str(interface.network.network_address))
        joined_name = (self.options.ray_addresses or {}).get(name) or self.options.find_link(name)
        interfaces = [
            link.name
            for link in facts.net.links
            for address in link.addresses
            if joined_name in {address.ip, link.name}
        ]
        return repr((bare.net, bare.rdma, interfaces or joined_name))
