"""List every port that medley and its Ray use."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from medley.command import Flag
from medley.network import tcp

RENDEZVOUS_PORT = 24_010
"""Between Ray's ports, so that one firewall rule opens both."""
IPERF3_PORT = 5201
PERFTEST_BANDWIDTH_PORT = 18515
PERFTEST_LATENCY_PORT = 18516
TRANSFER_PORTS = range(24_020, 24_100)
Role = Literal["head", "worker", "serve", "join", "pull", "test", "top"]
ROLES: tuple[Role, ...] = get_args(Role)
API = 8000
EPHEMERAL = (32_768, 60_999)
"""Linux's net.ipv4.ip_local_port_range: the ports of programs that ask for any."""
_SIDE = (TRANSFER_PORTS[0], TRANSFER_PORTS[-1])
_SGLANG = (22_000, 29_999)
"""Of get_free_port_below_ephemeral in its utils/network.py (0.5.23), for torch's store."""
_EVERY = "every address"
_WIRE = "the link's address"
_LOOPBACK = "127.0.0.1"
_ASKS = "asks for the token"
_TELLS = "only metrics, without a token"
MODEL_API, _MEETING, _PIECES = "a model's API", "where hosts join a model without Ray", "pieces of a model"
_SECRETS = {_MEETING: "token", _PIECES: "transfer secret"}
_WORKER_PORTS = 900


class RayPorts:
    """One range for all ports of Ray, for one firewall rule; Ray itself chooses random ports.

    It is below 32768, because Linux uses the ports above for outgoing connections.
    """

    first = 24_000
    gcs = first
    of_raylet = (first + 1, first + 2)
    """The node manager and the objects, which other hosts reach."""
    metrics = first + 6
    dashboard = first + 8
    of_metrics = (first + 9, first + 11)  # between them hosts join a model without Ray
    """On the head: metrics of the autoscaler, and of the dashboard even where it is off."""
    last = first + 99 + _WORKER_PORTS

    @classmethod
    def flags(cls) -> Iterator[Flag]:
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
    """A TCP port, or a range of which some are in use; medley uses no UDP."""

    roles: tuple[Role, ...]
    what: str
    first: int
    last: int
    bound: str
    """Addresses, or `every address` or `the link's address`."""
    by: str
    why: str

    @property
    def outside(self) -> bool:
        """Whether other hosts reach it without a firewall; Linux accepts a link's address on every link."""
        return not all(map(tcp.is_loopback, self.bound.split(", ")))

    @property
    def auth(self) -> str:
        """The secret that a client has to show; an API has a key by default where other hosts reach it."""
        if self.what == MODEL_API:
            return "API key" if self.outside else "none"
        return "token" if _ASKS in self.why else _SECRETS.get(self.what, "none")

    @property
    def numbers(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def ports(*, api: tuple[int, ...] = (API,), picked: tuple[int, int] = EPHEMERAL) -> tuple[Port, ...]:
    """Return all ports; `api`: of served models, `picked`: the kernel's range."""
    return (*_of_ray(), *_of_models(api, picked), *_of_tools(picked))


def _of_ray() -> Iterator[Port]:
    """Yield the ports of Ray 2.60, observed on a cluster; `ray start` has no flag for the bound address."""
    both: tuple[Role, ...] = ("head", "worker")
    head: tuple[Role, ...] = ("head",)
    cluster, own = "the cluster's hosts", "this host"
    ray = RayPorts
    manager, objects = ray.of_raylet
    autoscaler, dashboard = ray.of_metrics
    workers = f"one per rank, task and medley serve; {_ASKS}"
    yield _one(both, "Ray's node manager", manager, _EVERY, cluster, f"starts ranks; {_ASKS}")
    yield _one(both, "Ray's objects", objects, _EVERY, cluster, f"data of tasks; {_ASKS}")
    yield _one(both, "Ray's runtime environments", ray.first + 3, _WIRE, own, _ASKS)
    yield _one(both, "Ray's agent", ray.first + 4, _EVERY, cluster, _ASKS)
    for where, whom in ((_WIRE, "the head"), (_LOOPBACK, own)):
        yield _one(both, "Ray's agent, HTTP", ray.first + 5, where, whom, f"health; the rest {_ASKS}")
    yield _one(both, "Ray's metrics of this host", ray.first + 6, _EVERY, "nobody", _TELLS)
    yield Port(both, "Ray's workers and drivers", ray.first + 100, ray.last, _EVERY, cluster, workers)
    yield _one(head, "Ray's head", ray.gcs, _EVERY, cluster, f"where hosts join; {_ASKS}")
    for where in (_WIRE, _LOOPBACK):
        unused = f"medley does not use it; {_ASKS}"
        yield _one(head, "Ray's clients", ray.first + 7, where, "nobody", unused)
    yield _one(head, "Ray's dashboard", ray.dashboard, _LOOPBACK, own, "only with --dashboard")
    yield _one(head, "Ray's metrics of the autoscaler", autoscaler, _EVERY, "nobody", _TELLS)
    yield _one(head, "Ray's metrics of the dashboard", dashboard, _EVERY, "nobody", _TELLS)


def _of_models(api: tuple[int, ...], picked: tuple[int, int]) -> Iterator[Port]:
    serve: tuple[Role, ...] = ("serve",)
    ranks: tuple[Role, ...] = ("worker", "serve", "join")
    hosts = "the model's hosts"
    for number in api:
        why = "only this host, unless --host is given"
        yield _one(serve, MODEL_API, number, _LOOPBACK, "its users", why)
    why = "until all hosts have joined; reveals nothing without the token"
    yield _one(serve, _MEETING, RENDEZVOUS_PORT, _EVERY, "the hosts that join", why)
    yield Port(serve, "where ranks meet", *_SIDE, _EVERY, hosts, "without Ray; no token")
    why = "while medley pull runs; asks for a secret of that one transfer"
    yield Port(("pull",), _PIECES, *_SIDE, _WIRE, "the cluster's hosts", why)
    why = "torch, Gloo and NCCL use any free port, without a token"
    yield Port(ranks, "ranks of a model", *picked, _EVERY, hosts, why)
    why = "one of these, also for a model on a single host; no token"
    yield Port(ranks, "SGLang's ranks meet", *_SGLANG, _EVERY, hosts, why)


def _of_tools(picked: tuple[int, int]) -> Iterator[Port]:
    for number in (IPERF3_PORT, PERFTEST_BANDWIDTH_PORT, PERFTEST_LATENCY_PORT):
        name, bound = ("iperf3", _WIRE) if number == IPERF3_PORT else ("perftest", _EVERY)
        yield _one(("test",), name, number, bound, "the other host", "while medley link test --serve runs")
    why = "while medley top --web runs; --port and --host change it; no key"
    yield Port(("top",), "top's page, and for Prometheus", *picked, _LOOPBACK, "this host's browsers", why)


def _one(roles: tuple[Role, ...], what: str, number: int, *rest: str) -> Port:
    """`rest`: the bound address, the hosts that need it, and the reason."""
    return Port(roles, what, number, number, *rest)


def closed(found: tuple[Port, ...]) -> tuple[tuple[int, int], ...]:
    """Return the ranges for a firewall to close, in order, without overlap; Ray's are one range."""
    ranges = [(RayPorts.first, RayPorts.last), *((each.first, each.last) for each in found)]
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
