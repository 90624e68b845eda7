"""A site is the hosts that a model may run on, with their facts and kinds, and the cluster they are in."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

from medley import survey
from medley.fabric import Wishes
from medley.facts import Facts
from medley.kind import Kind
from medley.layout.shapes import Device
from medley.measured import NOTHING, Measured
from medley.origin import Origin
from medley.plan import Arguments
from medley.problem import Problem
from medley.tables import Engine, Shape


@dataclass(frozen=True)
class Site:
    hosts: Mapping[str, tuple[Facts, Kind]]
    order: tuple[str, ...] = ()
    """Hosts of a running cluster as Ray gives them ranks, the head first; empty where none runs."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """How many ranks each host of the cluster still takes."""
    busy: Mapping[str, int] = field(default_factory=dict)
    """And how many it runs."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """By which each has joined it."""
    measured: Measured = NOTHING
    """What its devices and wires were seen to reach."""
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """Where each has its engine from, where that is still to be chosen: hosts that have joined agree."""

    @property
    def head(self) -> str | None:
        """The host where the engine starts, and so the first rank is."""
        return self.order[0] if self.order else None

    @property
    def first(self) -> tuple[Facts, Kind]:
        """The host of the first rank, where the engine starts."""
        return next(iter(self.hosts.values()))

    @property
    def facts(self) -> dict[str, Facts]:
        return {name: facts for name, (facts, _) in self.hosts.items()}

    def typed(self, host: str) -> tuple[str, ...]:
        """The switches that lead to this host's engine; none where its Ray runs already."""
        return self.origins[host].typed if host in self.origins else ()

    def version(self, host: str, engine: Engine) -> str | None:
        """Of its engine, where that is known before anything is asked."""
        return self.origins[host].versions.get(engine) if host in self.origins else None

    def image(self, host: str) -> str | None:
        """That this host's part runs in."""
        found = self.origins.get(host)
        return found.name if found and found.image else None

    def lacks(self, hosts: Iterable[str]) -> str | None:
        """Why the engine of one of these cannot serve the model that is asked for."""
        why = ((host, self.origins[host].lacks) for host in hosts if host in self.origins)
        return next((f"{host}: {lacks}" for host, lacks in why if lacks), None)

    def arguments(self, hosts: Iterable[str], engine: Engine, shape: Shape) -> Arguments:
        """Flags of an engine that the kinds of these hosts need for a model of this shape, and why."""
        if not shape.experts:
            return ()
        of_kinds = (each for host in hosts for each in self.hosts[host][1].host.arguments)
        fit = (each for each in of_kinds if each.engine == engine and shape.weights in each.experts)
        return tuple(dict.fromkeys((each.flags, each.why) for each in fit))

    def wishes(self, asked: Wishes) -> Wishes:
        """Hosts that have joined keep the addresses they joined by."""
        return replace(asked, link=None, joined=dict(self.addresses)) if self.addresses else asked

    def only(self, hosts: Iterable[str]) -> "Site":
        """Without its other hosts."""
        part = set(hosts)
        return Site(
            {name: host for name, host in self.hosts.items() if name in part},
            tuple(name for name in self.order if name in part),
            {name: free for name, free in self.slots.items() if name in part},
            {name: count for name, count in self.busy.items() if name in part},
            {name: address for name, address in self.addresses.items() if name in part},
            self.measured,
            self.origins,
        )

    def devices(self, gpus: str | None = None) -> tuple[Device, ...]:
        """What can take a rank; `gpus` is what --gpus said: indexes of one host's, or `all`."""
        found = tuple(survey.devices(self.hosts, self.measured))
        if gpus is None:
            return tuple(_free(found, self.slots, self.busy)) if self.order else found
        if len(self.hosts) > 1:
            raise Problem(
                f"--gpus {gpus} is for one host",
                cause=f"there are {len(self.hosts)}: {', '.join(self.hosts)}",
                fix="serve on this host alone: --hosts 1; or set --slots when a host joins",
            )
        return _chosen(found, gpus)


def _free(devices: tuple[Device, ...], slots: Mapping[str, int], busy: Mapping[str, int]) -> Iterator[Device]:
    """Of each host those after the busy ones: Ray says how many are free, and gives GPUs out from the first.

    Which ones is not known once a model has ended before another that came later. A CPU is one for all slots.
    """
    for host, same in groupby(devices, key=lambda device: device.host):
        first = list(same)
        skipped = 0 if first[0].kind == "cpu" else busy.get(host, 0)
        yield from first[skipped : skipped + slots.get(host, 0)]


def _chosen(devices: tuple[Device, ...], gpus: str) -> tuple[Device, ...]:
    if any(device.kind == "cpu" for device in devices):
        raise Problem(
            f"--gpus {gpus} cannot be had",
            cause="this host has no NVIDIA GPU that its driver shows",
            fix="leave --gpus out to run on the CPU; medley facts shows what was found",
        )
    words = [str(device.index) for device in devices] if gpus == "all" else gpus.split(",")
    if len(set(words)) != len(words):
        raise Problem(
            f"--gpus {gpus} names a GPU twice",
            cause="each rank needs a GPU of its own",
            fix="name each index once: --gpus " + ",".join(dict.fromkeys(words)),
        )
    return tuple(_by_index(devices, word.strip()) for word in words)


def _by_index(devices: tuple[Device, ...], word: str) -> Device:
    found = next((device for device in devices if str(device.index) == word), None)
    if found is None:
        there = ", ".join(f"{device.index} ({device.name})" for device in devices)
        raise Problem(
            f"there is no GPU {word!r}",
            cause=f"this host has {there}",
            fix="--gpus 0, --gpus 0,1 or --gpus all",
        )
    return found
