"""Describe the hosts that a model may run on and their cluster, and find hosts that cannot share one."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Interface
from itertools import combinations
from typing import NamedTuple

from msgspec import field

from medley.environment.engine_source import EngineSource, find_oldest_nccl, read_locked_versions
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.facts.network import Address, Interface
from medley.host.facts.rdma import Gid, RdmaPort
from medley.host.kind import SiteHost
from medley.host_schema import Loading
from medley.network.fabric.choice import NetworkOptions
from medley.network.link_setup import LinkRequest, LinkSetting, choose_settings
from medley.planner import Device, devices, group_by_host, join_names
from medley.planner.devices import NO_MEASUREMENTS, Measurements
from medley.planner.site_network import SiteNetwork
from medley.schema import EngineName
from medley.values import Value

_UNKNOWN_SOURCE = EngineSource(())


class Site(Value):
    """The hosts that a model may run on, with what is known of their cluster, engines and speeds."""

    hosts: Mapping[str, SiteHost]
    rank_order: tuple[str, ...] = ()
    """Hosts of a running cluster in the order in which Ray gives them ranks, the head first."""
    free_slots: Mapping[str, int] = field(default_factory=dict)
    """The number of ranks that each host of the cluster can still take."""
    busy_slots: Mapping[str, int] = field(default_factory=dict)
    """The number of ranks that each host of the cluster runs."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """The address by which each host joined the cluster."""
    measurements: Measurements = NO_MEASUREMENTS
    """The measured speeds of devices and links."""
    engine_sources: Mapping[str, EngineSource] = field(default_factory=dict)
    """The engine source of each host; empty for hosts that have joined, because these agree already."""
    has_user_engine: bool = False
    """Whether hosts without an entry in `engine_sources` run an image or a virtualenv of the user's own."""
    has_nix_toolkit: bool = False
    """Whether Nix provides the CUDA toolkit of the hosts."""
    nccl_version: tuple[int, ...] | None = None
    """The NCCL release in the engine environment of the running cluster; None where it is unknown."""

    @property
    def head(self) -> str | None:
        """The host where the engine starts and the first rank runs."""
        return self.rank_order[0] if self.rank_order else None

    @property
    def facts(self) -> dict[str, Facts]:
        """The facts of each host."""
        return {name: host.facts for name, host in self.hosts.items()}

    def find_loading(self, host: str) -> Loading:
        """Return how fast this kind of host loads weights, from its table in hosts/."""
        return self.hosts[host].kind.table.loading

    def find_engine_source(self, host: str) -> EngineSource:
        """Return the host's engine source; it is empty where the host's Ray runs already."""
        return self.engine_sources.get(host, _UNKNOWN_SOURCE)

    def find_image(self, host: str) -> str | None:
        """Return the container image that this host's ranks run in; None without one."""
        return self.find_engine_source(host).name if self.find_engine_source(host).is_image else None

    def is_engine_locked(self, host: str) -> bool:
        """Return whether the host's engine is from a lock, so that its packages are known."""
        source = self.engine_sources.get(host)
        if source is None:
            return not self.has_user_engine
        return not source.is_image and bool(source.versions)

    def find_engine_version(self, host: str, engine: EngineName) -> str | None:
        """Return the version of the host's engine; None for the user's own image or environment."""
        if host in self.engine_sources:
            return self.engine_sources[host].versions.get(engine)
        lock = self.hosts[host].kind.table.environments.get(engine)
        return (
            None if self.has_user_engine or lock is None else read_locked_versions().get(lock, {}).get(engine)
        )

    def find_capability(self, host: str) -> str | None:
        """Return the compute capability of the host's GPUs; None without GPUs."""
        facts, kind = self.hosts[host]
        return next((gpu.capability for gpu in facts.gpus if gpu.capability), kind.table.capability)

    def complete_options(self, options: NetworkOptions, engine: EngineName) -> NetworkOptions:
        """Add the release of NCCL to the options, and the addresses of hosts that have joined.

        The user's link does not count for hosts that have joined, because their addresses are fixed.
        """
        options = options.replace(
            nccl_version=self.nccl_version or find_oldest_nccl(engine, self.engine_sources.values())
        )
        return options.replace(link=None, ray_addresses=dict(self.addresses)) if self.addresses else options

    def build_network(self, options: NetworkOptions, engine: EngineName) -> SiteNetwork:
        """Return the network of these hosts, as an engine with these options uses it."""
        return SiteNetwork(
            self.facts, self.complete_options(options, engine), self.measurements, self.engine_sources
        )

    def select_hosts(self, hosts: Iterable[str]) -> "Site":
        """Return the site with these hosts only."""
        names = set(hosts)
        return self.replace(
            hosts={name: host for name, host in self.hosts.items() if name in names},
            rank_order=tuple(name for name in self.rank_order if name in names),
            free_slots={name: count for name, count in self.free_slots.items() if name in names},
            busy_slots={name: count for name, count in self.busy_slots.items() if name in names},
            addresses={name: address for name, address in self.addresses.items() if name in names},
        )

    def list_devices(self, gpus: str | None = None) -> tuple[Device, ...]:
        """Return the devices that can take a rank; `gpus`: the value of --gpus, indexes or `all`."""
        host_devices = tuple(devices.list_devices(self.hosts, self.measurements))
        if gpus is None:
            return tuple(self._list_free_devices(host_devices)) if self.rank_order else host_devices
        if len(self.hosts) > 1:
            raise Problem(
                f"--gpus {gpus} is for one host",
                cause=f"there are {len(self.hosts)}: {', '.join(self.hosts)}",
                fix="serve on this host alone: --hosts 1; or set --slots when a host joins",
            )
        return _choose_gpus(host_devices, gpus)

    def _list_free_devices(self, host_devices: Iterable[Device]) -> Iterator[Device]:
        """Yield the devices after the busy ones of each host, because Ray gives GPUs out from the first.

        Ray counts the free GPUs but does not show which they are, so this is wrong after a model has ended
        before a later one. A CPU is one device for all slots.
        """
        for host, on_host in group_by_host(host_devices).items():
            skipped = 0 if on_host[0].kind == "cpu" else self.busy_slots.get(host, 0)
            yield from on_host[skipped : skipped + self.free_slots.get(host, 0)]

    def add_addresses(self, names: Iterable[str]) -> "Site":
        """Return the site with the addresses that `medley link setup` would set on these hosts."""
        hosts = dict(self.hosts)
        for number, host in enumerate(names, 1):
            facts, kind = hosts[host]
            settings = choose_settings(facts, LinkRequest(number=number), {})
            hosts[host] = SiteHost(_set_addresses(facts, settings), kind)
        return self.replace(hosts=hosts)


def _choose_gpus(devices: tuple[Device, ...], gpus: str) -> tuple[Device, ...]:
    """Return the devices of --gpus; raise a Problem if it names none, an unknown one, or one twice."""
    if any(device.kind == "cpu" for device in devices):
        raise Problem(
            f"--gpus {gpus} is not available",
            cause="this host has no NVIDIA GPU that its driver shows",
            fix="leave --gpus out to run on the CPU; medley facts shows what was found",
        )
    by_index = {str(device.index): device for device in devices}
    indexes = list(by_index) if gpus == "all" else gpus.split(",")
    if len(set(indexes)) != len(indexes):
        raise Problem(
            f"--gpus {gpus} names a GPU twice",
            cause="each rank needs a GPU of its own",
            fix="name each index once: --gpus " + ",".join(dict.fromkeys(indexes)),
        )
    for index in map(str.strip, indexes):
        if index not in by_index:
            names = (f"{gpu_index} ({device.name})" for gpu_index, device in by_index.items())
            raise Problem(
                f"there is no GPU {index!r}",
                cause=f"this host has {', '.join(names)}",
                fix="--gpus 0, --gpus 0,1 or --gpus all",
            )
    return tuple(by_index[index.strip()] for index in indexes)


def _set_addresses(facts: Facts, link_settings: tuple[LinkSetting, ...]) -> Facts:
    """Return the facts as they would be with these settings of `medley link setup`."""
    by_name = {setting.interface: (IPv4Interface(setting.address), setting.mtu) for setting in link_settings}

    def set_link(interface: Interface) -> Interface:
        if interface.name not in by_name:
            return interface
        address, mtu = by_name[interface.name]
        return interface.replace(addresses=(Address(str(address.ip), address.network.prefixlen),), mtu=mtu)

    def set_port(port: RdmaPort) -> RdmaPort:
        if port.interface not in by_name:
            return port
        ip = str(by_name[port.interface][0].ip)
        # The kernel adds a RoCE v2 row to the GID table for each address.
        gid = Gid(3, f"::ffff:{ip}", "RoCE v2", port.interface, ip)
        return port.replace(gids=(*port.gids, gid))

    net = facts.net.replace(links=tuple(map(set_link, facts.net.links)))
    return facts.replace(net=net, rdma=tuple(map(set_port, facts.rdma)))


class _IncompatiblePair(NamedTuple):
    """Two groups of hosts that cannot share a cluster, by name."""

    first: list[str]
    second: list[str]
    differences: list[str]
    """What differs between the engine sources of the groups."""


def list_incompatible_warnings(sources: Mapping[str, EngineSource], used: Collection[str]) -> Iterator[str]:
    """Yield which hosts with GPUs cannot be in one cluster, the unused ones first, and what they need."""
    for first, second, differences in _list_incompatible_pairs(sources):
        unused = [name for name in (*first, *second) if name not in used]
        idle = f"{join_names(unused)} {'is' if len(unused) == 1 else 'are'} not used: " if unused else ""
        source_names = dict.fromkeys((sources[first[0]].name, sources[second[0]].name))
        yield (
            f"{idle}{join_names(first)} and {join_names(second)} cannot be in one cluster. "
            f"Reason: {', '.join(differences)} ({', '.join(source_names)}); "
            f"together they need {_describe_remedy(sources, first, second)}"
        )


def list_incompatible_remedies(sources: Mapping[str, EngineSource]) -> Iterator[str]:
    """Yield what each two groups of hosts need to be in one cluster, and hosts without a usable engine."""
    for first, second, _ in _list_incompatible_pairs(sources):
        yield f"{join_names(first)} with {join_names(second)}: {_describe_remedy(sources, first, second)}"
    unusable = {
        name: source for name, source in sources.items() if source.absent_reason or source.lacking_reason
    }
    for names in group_by_source(unusable):
        remedies = (
            sources[names[0]].upgrade_fix,
            "--image NAME" if sources[names[0]].absent_reason else "--image NAME of a newer one",
        )
        yield f"on {join_names(names)}: {', or '.join(filter(None, remedies))}"


def _list_incompatible_pairs(
    sources: Mapping[str, EngineSource],
) -> Iterator[_IncompatiblePair]:
    """Yield each two groups of hosts with equal devices that cannot share a cluster."""
    groups = group_by_source(sources)
    same_source = ((names[:1], names[1:]) for names in groups if len(names) > 1)
    for first, second in (*combinations(groups, 2), *same_source):
        first_source, second_source = sources[first[0]], sources[second[0]]
        differences = first_source.list_differences(second_source)
        if first_source.device == second_source.device and differences:
            yield _IncompatiblePair(first, second, differences)


def group_by_source(sources: Mapping[str, EngineSource]) -> list[list[str]]:
    """Return the names of the hosts with equal engine sources, in the order of names."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(sources):
        source = sources[name]
        groups.setdefault((source.name, *source.switches, source.device), []).append(name)
    return list(groups.values())


def _describe_remedy(sources: Mapping[str, EngineSource], *pair: list[str]) -> str:
    """Return what two groups of hosts need to be in one cluster."""
    first_sources = [sources[names[0]] for names in pair]
    builds = dict.fromkeys(
        source.join_fix for source in first_sources if source.alone_reason and source.join_fix
    )
    if builds:
        return "; ".join(builds)
    upgrades = [
        f"{source.upgrade_fix} on {join_names(names)}"
        for names, source in zip(pair, first_sources, strict=True)
        if source.upgrade_fix is not None
    ]
    return " or ".join((*upgrades, "one image on all of them (--image NAME)"))


def explain_sources(sources: Mapping[str, EngineSource], hosts: Iterable[str]) -> Iterator[str]:
    """Yield which image the hosts of a plan run, who made it, and which versions are undocumented."""
    for names in group_by_source({name: sources[name] for name in hosts if name in sources}):
        source = sources[names[0]]
        if source.is_image:
            maker = f", by {source.published_at}" if source.published_at else ""
            undocumented = ""
            if source.unknown_versions:
                undocumented = f"; its {' and '.join(source.unknown_versions)} version is not documented"
            yield f"{join_names(names)}: container image {source}{maker}{undocumented}"
