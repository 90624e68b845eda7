"""The guard around uvicorn as each engine has it: vLLM's parser is httptools, SGLang's h11."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from medley.environment.payload import api_guard as guard
from tests.waiting import wait_for

pytestmark = pytest.mark.engine
KEY = "sk-of-this-test"
GIVEN = {"Authorization": f"Bearer {KEY}"}
LINE = f"GET /stream HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()
PROGRAM = Path(__file__).parent / "guarded.py"
MIB = 1 << 20


@dataclass
class Guarded:
    port: int
    pid: int

    def status(self, path: str = "/v1/models", given: dict[str, str] = GIVEN, **more: object) -> int | None:
        """What it answers, or None where it closes the connection."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            try:
                connection.request("POST" if more else "GET", path, headers=given, **more)  # type: ignore[arg-type] # body alone
                return connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return None

    def connected(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20, source_address=(source, 0))

    @property
    def rss_bytes(self) -> int:
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(params=["vllm-cpu", "sglang-cpu"])
def server(request: pytest.FixtureRequest, free_port: int) -> Iterator[Guarded]:
    asked = (sys.executable, "-m", "medley", "env", "path", request.param)
    environment = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    program = (f"{environment}/bin/python", PROGRAM, str(free_port), str(Path(guard.__file__).parent))
    env = {"MEDLEY_GUARD": "0.0.0.0", "MEDLEY_GUARD_KEY": KEY, "MEDLEY_GUARD_BODY_MIB": "1"}
    with subprocess.Popen(program, env=env) as process:
        found = Guarded(free_port, process.pid)
        try:
            wait_for("the server answers", lambda: found.status("/health", {}) == 200, 60, state=process.poll)
            yield found
        finally:
            process.terminate()


def test_a_large_body_is_not_taken(server: Guarded) -> None:
    before = server.rss_bytes
    assert server.status(body=b"x" * (MIB + 1)) in {413, None}
    assert server.status(body=(b"x" * MIB for _ in range(300))) in {413, None}
    assert server.status(given={}, body=(b"x" * MIB for _ in range(300))) in {401, None}
    assert server.status(body=b"x" * MIB) == 200
    assert server.rss_bytes < before + 32 * MIB


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"GET / HTTP/1.1\r\nA: " + b"x" * 100, id="a header without end"),
        pytest.param(b"GET /" + b"x" * 100, id="a line without end"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"A: x\r\n" * 20, id="headers without end"),
    ],
)
def test_headers_without_end_are_cut_off(server: Guarded, head: bytes) -> None:
    before = server.rss_bytes
    with server.connected() as peer:
        peer.sendall(head)
        piece, sent = head[-6:] * 10_000, 0
        with contextlib.suppress(ConnectionError):
            while sent < 64 * MIB:
                sent += peer.send(piece)
                time.sleep(0.001)
    assert sent < 32 * MIB, "it is cut off long before all is sent; the kernel takes some"
    assert server.rss_bytes < before + 16 * MIB
    assert server.status() == 200


def test_a_slow_client_is_cut_off(server: Guarded) -> None:
    with server.connected() as idle, server.connected() as dribbling, server.connected() as body:
        body.sendall(b"POST /v1/models HTTP/1.1\r\nHost: a\r\n")
        body.sendall(f"Authorization: Bearer {KEY}\r\nContent-Length: 9\r\n\r\nx".encode())
        # Two seconds are allowed, and all of it takes 40.
        with pytest.raises(ConnectionError):
            dribble(dribbling, b"GET / HTTP/1.1\r\nA: " + b"x" * 400)
        assert ended(idle)
        assert b" 408 " in body.recv(100)


@pytest.mark.parametrize(
    "said",
    [
        b"\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
        b"GET /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx",
        (
            b"OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nAccess-Control-Request-Method: GET\r\n"
            b"Content-Length: 9\r\n\r\nx"
        ),
    ],
    ids=["an empty line", "health and half a body", "health and half a part", "a preflight and half a body"],
)
def test_who_never_gives_the_key_does_not_stay(server: Guarded, said: bytes) -> None:
    """Each of these was no request that waits for its headers, and stayed for good."""
    with server.connected() as peer:
        peer.sendall(said)
        peer.settimeout(20)  # for four seconds it may stay
        with contextlib.suppress(ConnectionError):
            while peer.recv(4096):
                pass


def dribble(peer: socket.socket, said: bytes) -> None:
    for letter in said:
        peer.sendall(bytes([letter]))
        time.sleep(0.1)


def ended(peer: socket.socket) -> bool:
    try:
        return not peer.recv(1)
    except ConnectionError:
        return True


def test_a_flood_of_connections_keeps_nobody_out_and_ends(server: Guarded) -> None:
    before = server.rss_bytes
    with ExitStack() as flood:
        for number in range(1000):
            peer = server.connected(f"127.0.1.{number % 8 + 1}")
            flood.enter_context(peer)
        assert server.status() in {200, None}
        # They have two seconds for their headers.
        wait_for("the server answers beside the flood", lambda: server.status() == 200)
    wait_for("it answers 20 times", lambda: [server.status() for _ in range(20)] == [200] * 20)
    assert server.rss_bytes < before + 32 * MIB


def test_who_reads_slowly_or_not_at_all_costs_little(server: Guarded) -> None:
    """Each is sent 320 MB, takes a little of it, and is cut off where it takes none for three seconds."""
    before = server.rss_bytes
    with ExitStack() as stack:
        readers = [stack.enter_context(server.connected()) for _ in range(10)]
        for each in readers:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.sendall(LINE)
            assert each.recv(1000)
        readers[0].close()  # one vanishes
        assert server.status() == 200
        assert server.rss_bytes < before + 32 * MIB
        wait_for(
            "those who take nothing are cut off",
            lambda: connections(server.port) <= 1,
            state=lambda: connections(server.port),
        )
    assert server.status() == 200


def connections(port: int) -> int:
    """Established ones to this port."""
    end = f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(end) and row[3] == "01" for row in rows)
