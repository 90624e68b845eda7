"""Ports are what medley's things listen on: where each is bound, who has to reach it, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from medley import meeting
from medley.link import iperf3, perftest
from medley.ray import Ports
from medley.transfer import passing

Role = Literal["head", "worker", "serve", "join", "pull", "test", "top"]
ROLES: tuple[Role, ...] = get_args(Role)
API = 8000
EPHEMERAL = (32_768, 60_999)
"""Linux' own net.ipv4.ip_local_port_range: where a program gets a port that asks for any."""

_SIDE = (passing.PORTS[0], passing.PORTS[-1])
"""Between the ports of Ray's services and those of its workers."""
_SGLANG = (22_000, 29_999)
"""Of get_free_port_below_ephemeral in its utils/network.py (0.5.23), for torch's store."""
_EVERY = "every address"
_WIRE = "the wire's address"
_LOOPBACK = "127.0.0.1"
_ASKS = "asks for the token"
_TELLS = "numbers alone, to whoever asks: no token"


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
    """Who has to reach it."""
    why: str

    @property
    def outside(self) -> bool:
        """Whether others reach it where nothing keeps them from it.

        Also what is bound to the wire's address: on every link Linux takes packets for any of its addresses.
        """
        return self.bound != _LOOPBACK

    @property
    def numbers(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def ports(
    *, api: tuple[int, ...] = (API,), bound: str = _LOOPBACK, picked: tuple[int, int] = EPHEMERAL
) -> tuple[Port, ...]:
    """All of them. `api`: where models are served, `bound` to that address; `picked`: the kernel's range."""
    return (
        *_of_nodes(Ports()),
        *_of_head(Ports()),
        *_of_models(api, bound, picked),
        *_of_links(),
        _of_top(picked),
    )


def _of_nodes(ray: Ports) -> Iterator[Port]:
    """Of Ray 2.60 on every host of a cluster, as seen there; `ray start` has no switch for where it binds."""
    both: tuple[Role, ...] = ("head", "worker")
    manager, objects = ray.of_raylet
    cluster = "the cluster's hosts"
    yield _one(both, "Ray's node manager", manager, _EVERY, cluster, f"ranks are started by it; {_ASKS}")
    yield _one(both, "Ray's objects", objects, _EVERY, cluster, f"what tasks hand on; {_ASKS}")
    yield _one(both, "Ray's runtime environments", ray.first + 3, _WIRE, "this host", _ASKS)
    yield _one(both, "Ray's agent", ray.first + 4, _EVERY, cluster, _ASKS)
    for where, whom in ((_WIRE, "the head"), (_LOOPBACK, "this host")):
        yield _one(both, "Ray's agent, HTTP", ray.first + 5, where, whom, f"health; the rest {_ASKS}")
    yield _one(both, "Ray's metrics of this host", ray.first + 6, _EVERY, "nobody", _TELLS)
    yield Port(
        both,
        "Ray's workers and drivers",
        ray.first + 100,
        ray.last,
        _EVERY,
        cluster,
        f"one for each process that takes part: rank, task, medley serve; {_ASKS}",
    )


def _of_head(ray: Ports) -> Iterator[Port]:
    head: tuple[Role, ...] = ("head",)
    autoscaler, dashboard = ray.of_metrics
    yield _one(head, "Ray's head", ray.gcs, _EVERY, "the cluster's hosts", f"where hosts join; {_ASKS}")
    for where in (_WIRE, _LOOPBACK):
        yield _one(
            head, "Ray's clients", ray.first + 7, where, "nobody", f"medley has no use for it; {_ASKS}"
        )
    yield _one(head, "Ray's dashboard", ray.dashboard, _LOOPBACK, "this host", "only with --dashboard")
    yield _one(head, "Ray's metrics of the autoscaler", autoscaler, _EVERY, "nobody", _TELLS)
    yield _one(head, "Ray's metrics of the dashboard", dashboard, _EVERY, "nobody", _TELLS)


def _of_models(api: tuple[int, ...], bound: str, picked: tuple[int, int]) -> Iterator[Port]:
    serve: tuple[Role, ...] = ("serve",)
    key = (
        "this host alone, unless --host says otherwise" if bound == _LOOPBACK else "requests give an API key"
    )
    for number in api:
        yield _one(serve, "a model's API", number, bound, "its users", key)
    yield _one(
        serve,
        "where hosts join a model without Ray",
        meeting.PORT,
        _EVERY,
        "the hosts that join",
        "until all are there; who has no token learns nothing",
    )
    yield Port(serve, "where ranks meet", *_SIDE, _EVERY, "the model's hosts", "without Ray; no token")
    why = "while medley pull runs; asks for a secret of that one transfer"
    yield Port(("pull",), "pieces of a model", *_SIDE, _WIRE, "the cluster's hosts", why)
    yield Port(
        ("worker", "serve", "join"),
        "ranks of a model",
        *picked,
        _EVERY,
        "the model's hosts",
        "torch, Gloo and NCCL take any port that is free, and ask for no token",
    )
    yield Port(
        ("worker", "serve", "join"),
        "SGLang's ranks meet",
        *_SGLANG,
        _EVERY,
        "the model's hosts",
        "one of these, also where the model is on one host alone; no token",
    )


def _of_links() -> Iterator[Port]:
    for number in (iperf3.PORT, *perftest.PORTS):
        name, bound = ("iperf3", _WIRE) if number == iperf3.PORT else ("perftest", _EVERY)
        yield _one(("test",), name, number, bound, "the other host", "while medley link test --serve runs")


def _of_top(picked: tuple[int, int]) -> Port:
    why = "while medley top --web runs; at another port or address if it is told one, and no key"
    return Port(("top",), "top's page, and for Prometheus", *picked, _LOOPBACK, "this host's browsers", why)


def _one(roles: tuple[Role, ...], what: str, number: int, *told: str) -> Port:
    """`told`: where it is bound, who has to reach it, and why."""
    bound, by, why = told
    return Port(roles, what, number, number, bound, by, why)


def closed(found: tuple[Port, ...]) -> tuple[tuple[int, int], ...]:
    """The ranges that a firewall has to close for all of these, in order, with no overlap: Ray's as one."""
    ranges = [(Ports().first, Ports().last), *((each.first, each.last) for each in found)]
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
