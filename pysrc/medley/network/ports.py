"""List every port that medley and its Ray use.

`free_port.py` refuses a port that another program uses, and `serving/port_claim.py` that of another server.
"""

from collections.abc import Iterator
from typing import Literal, get_args

from medley.command import Flag
from medley.network import tcp
from medley.values import Value

RENDEZVOUS_PORT = 24_010
"""The port where hosts join a model without Ray; between Ray's, so that one firewall rule opens both."""
IPERF3_PORT = 5201
PERFTEST_BANDWIDTH_PORT = 18515
PERFTEST_LATENCY_PORT = 18516
TRANSFER_PORTS = range(24_020, 24_100)
Role = Literal["head", "worker", "serve", "join", "pull", "test", "top"]
ROLES: tuple[Role, ...] = get_args(Role)
API_PORT = 8000
EPHEMERAL_RANGE = (32_768, 60_999)
"""Linux's net.ipv4.ip_local_port_range: the ports of programs that ask for any."""
_TRANSFER_RANGE = (TRANSFER_PORTS[0], TRANSFER_PORTS[-1])
_SGLANG_RANGE = (22_000, 29_999)
"""The range of get_free_port_below_ephemeral in SGLang's utils/network.py (0.5.23), for torch's store."""
_EVERY_ADDRESS = "every address"
_LINK_ADDRESS = "the link's address"
LOOPBACK_ADDRESS = "127.0.0.1"
_REQUIRES_AUTH = "asks for the token"
_METRICS_ONLY = "only metrics, without a token"
MODEL_API = "a model's API"
_RENDEZVOUS = "where hosts join a model without Ray"
_TRANSFER = "pieces of a model"
_SECRETS = {_RENDEZVOUS: "token", _TRANSFER: "transfer secret"}
_WORKER_PORTS = 900


class RayPorts:
    """One range for all ports of Ray, for one firewall rule; Ray itself chooses random ports.

    It is below 32768, because Linux uses the ports above for outgoing connections.
    """

    first = 24_000
    gcs = first
    raylet = (first + 1, first + 2)
    """The ports of the node manager and of the objects, which other hosts reach."""
    metrics = first + 6
    dashboard = first + 8
    head_metrics = (first + 9, first + 11)  # between them hosts join a model without Ray
    """The ports of metrics on the head: the autoscaler's, and the dashboard's even where it is off."""
    last = first + 99 + _WORKER_PORTS

    @classmethod
    def list_flags(cls) -> Iterator[Flag]:
        """Return the flags of `ray start` that put each port into the range."""
        why = f"one range, {cls.first} to {cls.last}, for one firewall rule to open"
        offsets = (
            ("--node-manager-port", 1),  # the first of raylet
            ("--object-manager-port", 2),
            ("--runtime-env-agent-port", 3),
            ("--dashboard-agent-grpc-port", 4),
            ("--dashboard-agent-listen-port", 5),
            ("--metrics-export-port", 6),
            ("--min-worker-port", 100),
            ("--max-worker-port", cls.last - cls.first),
        )
        return (Flag((name,), str(cls.first + offset), why) for name, offset in offsets)


class Port(Value):
    """A TCP port, or a range of which some are in use; medley uses no UDP."""

    roles: tuple[Role, ...]
    what: str
    first: int
    last: int
    bound: str
    """Addresses, or `every address` or `the link's address`."""
    by: str
    """The hosts or programs that need to reach it."""
    why: str

    @property
    def is_reachable(self) -> bool:
        """Whether other hosts can reach it; Linux accepts a link's address on every link."""
        return not all(map(tcp.is_loopback, self.bound.split(", ")))

    @property
    def auth(self) -> str:
        """The secret that a client has to show; an API has a key by default where other hosts reach it."""
        if self.what == MODEL_API:
            return "API key" if self.is_reachable else "none"
        return "token" if _REQUIRES_AUTH in self.why else _SECRETS.get(self.what, "none")

    @property
    def numbers(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def list_ports(
    *, api: tuple[int, ...] = (API_PORT,), ephemeral: tuple[int, int] = EPHEMERAL_RANGE
) -> tuple[Port, ...]:
    """Return all ports; `api` has those of served models, `ephemeral` is the kernel's range."""
    return (*_list_ray_ports(), *_list_model_ports(api, ephemeral), *_list_tool_ports(ephemeral))


def _list_ray_ports() -> Iterator[Port]:
    """Yield the ports of Ray 2.60, observed on a cluster; `ray start` has no flag for the bound address."""
    both_roles: tuple[Role, ...] = ("head", "worker")
    head_role: tuple[Role, ...] = ("head",)
    cluster, this_host = "the cluster's hosts", "this host"
    ray = RayPorts
    manager, objects = ray.raylet
    autoscaler, dashboard = ray.head_metrics
    workers = f"one per rank, task and medley serve; {_REQUIRES_AUTH}"
    yield _build_port(
        both_roles, "Ray's node manager", manager, _EVERY_ADDRESS, cluster, f"starts ranks; {_REQUIRES_AUTH}"
    )
    yield _build_port(
        both_roles, "Ray's objects", objects, _EVERY_ADDRESS, cluster, f"data of tasks; {_REQUIRES_AUTH}"
    )
    yield _build_port(
        both_roles, "Ray's runtime environments", ray.first + 3, _LINK_ADDRESS, this_host, _REQUIRES_AUTH
    )
    yield _build_port(both_roles, "Ray's agent", ray.first + 4, _EVERY_ADDRESS, cluster, _REQUIRES_AUTH)
    for bound, users in ((_LINK_ADDRESS, "the head"), (LOOPBACK_ADDRESS, this_host)):
        yield _build_port(
            both_roles, "Ray's agent, HTTP", ray.first + 5, bound, users, f"health; the rest {_REQUIRES_AUTH}"
        )
    yield _build_port(
        both_roles, "Ray's metrics of this host", ray.first + 6, _EVERY_ADDRESS, "nobody", _METRICS_ONLY
    )
    yield Port(
        both_roles, "Ray's workers and drivers", ray.first + 100, ray.last, _EVERY_ADDRESS, cluster, workers
    )
    yield _build_port(
        head_role, "Ray's head", ray.gcs, _EVERY_ADDRESS, cluster, f"where hosts join; {_REQUIRES_AUTH}"
    )
    for bound in (_LINK_ADDRESS, LOOPBACK_ADDRESS):
        unused = f"medley does not use it; {_REQUIRES_AUTH}"
        yield _build_port(head_role, "Ray's clients", ray.first + 7, bound, "nobody", unused)
    yield _build_port(
        head_role, "Ray's dashboard", ray.dashboard, LOOPBACK_ADDRESS, this_host, "only with --dashboard"
    )
    yield _build_port(
        head_role, "Ray's metrics of the autoscaler", autoscaler, _EVERY_ADDRESS, "nobody", _METRICS_ONLY
    )
    yield _build_port(
        head_role, "Ray's metrics of the dashboard", dashboard, _EVERY_ADDRESS, "nobody", _METRICS_ONLY
    )


def _list_model_ports(api: tuple[int, ...], ephemeral: tuple[int, int]) -> Iterator[Port]:
    serve_role: tuple[Role, ...] = ("serve",)
    rank_roles: tuple[Role, ...] = ("worker", "serve", "join")
    hosts = "the model's hosts"
    for number in api:
        why = "only this host, unless --host is given"
        yield _build_port(serve_role, MODEL_API, number, LOOPBACK_ADDRESS, "its users", why)
    why = "until all hosts have joined; reveals nothing without the token"
    yield _build_port(serve_role, _RENDEZVOUS, RENDEZVOUS_PORT, _EVERY_ADDRESS, "the hosts that join", why)
    yield Port(
        serve_role, "where ranks meet", *_TRANSFER_RANGE, _EVERY_ADDRESS, hosts, "without Ray; no token"
    )
    why = "while medley pull runs; asks for a secret of that one transfer"
    yield Port(("pull",), _TRANSFER, *_TRANSFER_RANGE, _LINK_ADDRESS, "the cluster's hosts", why)
    why = "torch, Gloo and NCCL use any free port, without a token"
    yield Port(rank_roles, "ranks of a model", *ephemeral, _EVERY_ADDRESS, hosts, why)
    why = "one of these, also for a model on a single host; no token"
    yield Port(rank_roles, "SGLang's ranks meet", *_SGLANG_RANGE, _EVERY_ADDRESS, hosts, why)


def _list_tool_ports(ephemeral: tuple[int, int]) -> Iterator[Port]:
    for number in (IPERF3_PORT, PERFTEST_BANDWIDTH_PORT, PERFTEST_LATENCY_PORT):
        name, bound = ("iperf3", _LINK_ADDRESS) if number == IPERF3_PORT else ("perftest", _EVERY_ADDRESS)
        yield _build_port(
            ("test",), name, number, bound, "the other host", "while medley link test --serve runs"
        )
    why = "while medley top --web runs; --port and --host change it; no key"
    yield Port(
        ("top",), "top's page, and for Prometheus", *ephemeral, LOOPBACK_ADDRESS, "this host's browsers", why
    )


def _build_port(roles: tuple[Role, ...], what: str, number: int, *rest: str) -> Port:
    """Return a single port; `rest`: the bound address, the hosts that need it, and the reason."""
    return Port(roles, what, number, number, *rest)


def list_closed_ranges(all_ports: tuple[Port, ...]) -> tuple[tuple[int, int], ...]:
    """Return the ranges for a firewall to close, in order, without overlap; Ray's are one range."""
    ranges = [(RayPorts.first, RayPorts.last), *((port.first, port.last) for port in all_ports)]
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
