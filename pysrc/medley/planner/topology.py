"""Hosts a model may run on and their cluster; which cannot share one."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Interface
from itertools import combinations

from medley.environment.engine_source import EngineSource, locked, nccl
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.facts.network import Address, Interface
from medley.host.facts.rdma import Gid, RdmaPort
from medley.host.kind import Kind
from medley.host_schema import Loading
from medley.network.fabric import fabric
from medley.network.fabric.cabling import Cabling
from medley.network.fabric.findings import idle_ports
from medley.network.fabric.types import NetworkOptions
from medley.network.link_setup import LinkRequest, Setting, settings
from medley.planner import Device, GroupLink, HostLink, LinkOf, by_host, devices, listed
from medley.planner.devices import NO_MEASUREMENTS, Measurements
from medley.schema import EngineName

_JOINED = EngineSource(())


@dataclass(frozen=True)
class Topology:
    hosts: Mapping[str, tuple[Facts, Kind]]
    order: tuple[str, ...] = ()
    """Hosts of a running cluster as Ray gives them ranks, the head first; empty where none runs."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """How many ranks each host of the cluster still takes."""
    busy: Mapping[str, int] = field(default_factory=dict)
    """And how many it runs."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """By which each has joined it."""
    measured: Measurements = NO_MEASUREMENTS
    """What its devices and wires were seen to reach."""
    origins: Mapping[str, EngineSource] = field(default_factory=dict)
    """Where each has its engine from, where that is still to be chosen: hosts that have joined agree."""
    own: bool = False
    """Whether its hosts' engine is of an image or of a user's own virtualenv, where `origins` has none."""
    pinned: bool = False
    """Whether Nix brings the CUDA toolkit of its hosts."""
    nccl: tuple[int, ...] | None = None
    """In the engine environment of the running cluster, where that says so."""

    @property
    def head(self) -> str | None:
        """The host where the engine starts, and so the first rank is."""
        return self.order[0] if self.order else None

    @property
    def facts(self) -> dict[str, Facts]:
        return {name: facts for name, (facts, _) in self.hosts.items()}

    def loading(self, host: str) -> Loading:
        return self.hosts[host][1].host.loading

    def origin(self, host: str) -> EngineSource:
        """Where it has its engine from; nothing is to be chosen, or known, where its Ray runs already."""
        return self.origins.get(host, _JOINED)

    def image(self, host: str) -> str | None:
        """That this host's part runs in."""
        return self.origin(host).name if self.origin(host).image else None

    def locked(self, host: str) -> bool:
        """Whether its engine is that of a lock: only of those medley knows the packages."""
        found = self.origins.get(host)
        return not self.own if found is None else not found.image and bool(found.versions)

    def engine_version(self, host: str, engine: EngineName) -> str | None:
        """The version of its engine; None of a user's own image or environment, which nobody has read."""
        if host in self.origins:
            return self.origins[host].versions.get(engine)
        lock = self.hosts[host][1].host.environments.get(engine)
        return None if self.own or lock is None else locked().get(lock, {}).get(engine)

    def capability(self, host: str) -> str | None:
        """The compute capability of its GPUs."""
        facts, kind = self.hosts[host]
        return next((gpu.capability for gpu in facts.gpus if gpu.capability), kind.host.capability)

    def wishes(self, asked: NetworkOptions, engine: EngineName) -> NetworkOptions:
        """With the NCCL of its engine; hosts that have joined keep the addresses they joined by."""
        asked = replace(asked, nccl=self.nccl or nccl(engine, self.origins.values()))
        return replace(asked, link=None, joined=dict(self.addresses)) if self.addresses else asked

    def link_of(self, asked: NetworkOptions, engine: EngineName) -> LinkOf:
        """The links of hosts that can be in one cluster; of others, what differs."""
        known = devices.link_of(self.facts, self.wishes(asked, engine), self.measured)

        def link(one: str, other: str) -> HostLink | str | None:
            differ = self.origin(one).differences(self.origin(other))
            return f"cannot be in one cluster: {', '.join(differ)}" if differ else known(one, other)

        return link

    def group_link(self, asked: NetworkOptions, engine: EngineName) -> GroupLink:
        return devices.group_link(self.facts, self.wishes(asked, engine))

    def cabling(self, hosts: Iterable[str], asked: NetworkOptions, engine: EngineName) -> Cabling:
        """How these hosts are joined; without a word where they cannot talk at all."""
        names = set(hosts)
        facts = {name: each for name, each in self.facts.items() if name in names}
        try:
            return fabric(facts, self.wishes(asked, engine)).cabling
        except Problem:
            return Cabling()

    def cabling_warnings(self, asked: NetworkOptions, engine: EngineName) -> Iterator[str]:
        """Say which cable keeps NCCL from the cables of these hosts; a layout on fewer may use them."""
        try:
            found = fabric(self.facts, self.wishes(asked, engine)).findings
        except Problem:
            return
        yield from (str(one) for one in found if one.topic == "ring")

    def only(self, hosts: Iterable[str]) -> "Topology":
        """Without its other hosts."""
        part = set(hosts)
        return replace(
            self,
            hosts={name: host for name, host in self.hosts.items() if name in part},
            order=tuple(name for name in self.order if name in part),
            slots={name: free for name, free in self.slots.items() if name in part},
            busy={name: count for name, count in self.busy.items() if name in part},
            addresses={name: address for name, address in self.addresses.items() if name in part},
        )

    def devices(self, gpus: str | None = None) -> tuple[Device, ...]:
        """What can take a rank; `gpus` is what --gpus said: indexes of one host's, or `all`."""
        found = tuple(devices.devices(self.hosts, self.measured))
        if gpus is None:
            return tuple(self._free(found)) if self.order else found
        if len(self.hosts) > 1:
            raise Problem(
                f"--gpus {gpus} is for one host",
                cause=f"there are {len(self.hosts)}: {', '.join(self.hosts)}",
                fix="serve on this host alone: --hosts 1; or set --slots when a host joins",
            )
        return _chosen(found, gpus)

    def _free(self, found: Iterable[Device]) -> Iterator[Device]:
        """Of each host those after the busy ones: Ray counts free ones, and gives GPUs out from the first.

        Which ones is not known once a model has ended before another that came later. A CPU is one for all
        slots.
        """
        for host, held in by_host(found).items():
            skipped = 0 if held[0].kind == "cpu" else self.busy.get(host, 0)
            yield from held[skipped : skipped + self.slots.get(host, 0)]

    def idle_ports(self, asked: NetworkOptions, engine: EngineName) -> dict[str, tuple[Interface, ...]]:
        """Of hosts that can talk already; those that cannot have a Problem that says how to join them."""
        if len(self.hosts) == 1:
            return {}
        try:
            ends = fabric(self.facts, self.wishes(asked, engine)).ends
        except Problem:
            ends = {}
        return idle_ports(self.facts, ends)

    def with_addresses(self, names: Iterable[str]) -> "Topology":
        """With these hosts' links as medley link setup would have them, each host with its own number."""
        hosts = dict(self.hosts)
        for number, host in enumerate(names, 1):
            facts, kind = hosts[host]
            hosts[host] = (_addressed(facts, settings(facts, LinkRequest(number=number), {})), kind)
        return replace(self, hosts=hosts)


def _chosen(devices: tuple[Device, ...], gpus: str) -> tuple[Device, ...]:
    if any(device.kind == "cpu" for device in devices):
        raise Problem(
            f"--gpus {gpus} is not available",
            cause="this host has no NVIDIA GPU that its driver shows",
            fix="leave --gpus out to run on the CPU; medley facts shows what was found",
        )
    by_index = {str(device.index): device for device in devices}
    words = list(by_index) if gpus == "all" else gpus.split(",")
    if len(set(words)) != len(words):
        raise Problem(
            f"--gpus {gpus} names a GPU twice",
            cause="each rank needs a GPU of its own",
            fix="name each index once: --gpus " + ",".join(dict.fromkeys(words)),
        )
    for word in map(str.strip, words):
        if word not in by_index:
            raise Problem(
                f"there is no GPU {word!r}",
                cause=f"this host has {', '.join(f'{at} ({one.name})' for at, one in by_index.items())}",
                fix="--gpus 0, --gpus 0,1 or --gpus all",
            )
    return tuple(by_index[word.strip()] for word in words)


def _addressed(facts: Facts, wanted: tuple[Setting, ...]) -> Facts:
    by_name = {each.interface: (IPv4Interface(each.address), each.mtu) for each in wanted}

    def link(old: Interface) -> Interface:
        if old.name not in by_name:
            return old
        at, mtu = by_name[old.name]
        return replace(old, addresses=(Address(str(at.ip), at.network.prefixlen),), mtu=mtu)

    def port(old: RdmaPort) -> RdmaPort:
        """With the RoCE v2 row that the kernel makes of an address."""
        if old.interface not in by_name:
            return old
        ip = str(by_name[old.interface][0].ip)
        return replace(old, gids=(*old.gids, Gid(3, f"::ffff:{ip}", "RoCE v2", old.interface, ip)))

    net = replace(facts.net, links=tuple(map(link, facts.net.links)))
    return replace(facts, net=net, rdma=tuple(map(port, facts.rdma)))


def incompatible_warnings(of: Mapping[str, EngineSource], used: Collection[str]) -> Iterator[str]:
    """Name hosts with GPUs that cannot be in one cluster, those left out first, and what they need."""
    for one, other, differ in _parted(of):
        out = [name for name in (*one, *other) if name not in used]
        idle = f"{listed(out)} {'is' if len(out) == 1 else 'are'} not used: " if out else ""
        yield (
            f"{idle}{listed(one)} and {listed(other)} cannot be in one cluster. Reason: {', '.join(differ)} "
            f"({', '.join(dict.fromkeys((of[one[0]].name, of[other[0]].name)))}); "
            f"together they need {_way(of, one, other)}"
        )


def incompatible_remedies(of: Mapping[str, EngineSource]) -> Iterator[str]:
    """The same, for who asked for a layout over them."""
    yield from (
        f"{listed(one)} with {listed(other)}: {_way(of, one, other)}" for one, other, _ in _parted(of)
    )
    for names in groups({name: each for name, each in of.items() if each.absent or each.lacks}):
        ways = (
            of[names[0]].upgrade,
            "--image NAME" if of[names[0]].absent else "--image NAME of a newer one",
        )
        yield f"on {listed(names)}: {', or '.join(filter(None, ways))}"


def _parted(of: Mapping[str, EngineSource]) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Each two groups of hosts with the same device that cannot be in one cluster, and what differs."""
    found = groups(of)
    alike = ((names[:1], names[1:]) for names in found if len(names) > 1)
    for one, other in (*combinations(found, 2), *alike):
        first, second = of[one[0]], of[other[0]]
        if first.device == second.device and (differ := first.differences(second)):
            yield one, other, differ


def groups(of: Mapping[str, EngineSource]) -> list[list[str]]:
    """Hosts of one origin, in the order of names."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(of):
        found.setdefault((of[name].name, *of[name].typed, of[name].device), []).append(name)
    return list(found.values())


def _way(of: Mapping[str, EngineSource], *pair: list[str]) -> str:
    able = dict.fromkeys(each.able for names in pair if (each := of[names[0]]).alone and each.able)
    if able:
        return "; ".join(able)
    ways = [
        f"{upgrade} on {listed(names)}" for names in pair if (upgrade := of[names[0]].upgrade) is not None
    ]
    return " or ".join((*ways, "one image on all of them (--image NAME)"))


def source_reasons(of: Mapping[str, EngineSource], used: Iterable[str]) -> Iterator[str]:
    """For a plan: which image its hosts run out of, and who says what is in it."""
    for names in groups({name: of[name] for name in used if name in of}):
        found = of[names[0]]
        if found.image:
            source = f", by {found.source}" if found.source else ""
            unsaid = f"; its {' and '.join(found.unsaid)} version is not documented" if found.unsaid else ""
            yield f"{listed(names)}: container image {found}{source}{unsaid}"
