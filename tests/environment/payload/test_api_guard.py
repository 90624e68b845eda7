"""What the guard before an engine lets in, and what it refuses, asked as a server asks an application."""

import asyncio
import contextlib
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from medley.environment.payload import api_guard
from medley.environment.payload.api_guard import Guard, Message, Policy, bounded
from medley.environment.payload.http_requests import gives, is_loopback, proof
from medley.network import tcp

KEY = "sk-of-this-test"
GIVEN = (b"authorization", f"Bearer {KEY}".encode())
PREFLIGHT = ((b"origin", b"https://a.example"), (b"access-control-request-method", b"POST"))
Header = tuple[bytes, bytes]


class Engine:
    """An application that answers whatever reaches it, after it has read the body."""

    def __init__(self) -> None:
        self.reached = 0
        self.headers: list[Header] = []

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        self.reached += 1
        self.headers = scope.get("headers", [])
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


def request(path: str = "/v1/models", *headers: Header, method: str = "GET", kind: str = "http") -> Message:
    return {"type": kind, "path": path, "method": method, "headers": list(headers), "client": ("10.0.0.9", 5)}


def asked(policy: Policy, scope: Message, *parts: bytes) -> tuple[int, bool]:
    """The status, and whether the engine was reached at all."""
    engine, sent = Engine(), []
    body = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    body.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Message:
        return body.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(Guard(engine, policy)(scope, receive, send))
    status = next((each["status"] for each in sent if "status" in each), 0)
    return status, engine.reached > 0


LET_IN = [
    pytest.param(request("/health"), id="health"),
    pytest.param(request("/health", method="HEAD"), id="health, its head"),
    pytest.param(request("/invocations", GIVEN, method="POST"), id="the key"),
    pytest.param(
        request("/v1/messages", (b"x-api-key", KEY.encode()), method="POST"), id="as Anthropic's clients"
    ),
    pytest.param(request("/v1/models", (b"authorization", f"bearer  {KEY}".encode())), id="spelt otherwise"),
    pytest.param(request("/v1/models", *PREFLIGHT, method="OPTIONS"), id="a browser's preflight"),
]
REFUSED = [
    *("/", "/v1/models", "/invocations", "/metrics", "/docs", "/health/", "//health", "/health/../v1/models"),
    *("/HEALTH", "/health;x", "/health%00", "/health_generate", "/ping", "/scale_elastic_ep", "*", ""),
]


@pytest.mark.parametrize("scope", LET_IN)
def test_who_may_reaches_the_engine(scope: Message) -> None:
    assert asked(Policy(KEY), scope) == (200, True)


@pytest.mark.parametrize("path", REFUSED)
def test_no_other_route_answers_without_the_key(path: str) -> None:
    for method in ("GET", "POST", "OPTIONS", "PUT", "DELETE", "HEAD", "TRACE"):
        assert asked(Policy(KEY), request(path, method=method)) == (401, False), method


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([(b"authorization", b"Bearer x")], id="another"),
        pytest.param([(b"authorization", f"Bearer {KEY}x".encode())], id="longer"),
        pytest.param([(b"authorization", KEY.encode())], id="bare"),
        pytest.param([(b"authorization", f"Basic {KEY}".encode())], id="basic"),
        pytest.param([(b"authorization", b"Bearer ")], id="empty"),
        pytest.param([GIVEN, (b"authorization", b"Bearer x")], id="two, one of them wrong"),
        pytest.param([GIVEN, (b"x-api-key", b"x")], id="two ways, one of them wrong"),
        pytest.param([(b"x-api-key", b"")], id="an empty one"),
        pytest.param([(b"authorization", "Bearer é".encode())], id="no ASCII"),
    ],
)
def test_a_key_is_the_whole_key(headers: list[Header]) -> None:
    assert not gives(headers, KEY)
    assert asked(Policy(KEY), request("/v1/models", *headers)) == (401, False)


@pytest.mark.parametrize(("path", "bearers"), [("/v1/messages", [GIVEN]), ("/health", [])])
def test_the_engine_gets_a_key_of_anthropics_clients_as_a_bearer(path: str, bearers: list[Header]) -> None:
    """vLLM 0.32.0 checks the key once more, and answers 401 where it is an x-api-key only."""
    engine = Engine()

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(_: Message) -> None:
        pass

    scope = request(path, (b"x-api-key", KEY.encode()))
    asyncio.run(Guard(engine, Policy(KEY))(scope, receive, send))
    assert engine.reached == 1
    assert [each for each in engine.headers if each[0] == b"authorization"] == bearers


def test_post_to_health_and_a_websocket_need_the_key() -> None:
    assert asked(Policy(KEY), request("/health", method="POST")) == (401, False)
    assert asked(Policy(KEY), request("/v1/realtime", kind="websocket")) == (0, False)
    assert asked(Policy(KEY), request("/v1/realtime", GIVEN, kind="websocket")) == (0, True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param([(b"host", b"127.0.0.1:8000")], 200, id="by its address"),
        pytest.param([(b"host", b"[::1]:8000")], 200, id="by IPv6"),
        pytest.param([(b"host", b"localhost")], 200, id="by its name"),
        pytest.param([(b"host", b"rebound.example:8000")], 421, id="rebound"),
        pytest.param([(b"host", b"127.0.0.1.example")], 421, id="that only looks like it"),
        pytest.param([(b"host", b"localhost"), (b"host", b"localhost")], 421, id="twice"),
        pytest.param([(b"host", b"localhost"), (b"origin", b"https://a.example")], 403, id="another's page"),
        pytest.param([(b"host", b"localhost"), (b"origin", b"null")], 403, id="a page without an origin"),
        pytest.param([(b"host", b"localhost"), (b"origin", b"http://localhost:3000")], 200, id="own page"),
        pytest.param(
            [(b"host", b"localhost"), (b"sec-fetch-site", b"cross-site")], 403, id="a picture of a page"
        ),
        pytest.param([(b"host", b"localhost"), (b"sec-fetch-site", b"same-site")], 403, id="of a neighbour"),
        pytest.param([(b"host", b"localhost"), (b"sec-fetch-site", b"none")], 200, id="typed into a browser"),
        pytest.param(
            [(b"host", b"localhost"), (b"referer", b"https://a.example/x")], 403, id="an old browser"
        ),
        pytest.param(
            [(b"host", b"localhost"), (b"referer", b"http://localhost:3000/x")], 200, id="own referer"
        ),
    ],
)
def test_without_a_key_loopback_serves_this_host_s_programs(headers: list[Header], status: int) -> None:
    assert asked(Policy(), request("/v1/models", *headers)) == (status, status == 200)
    # With a key, and where the user has opened it, names do not matter.
    assert asked(Policy(KEY), request("/v1/models", *headers, GIVEN)) == (200, True)
    assert asked(Policy(loopback=False), request("/v1/models", *headers)) == (200, True)


def test_a_body_is_bounded_however_it_comes() -> None:
    policy = Policy(KEY, body_bytes=1000)
    said = request("/invocations", GIVEN, (b"content-length", b"1001"), method="POST")
    assert asked(policy, said) == (413, False)
    unsaid = request("/invocations", GIVEN, (b"transfer-encoding", b"chunked"), method="POST")
    assert asked(policy, unsaid, b"x" * 600, b"x" * 400) == (200, True)
    assert asked(policy, unsaid, b"x" * 600, b"x" * 401) == (413, True)
    odd = request("/invocations", GIVEN, (b"content-length", b"9" * 400), method="POST")
    assert asked(policy, odd, b"x") == (200, True)


def test_a_body_that_does_not_come_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_guard, "BODY_S", 0.05)
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(5)
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(Guard(Engine(), Policy(KEY))(request("/invocations", GIVEN, method="POST"), receive, send))
    assert sent[0]["status"] == 408


def test_who_waits_is_counted_and_who_may_ask_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_guard, "SAFE_S", 3600)  # a busy machine takes its time over what follows
    policy, aborted = Policy(KEY), list[object]()

    def enter(address: str, port: int) -> bool:
        return policy.enter((address, port), lambda: aborted.append((address, port)))

    assert sum(enter("10.0.0.1", port) for port in range(2000)) == api_guard.WAITING_OF_ONE
    assert enter("10.0.0.2", 1), "another address has its own share"
    policy.leave(("10.0.0.2", 1))
    for number, port in product(range(3, 9), range(2000)):
        enter(f"10.0.0.{number}", port)
    assert len(policy.waiting) == api_guard.WAITING
    assert not enter("10.0.0.9", 1)
    assert not aborted, "none has been here for long"
    monkeypatch.setattr(api_guard, "SAFE_S", 0)
    assert enter("10.0.0.9", 1)
    assert aborted == [("10.0.0.1", 0)], "the oldest of the address with most makes room"
    policy.leave(("10.0.0.2", 1))
    policy.leave(("10.0.0.9", 1))
    assert len(policy.waiting) == api_guard.WAITING - 1


def test_a_refusal_proves_that_the_server_knows_the_key_and_tells_nobody_more() -> None:
    nonce = b"ab" * 32

    def mark(policy: Policy, *headers: Header) -> bytes:
        return policy.proof(list(headers))

    assert mark(Policy(KEY), (api_guard.CHALLENGE, nonce)) == proof(KEY, nonce)
    assert mark(Policy("another"), (api_guard.CHALLENGE, nonce)) != proof(KEY, nonce)
    assert mark(Policy(KEY)) == mark(Policy(KEY), (api_guard.CHALLENGE, b"x")) == b"1"
    assert mark(Policy(), (api_guard.CHALLENGE, nonce)) == b"1"


@pytest.mark.parametrize(
    ("address", "found"),
    [
        *(
            ("127.0.0.1", True),
            ("127.9.9.9", True),
            ("::1", True),
            ("[::1]", True),
            ("::ffff:127.0.0.1", True),
        ),
        *(("localhost", True), ("a.localhost", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False)),
        *(("", False), ("127.0.0.1.example", False), ("localhost.example", False), ("0", False)),
    ],
)
def test_loopback(address: str, found: bool) -> None:  # noqa: FBT001 - of the table above
    assert is_loopback(address) is tcp.is_loopback(address) is found


def test_the_environment_says_it() -> None:
    told = {"MEDLEY_GUARD": "0.0.0.0", "MEDLEY_GUARD_KEY": KEY, "MEDLEY_GUARD_BODY_MIB": "2"}
    assert Policy.of(told) == Policy(KEY, loopback=False, body_bytes=2 << 20)
    assert Policy.of({"MEDLEY_GUARD": "127.0.0.1"}) == Policy(None, loopback=True)


def test_either_protocol_of_uvicorn_is_bounded() -> None:
    class HttpTools:
        def on_headers_complete(self) -> None: ...

    class H11: ...

    policy = Policy()
    assert bounded(HttpTools, policy).__mro__[1].__name__ == "_OfHttptools"
    assert bounded(H11, policy).__mro__[1].__name__ == "_OfH11"


def gated(tmp_path: Path, text: str) -> Policy:
    (tmp_path / "8000.gate").write_text(text)
    return Policy(KEY, gate=str(tmp_path / "8000.gate"))


@pytest.mark.parametrize(
    ("text", "reason", "retry"),
    [
        ('{"reason": "memory is \\"low\\"", "retry_after_s": 10}', 'memory is "low"', b"10"),
        ("", "the server takes no new requests", b"30"),
        ("[]", "the server takes no new requests", b"30"),
    ],
    ids=["a reason", "an empty file", "no table"],
)
def test_a_closed_gate_refuses_with_its_reason(tmp_path: Path, text: str, reason: str, retry: bytes) -> None:
    policy, sent = gated(tmp_path, text), list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    engine = Engine()
    asyncio.run(Guard(engine, policy)(request("/v1/completions", GIVEN, method="POST"), receive, send))
    assert (engine.reached, sent[0]["status"], dict(sent[0]["headers"])[b"retry-after"]) == (0, 503, retry)
    assert json.loads(sent[1]["body"])["error"]["message"] == reason


def test_a_closed_gate_lets_health_and_metrics_through(tmp_path: Path) -> None:
    policy = gated(tmp_path, "{}")
    assert asked(policy, request("/health")) == (200, True)
    assert asked(policy, request("/metrics", GIVEN)) == (200, True)
    assert asked(policy, request("/metrics")) == (401, False), "it needs the key as before"
    assert asked(policy, request("/v1/realtime", GIVEN, kind="websocket")) == (0, False)
    (tmp_path / "8000.gate").unlink()
    assert asked(policy, request("/v1/models", GIVEN)) == (200, True)


def test_health_tells_how_many_requests_are_open() -> None:
    policy, counts = Policy(None), list[bytes]()

    async def told(message: Message) -> None:
        counts.extend(value for name, value in message.get("headers", ()) if name == api_guard.OPEN)

    async def engine(_scope: Message, receive: Any, _send: Any) -> None:
        await receive()
        await guard(request("/health", (api_guard.OPEN, b"?")), receive, told)
        raise RuntimeError

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    guard = Guard(engine, policy)
    with contextlib.suppress(RuntimeError):
        asyncio.run(guard(request("/v1/completions", method="POST"), receive, told))
    asyncio.run(guard(request("/health", (api_guard.OPEN, b"?")), receive, told))
    assert counts == [b"1", b"0"]
