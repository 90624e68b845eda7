import os
import socket

import pytest

from medley.network import tcp
from medley.network.free_port import require_free_port
from medley.network.tcp import find_outward_address, is_loopback, list_reachable_ports, read_ephemeral_range
from tests.problems import raises_problem


def test_a_free_port_is_no_problem() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    require_free_port("127.0.0.1", port)


def test_the_outward_address_is_one_of_this_hosts() -> None:
    with socket.create_server((find_outward_address(), 0)) as server:
        assert server.getsockname()[1]


def test_a_port_in_use_names_who_holds_it() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with raises_problem(f"port {port} ", cause=f"process {os.getpid()} ", fix=f"--port {port + 1}"):
            require_free_port("127.0.0.1", port)


@pytest.mark.parametrize(
    ("address", "port", "what", "fix"),
    [
        pytest.param("127.0.0.1", 0, "port 0 ", "--port 8000", id="zero"),
        pytest.param("127.0.0.1", 65_536, "port 65536 ", "--port 8000", id="past the last"),
        pytest.param("192.0.2.1", 8000, "192.0.2.1", "ip -brief address", id="another host's address"),
        pytest.param("no such", 8000, "no such ", "--host 127.0.0.1", id="no address"),
    ],
)
def test_what_cannot_be_listened_on(address: str, port: int, what: str, fix: str) -> None:
    with raises_problem(what, fix=fix):
        require_free_port(address, port)


@pytest.mark.parametrize(
    ("family", "address", "reached"),
    [
        pytest.param(socket.AF_INET, "127.0.0.1", False, id="loopback"),
        pytest.param(socket.AF_INET, "127.1.2.3", False, id="all of the loopback"),
        pytest.param(socket.AF_INET, "0.0.0.0", True, id="every address"),
        pytest.param(socket.AF_INET6, "::ffff:127.0.0.1", False, id="loopback, as a v6 socket has it"),
        pytest.param(socket.AF_INET6, "::", True, id="every address of both"),
    ],
)
def test_what_others_reach(family: socket.AddressFamily, address: str, *, reached: bool) -> None:
    with socket.socket(family) as server:
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind((address, 0))
        server.listen()
        assert (server.getsockname()[1] in list_reachable_ports()) is reached


def test_a_port_that_is_picked_is_of_the_kernels_range() -> None:
    first, last = read_ephemeral_range()
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert first <= server.getsockname()[1] <= last


def test_an_address_that_this_host_lost_is_named() -> None:
    assert tcp.explain_lost_address("127.0.0.1") == ""
    assert tcp.explain_lost_address("192.0.2.7") == "this host does not have 192.0.2.7 any more; "


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("127.0.0.1", True), ("::1", True), ("[::1]", True), ("::1%lo", True), ("::ffff:127.0.0.1", True)),
        *(("localhost", True), ("a.localhost", True), ("fe80::1%eth0", False), ("10.0.0.1", False)),
        pytest.param("127.0.0.1%.evil.example", False, id="a name that begins as an address"),
        pytest.param("localhost%.evil.example", False, id="a name that begins as localhost"),
    ],
)
def test_which_host_of_a_url_is_loopback(host: str, *, expected: bool) -> None:
    """What is loopback gets the key without encryption; only IPv6 has zones behind a `%`."""
    assert is_loopback(host) is expected
