"""Attacks on the edge: Caddy with medley's configuration, before a real server on a socket."""

import http.client
import json
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from medley.engine.server_spec import Tls
from medley.environment import caddy
from medley.serving import edge_process
from medley.serving.drain import Drain
from medley.serving.edge import BODY_PAUSE_LIMIT_S, HEADER_LIMIT_S, MAX_BODY_MIB, Edge, EdgeClosure
from medley.serving.edge_process import EdgeProcess, count_open_requests, run_edge
from tests.problems import raises_problem
from tests.socket_server import PIECES, Requests, answering_on
from tests.waiting import wait_for

pytestmark = pytest.mark.engine
KEY, OTHER_KEY = "sk-0123456789abcdef01234567", "sk-another-9abcdef0123456789"
AUTHORIZATION = {"Authorization": f"Bearer {KEY}"}
CHAT = "/v1/chat/completions"
BODY = json.dumps({"model": "m", "messages": []}).encode()
MIB = 1 << 20
LINE = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\n"


@dataclass
class Front:
    """A running edge, and what its engine was sent."""

    process: EdgeProcess
    engine: Requests

    @property
    def port(self) -> int:
        return self.process.settings.port

    @property
    def pid(self) -> int:
        assert self.process.pid
        return self.process.pid

    def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> tuple[int, dict[str, str], str]:
        """Ask, and once again as clients do where the connection ended before the answer began.

        While Caddy takes a configuration, its old server may accept a connection and close it unanswered.
        """
        try:
            return self._ask(method, path, headers or {}, body)
        except (http.client.RemoteDisconnected, ConnectionResetError):
            return self._ask(method, path, headers or {}, body)

    def _ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, dict[str, str], str]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read().decode()

    def send(self, data: bytes, limit_s: float = 10) -> bytes:
        """Send raw bytes; return all that comes back until the edge closes, or `limit_s` passes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=limit_s) as connection:
            answer = b""
            try:
                connection.sendall(data)
                while piece := connection.recv(65536):
                    answer += piece
            except OSError:
                pass
            return answer

    @property
    def rss_bytes(self) -> int:
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


@contextmanager
def fronted(edge: Edge) -> Iterator[Front]:
    edge.folder.mkdir(mode=0o700, exist_ok=True)
    with answering_on(edge.engine_socket) as engine, run_edge(edge, caddy.prepare_caddy(), print) as process:
        process.admit("start")
        front = Front(process, engine)
        if edge.tls is None:
            wait_for("it is open", lambda: front.ask("GET", "/health")[0] == http.client.OK, 20)
        engine.lines.clear()
        yield front


@pytest.fixture
def edge(tmp_path_factory: pytest.TempPathFactory, free_port: int, monkeypatch: pytest.MonkeyPatch) -> Edge:
    folder = tmp_path_factory.mktemp("e")
    monkeypatch.setenv("MEDLEY_STATE", str(folder / "state"))
    return Edge("127.0.0.1", free_port, folder / "engine.sock", folder, {"key": KEY})


@pytest.fixture
def front(edge: Edge) -> Iterator[Front]:
    with fronted(edge) as found:
        yield found


@pytest.fixture
def front_without_key(edge: Edge) -> Iterator[Front]:
    with fronted(edge.replace(keys=None)) as found:
        yield found


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (CHAT, 200),
        (f"{CHAT}?a=/invocations", 200),
        ("/v1/%63hat/completions", 200),
        (f"/{CHAT}", 404),
        ("/v1//chat/completions", 404),
        ("/x/../v1/chat/completions", 404),
        (f"{CHAT}/", 404),
        ("/V1/chat/completions", 404),
        (f"{CHAT}%00", 404),
        (f"{CHAT};/../../invocations", 404),
        (f"{CHAT}/../../../invocations", 404),
        ("/invocations", 404),
        ("/%69nvocations", 404),
        ("/pause", 404),
        ("/collective_rpc", 404),
        ("/health/../invocations", 404),
        ("/health%2f..%2finvocations", 404),
        ("http://evil/invocations", 404),
    ],
)
def test_only_listed_paths_reach_the_engine(front: Front, path: str, status: int) -> None:
    assert front.ask("POST", path, AUTHORIZATION, BODY)[0] == status
    assert front.engine.lines == ([f"POST {CHAT}"] if status == 200 else [])


@pytest.mark.parametrize("path", ["/health", "/health?x", "//health"])
def test_health_needs_no_key_and_has_one_path(front: Front, path: str) -> None:
    assert front.ask("GET", path)[0] == http.client.OK
    assert front.engine.lines == ["GET /health"]


@pytest.mark.parametrize(
    "path",
    ["/health/", "/health/../v1/models", "/v1/models", "/", "/metrics", "/.well-known/acme-challenge/x"],
)
def test_nothing_else_answers_without_the_key(front: Front, path: str) -> None:
    assert front.ask("GET", path)[0] == http.client.UNAUTHORIZED
    assert front.engine.lines == []


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ([f"Authorization: Bearer {KEY}"], True),
        ([f"authorization: bearer {KEY}"], True),
        ([f"x-api-key: {KEY}"], True),
        ([f"Authorization: Bearer {KEY}", f"x-api-key: {KEY}"], True),
        (["Authorization:", f"x-api-key: {KEY}"], True),
        ([], False),
        (["Authorization: Bearer wrong", f"x-api-key: {KEY}"], False),
        (["Authorization: Basic YTpi", f"x-api-key: {KEY}"], False),
        ([f"Authorization: Bearer {KEY}", "x-api-key: wrong"], False),
        (["Authorization: -", f"x-api-key: {KEY}"], False),
        ([f"Authorization: Bearer {KEY}", "x-api-key: default"], False),
        (["Authorization: Bearer wrong"], False),
        ([f"Authorization: Bearer {KEY[:-1]}"], False),
        ([f"Authorization: Bearer {KEY}x"], False),
        ([f"Authorization: Bearer {KEY}", "Authorization: Bearer wrong"], False),
        (["Authorization: Bearer wrong", f"Authorization: Bearer {KEY}"], False),
        (["Authorization: *"], False),
        (["Authorization: Bearer *"], False),
        (["Authorization: {http.vars.x}"], False),
        (["Authorization: -"], False),
        (["Authorization:"], False),
        ([f"X_Api_Key: {KEY}"], False),
        ([f"Authorization : Bearer {KEY}"], False),
        ([f"Cookie: key={KEY}"], False),
        (
            [f"Trailer: Authorization\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: Bearer {KEY}"],
            False,
        ),
    ],
)
def test_only_a_whole_key_passes(front: Front, headers: list[str], *, passes: bool) -> None:
    lines = ["GET /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close", *headers]
    answer = front.send("\r\n".join((*lines, "", "")).encode())
    assert (b" 200 OK" in answer) == passes, answer
    assert bool(front.engine.lines) == passes


def test_the_engine_sees_no_key(front: Front) -> None:
    text = front.ask("POST", CHAT, {**AUTHORIZATION, "Cookie": "a=b"}, BODY)[2]
    assert KEY not in text
    assert "Cookie" not in text


_HIDDEN = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n{}\n"


@pytest.mark.parametrize(
    "attack",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + _HIDDEN,
        b"Content-Length: 4\r\nContent-Length: 40\r\n\r\n" + _HIDDEN,
        b"Content-Length: 4, 40\r\n\r\n" + _HIDDEN,
        b"Content-Length: +4\r\n\r\n" + _HIDDEN,
        b"Transfer-Encoding: xchunked\r\n\r\n" + _HIDDEN,
        b"Transfer-Encoding:\tchunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + _HIDDEN,
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + _HIDDEN,
        b"Transfer-Encoding: chunked\r\n\r\n3\n{}\n\n0\n\n" + _HIDDEN,
        b"Host: other\r\nContent-Length: 0\r\n\r\n" + _HIDDEN,
        b"X: a\0b\r\nContent-Length: 0\r\n\r\n" + _HIDDEN,
    ],
)
def test_no_request_hides_in_another(front: Front, attack: bytes) -> None:
    front.send(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n".encode() + attack, 1)
    assert not any("invocations" in line for line in front.engine.lines)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "127.1.2.3"}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Referer": "http://127.0.0.1:3000/page"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Referer": "http://evil.example/"}, 403),
        ({"Referer": "http://localhost.evil.example/"}, 403),
    ],
)
def test_without_a_key_pages_of_other_sites_are_refused(
    front_without_key: Front, headers: dict[str, str], status: int
) -> None:
    assert front_without_key.ask("GET", "/v1/models", headers)[0] == status


def test_an_error_has_the_format_of_the_clients_api(front: Front) -> None:
    openai = json.loads(front.ask("POST", CHAT, {}, BODY)[2])
    assert set(openai["error"]) == {"message", "type", "param", "code"}
    anthropic = json.loads(front.ask("POST", "/v1/messages", {}, BODY)[2])
    assert anthropic["type"] == "error"
    assert anthropic["error"]["type"] == "authentication_error"


def test_a_model_is_asked_for_by_its_name(front: Front) -> None:
    for name in ("smollm2", "Qwen/Qwen3-8B"):
        assert front.ask("GET", f"/v1/models/{name}", AUTHORIZATION)[0] == http.client.OK
    for name in ("a/b/c", "../models", "a%2f..%2f..%2finvocations", "a%20b"):
        assert front.ask("GET", f"/v1/models/{name}", AUTHORIZATION)[0] == http.client.NOT_FOUND
    assert front.engine.lines == ["GET /v1/models/smollm2", "GET /v1/models/Qwen/Qwen3-8B"]


def test_a_closed_edge_refuses_new_requests_and_answers_the_running_ones(front: Front) -> None:
    body = json.dumps({"stream": True}).encode()
    with closing(http.client.HTTPConnection("127.0.0.1", front.port, timeout=20)) as connection:
        connection.request("POST", CHAT, body, AUTHORIZATION)
        stream = connection.getresponse()
        assert count_open_requests(front.process.settings.control_socket) == 1
        front.process.refuse("drain", EdgeClosure("the server is ending", 7))
        status, headers, text = front.ask("POST", CHAT, AUTHORIZATION, BODY)
        assert (status, headers["Retry-After"]) == (http.client.SERVICE_UNAVAILABLE, "7")
        assert "the server is ending" in text
        assert front.ask("GET", "/metrics", AUTHORIZATION)[0] == http.client.OK
        assert stream.read().count(b"data: ") == PIECES
    wait_for(
        "no request is open", lambda: count_open_requests(front.process.settings.control_socket) == 0, 10
    )
    front.process.admit("drain")
    assert front.ask("POST", CHAT, AUTHORIZATION, BODY)[0] == http.client.OK


def test_a_killed_edge_is_started_again(front: Front) -> None:
    os.kill(front.pid, signal.SIGKILL)

    def is_back() -> bool:
        front.process.check()
        try:
            return front.ask("GET", "/v1/models", AUTHORIZATION)[0] == http.client.OK
        except OSError:
            return False

    wait_for("it listens again", is_back, 20)


def test_a_busy_edge_gets_its_configuration_later(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_process, "_CONTROL_LIMIT_S", 1)
    os.kill(front.pid, signal.SIGSTOP)
    front.process.refuse("drain", EdgeClosure("the server is ending"))
    os.kill(front.pid, signal.SIGCONT)
    monkeypatch.undo()

    def is_closed() -> bool:
        front.process.check()
        return front.ask("GET", "/v1/models", AUTHORIZATION)[0] == http.client.SERVICE_UNAVAILABLE

    wait_for("it is closed", is_closed, 20)


def test_a_drain_ends_at_its_limit_though_the_edge_does_not_answer(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_process, "_CONTROL_LIMIT_S", 1)
    said: list[str] = []
    drain = Drain(front.process, 1, said.append)

    def end() -> None:
        with drain.drain_on_sigterm():
            signal.raise_signal(signal.SIGTERM)
            os.kill(front.pid, signal.SIGSTOP)
            for _ in range(10):
                drain.check()
                time.sleep(0.3)

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            end()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert said[-1] == "an unknown number of requests were not answered within 1 s"


# Caddy may end between a look and a connection; httpcore 1.0.9 then leaves its socket to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_port_in_use_is_named(edge: Edge) -> None:
    with (
        socket.create_server(("127.0.0.1", edge.port)),
        raises_problem(f"port {edge.port}", fix=f"--port {edge.port + 1}"),
        run_edge(edge, caddy.prepare_caddy(), print),
    ):
        pass


def test_a_named_page_may_ask(edge: Edge) -> None:
    page = "https://chat.example"
    preflight = {
        "Origin": page,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    with fronted(edge.replace(origins=(page,))) as front:
        status, headers, _ = front.ask("OPTIONS", CHAT, preflight)
        assert (status, headers["Access-Control-Allow-Origin"]) == (http.client.NO_CONTENT, page)
        status, headers, _ = front.ask("POST", CHAT, {**AUTHORIZATION, "Origin": page}, BODY)
        assert (status, headers["Access-Control-Allow-Origin"]) == (http.client.OK, page)
        _, headers, _ = front.ask("POST", CHAT, {**AUTHORIZATION, "Origin": "https://evil.example"}, BODY)
        assert "Access-Control-Allow-Origin" not in headers
        assert (
            front.ask("OPTIONS", CHAT, {**preflight, "Origin": "https://evil.example"})[0]
            == http.client.UNAUTHORIZED
        )


def test_a_configuration_that_caddy_refuses_ends_nothing(
    edge: Edge, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here two names have one key, as no file of medley's; the engine and the keys from before stay."""
    other = "sk-fedcba9876543210fedcba98"
    with fronted(edge) as front:
        front.process.replace_settings(edge.replace(keys={"a": other, "b": other}))
        front.process.check()
        assert front.process.refusal_cause
        answers = [front.ask("GET", "/v1/models", {"x-api-key": key})[0] for key in (KEY, other)]
        assert answers == [http.client.OK, http.client.UNAUTHORIZED]
        os.kill(front.pid, signal.SIGKILL)

        def is_started_again() -> bool:
            front.process.check()
            return front.process.refusal_cause is None

        wait_for("it is started again", is_started_again, 20)
        assert front.ask("GET", "/v1/models", {"x-api-key": KEY})[0] == http.client.OK
        front.process.replace_settings(edge.replace(keys={"a": other}))
        assert front.process.refusal_cause is None
        wait_for(
            "the other key is taken",
            lambda: front.ask("GET", "/v1/models", {"x-api-key": other})[0] == http.client.OK,
            20,
        )
        assert front.ask("GET", "/v1/models", {"x-api-key": KEY})[0] == http.client.UNAUTHORIZED
    said = capsys.readouterr().out
    assert said.count("Caddy refuses a change, and keeps what it had") == 1
    assert other not in said


def test_tls_of_its_own_authority(edge: Edge) -> None:
    with fronted(edge.replace(tls=Tls(names=("localhost", "127.0.0.1")))) as front:
        root = Tls().authority
        assert root
        wait_for("the authority's certificate is there", root.exists, 20)
        trust = ssl.create_default_context(cafile=str(root))
        with closing(
            http.client.HTTPSConnection("127.0.0.1", front.port, timeout=20, context=trust)
        ) as connection:
            connection.request("GET", "/v1/models", headers=AUTHORIZATION)
            assert connection.getresponse().status == http.client.OK


def test_trailers_without_end_take_no_memory(front: Front) -> None:
    before = front.rss_bytes
    piece = (b"X: " + b"a" * 1000 + b"\r\n") * 100
    for headers in ("", f"Authorization: Bearer {KEY}\r\n"):
        with socket.create_connection(("127.0.0.1", front.port), timeout=5) as connection:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\n{headers}Transfer-Encoding: chunked\r\n\r\n0\r\n"
            connection.sendall(head.encode())
            with pytest.raises(OSError, match=r"reset|Broken|timed out"):
                connection.sendall(piece * 1350)  # 135 MB
    assert front.rss_bytes - before < 50 * MIB


def test_large_bodies_are_refused(front: Front) -> None:
    large = MAX_BODY_MIB * MIB + 1
    head = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n"
    assert b" 413 " in front.send(
        f"{head}Expect: 100-continue\r\nContent-Length: {large}\r\n\r\n".encode(), 15
    )
    assert b" 431 " in front.send((head + "X: " + "a" * (70 << 10) + "\r\n\r\n").encode())
    chunk = b"100000\r\n" + b"a" * MIB + b"\r\n"
    answer = front.send(
        f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * (MAX_BODY_MIB + 1) + b"0\r\n\r\n", 20
    )
    assert b" 413 " in answer


@pytest.mark.parametrize(
    "text", ["{env.HOME}", "{file./etc/hostname}", "{http.request.header.Authorization}", "\\{a\\}"]
)
def test_a_body_arrives_as_it_was_sent(front: Front, text: str) -> None:
    body = json.dumps({"model": "m", "text": text}).encode()
    assert json.loads(front.ask("POST", CHAT, AUTHORIZATION, body)[2])["body"].encode("latin-1") == body


@pytest.mark.parametrize(
    "body",
    [
        b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"transfer-encoding: Chunked\r\n\r\n400\r\naaa",
        b"Content-Length: 1\r\n\r\na",
        b"content-length: 999999999\r\n\r\naaa",
    ],
)
@pytest.mark.parametrize("path", ["/health", "/x/../%68ealth"])
def test_a_body_for_health_does_not_reach_the_engine(front: Front, path: str, body: bytes) -> None:
    answer = front.send(f"GET {path} HTTP/1.1\r\nHost: a\r\n".encode() + body, 5)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert front.engine.lines == []
    empty = front.send(b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    assert empty.startswith(b"HTTP/1.1 200 ")


def test_slow_clients_and_upgrades_are_closed(front: Front) -> None:
    """All at once, because each takes its limit."""
    before = front.descriptors
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 99999\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", front.port), timeout=5))
            connection.sendall(f"POST /v1/realtime HTTP/1.1\r\nHost: a\r\n{upgrade}".encode())
        ends = _close_times(
            front.port,
            {
                "nothing": b"",
                "head": b"POST / HTTP/1.1\r\nX: ",
            },
        )
        assert all(seconds < max(HEADER_LIMIT_S, BODY_PAUSE_LIMIT_S) + 5 for seconds in ends.values()), ends
        wait_for(
            "the upgrades are closed",
            lambda: front.descriptors <= before + 5,
            20,
            state=lambda: front.descriptors,
        )


def _close_times(port: int, firsts: dict[str, bytes]) -> dict[str, float]:
    """Return after how many seconds the edge ends each request; a head goes on with a byte each 0.5 s."""
    ends: dict[str, float] = {}

    def drip(name: str, first: bytes) -> None:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=0.5) as connection:
            connection.sendall(first)
            while time.monotonic() - began < 40:
                try:
                    if first:
                        connection.sendall(b"a")
                    connection.recv(4096)
                    break
                except TimeoutError:
                    continue
                except OSError:
                    break
        ends[name] = time.monotonic() - began

    threads = [threading.Thread(target=drip, args=each) for each in firsts.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends
