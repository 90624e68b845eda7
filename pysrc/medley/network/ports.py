"""List every port that medley and its Ray use."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from medley.command import Flag

RENDEZVOUS_PORT = 24_010
"""Among Ray's, so that one firewall rule opens both."""
IPERF3_PORT = 5201
PERFTEST_BANDWIDTH_PORT = 18515
PERFTEST_LATENCY_PORT = 18516
TRANSFER_PORTS = range(24_020, 24_100)
"""Among Ray's, so that one firewall rule opens all."""
Role = Literal["head", "worker", "serve", "join", "pull", "test", "top"]
ROLES: tuple[Role, ...] = get_args(Role)
API = 8000
EPHEMERAL = (32_768, 60_999)
"""Linux' own net.ipv4.ip_local_port_range: where a program gets a port that asks for any."""
_SIDE = (TRANSFER_PORTS[0], TRANSFER_PORTS[-1])
"""Between the ports of Ray's services and those of its workers."""
_SGLANG = (22_000, 29_999)
"""Of get_free_port_below_ephemeral in its utils/network.py (0.5.23), for torch's store."""
_EVERY = "every address"
_WIRE = "the wire's address"
_LOOPBACK = "127.0.0.1"
_ASKS = "asks for the token"
_TELLS = "numbers alone, to whoever asks: no token"
_API, _MEETING, _PIECES = "a model's API", "where hosts join a model without Ray", "pieces of a model"
_SECRETS = {_API: "API key", _MEETING: "token", _PIECES: "transfer secret"}
_WORKER_PORTS = 900


class RayPorts:
    """One range for all that Ray listens on, for one firewall rule to open; Ray's own choice is random.

    It lies below 32768, where Linux takes ports for outgoing connections, which could be in the way.
    """

    first = 24_000
    gcs = first
    of_raylet = (first + 1, first + 2)
    """Where other hosts reach a node: its manager and its objects."""
    metrics = first + 6
    """Of each node, for whoever asks."""
    dashboard = first + 8
    of_metrics = (first + 9, first + 11)  # between them hosts join a model without Ray
    """A head's own: of the autoscaler, and of the dashboard, which counts even where it is not shown."""
    last = first + 99 + _WORKER_PORTS

    @classmethod
    def flags(cls) -> Iterator[Flag]:
        """Those of the head and of a worker alike."""
        why = f"one range, {cls.first} to {cls.last}, for one firewall rule to open"
        named = (
            ("--node-manager-port", 1),  # as of_raylet says
            ("--object-manager-port", 2),
            ("--runtime-env-agent-port", 3),
            ("--dashboard-agent-grpc-port", 4),
            ("--dashboard-agent-listen-port", 5),
            ("--metrics-export-port", 6),
            ("--min-worker-port", 100),
            ("--max-worker-port", cls.last - cls.first),
        )
        return (Flag((name,), str(cls.first + offset), why) for name, offset in named)


@dataclass(frozen=True)
class Port:
    """A TCP port, or a range of which some are in use; nothing of medley's listens on UDP."""

    roles: tuple[Role, ...]
    what: str
    first: int
    last: int
    bound: str
    """As the program binds it: an address, or `every address` or `the wire's address`."""
    by: str
    why: str

    @property
    def outside(self) -> bool:
        """Whether others reach it where nothing keeps them from it.

        Also what is bound to the wire's address: on every link Linux takes packets for any of its addresses.
        """
        return self.bound != _LOOPBACK

    @property
    def auth(self) -> str:
        """The secret that a client has to show."""
        return "token" if _ASKS in self.why else _SECRETS.get(self.what, "none")

    @property
    def numbers(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def ports(*, api: tuple[int, ...] = (API,), picked: tuple[int, int] = EPHEMERAL) -> tuple[Port, ...]:
    """All of them. `api`: where models are served; `picked`: the kernel's range."""
    return (*_of_ray(), *_of_models(api, picked), *_of_tools(picked))


def _of_ray() -> Iterator[Port]:
    """Of Ray 2.60 on every host of a cluster, as seen there; `ray start` has no switch for where it binds."""
    both: tuple[Role, ...] = ("head", "worker")
    head: tuple[Role, ...] = ("head",)
    cluster, own = "the cluster's hosts", "this host"
    ray = RayPorts
    manager, objects = ray.of_raylet
    autoscaler, dashboard = ray.of_metrics
    workers = f"one for each process that takes part: rank, task, medley serve; {_ASKS}"
    yield _one(both, "Ray's node manager", manager, _EVERY, cluster, f"ranks are started by it; {_ASKS}")
    yield _one(both, "Ray's objects", objects, _EVERY, cluster, f"what tasks hand on; {_ASKS}")
    yield _one(both, "Ray's runtime environments", ray.first + 3, _WIRE, own, _ASKS)
    yield _one(both, "Ray's agent", ray.first + 4, _EVERY, cluster, _ASKS)
    for where, whom in ((_WIRE, "the head"), (_LOOPBACK, own)):
        yield _one(both, "Ray's agent, HTTP", ray.first + 5, where, whom, f"health; the rest {_ASKS}")
    yield _one(both, "Ray's metrics of this host", ray.first + 6, _EVERY, "nobody", _TELLS)
    yield Port(both, "Ray's workers and drivers", ray.first + 100, ray.last, _EVERY, cluster, workers)
    yield _one(head, "Ray's head", ray.gcs, _EVERY, cluster, f"where hosts join; {_ASKS}")
    for where in (_WIRE, _LOOPBACK):
        unused = f"medley has no use for it; {_ASKS}"
        yield _one(head, "Ray's clients", ray.first + 7, where, "nobody", unused)
    yield _one(head, "Ray's dashboard", ray.dashboard, _LOOPBACK, own, "only with --dashboard")
    yield _one(head, "Ray's metrics of the autoscaler", autoscaler, _EVERY, "nobody", _TELLS)
    yield _one(head, "Ray's metrics of the dashboard", dashboard, _EVERY, "nobody", _TELLS)


def _of_models(api: tuple[int, ...], picked: tuple[int, int]) -> Iterator[Port]:
    serve: tuple[Role, ...] = ("serve",)
    ranks: tuple[Role, ...] = ("worker", "serve", "join")
    hosts = "the model's hosts"
    for number in api:
        why = "this host alone, unless --host says otherwise"
        yield _one(serve, _API, number, _LOOPBACK, "its users", why)
    why = "until all are there; who has no token learns nothing"
    yield _one(serve, _MEETING, RENDEZVOUS_PORT, _EVERY, "the hosts that join", why)
    yield Port(serve, "where ranks meet", *_SIDE, _EVERY, hosts, "without Ray; no token")
    why = "while medley pull runs; asks for a secret of that one transfer"
    yield Port(("pull",), _PIECES, *_SIDE, _WIRE, "the cluster's hosts", why)
    why = "torch, Gloo and NCCL take any port that is free, and ask for no token"
    yield Port(ranks, "ranks of a model", *picked, _EVERY, hosts, why)
    why = "one of these, also where the model is on one host alone; no token"
    yield Port(ranks, "SGLang's ranks meet", *_SGLANG, _EVERY, hosts, why)


def _of_tools(picked: tuple[int, int]) -> Iterator[Port]:
    for number in (IPERF3_PORT, PERFTEST_BANDWIDTH_PORT, PERFTEST_LATENCY_PORT):
        name, bound = ("iperf3", _WIRE) if number == IPERF3_PORT else ("perftest", _EVERY)
        yield _one(("test",), name, number, bound, "the other host", "while medley link test --serve runs")
    why = "while medley top --web runs; at another port or address if it is told one, and no key"
    yield Port(("top",), "top's page, and for Prometheus", *picked, _LOOPBACK, "this host's browsers", why)


def _one(roles: tuple[Role, ...], what: str, number: int, *rest: str) -> Port:
    """`rest`: where it is bound, who has to reach it, and why."""
    return Port(roles, what, number, number, *rest)


def closed(found: tuple[Port, ...]) -> tuple[tuple[int, int], ...]:
    """The ranges that a firewall has to close for all of these, in order, with no overlap: Ray's as one."""
    ranges = [(RayPorts.first, RayPorts.last), *((each.first, each.last) for each in found)]
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
