"""Guard an engine's HTTP API: only /health answers without the key, and what a client costs is bounded.

    python api_guard.py vllm serve MODEL FLAGS…       runs `vllm serve MODEL FLAGS…` behind the guard

It runs in the engine's Python (3.10 or later), and needs uvicorn, which serves both engines. Their own checks
leave routes open: vLLM 0.32.0 asks for its key only below /v1, /v2, /inference and /cohere. It reads these
variables:

    MEDLEY_GUARD           the address that the server listens at
    MEDLEY_GUARD_KEY       the key that requests give; none on loopback, or where the user opens the server
    MEDLEY_GUARD_BODY_MIB  the largest body of a request, 64 unless given
"""

import asyncio
import hashlib
import hmac
import ipaddress
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

MARK, CHALLENGE = b"x-medley-guard", b"x-medley-challenge"
"""Of each refusal: by it `serve` knows that the guard is there; and what a client asks it to prove itself by,
before it gives the key: another program may have the port that the engine does not have yet."""
OPEN = "/health"
BODY_MIB = 64
HEAD_BYTES = 64 << 10
"""Of a request's line and headers."""
HEAD_S, BODY_S, STALL_S = 20.0, 60.0, 120.0
"""How long a client may take for its headers, between two parts of a body, and to take what it is sent."""
WAITING, WAITING_OF_ONE = 512, 128
"""Connections that have not given the key yet: in all, and from one address."""
SAFE_S, STRANGER_S = 1.0, 60.0
"""So long one of these need not make room for who comes later; and so long it may stay at all."""
_DIGITS = 20
_NONCE = re.compile(rb"[0-9a-f]{64}")
_ORIGIN = re.compile(rb"https?://([^/]*)", re.IGNORECASE)
_PAGE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)
_BEARER = re.compile(rb"bearer +(\S+) *", re.IGNORECASE)


class TooLarge(Exception):  # noqa: N818 - it ends a request, and no more
    """A body is larger than allowed."""


@dataclass(frozen=True)
class Waiting:
    """A connection that has not given the key."""

    address: str
    since: float
    abort: Callable[[], None]


@dataclass
class Policy:
    """What is let in, and which connections have shown that they may."""

    key: str | None = None
    loopback: bool = True
    """It listens on this host alone."""
    body_bytes: int = BODY_MIB << 20
    admitted: set[Any] = field(default_factory=set)
    """Addresses and ports of clients that have given the key."""
    waiting: dict[Any, "Waiting"] = field(default_factory=dict)
    """Connections that have not, the oldest first."""

    @classmethod
    def of(cls, environ: MutableMapping[str, str]) -> "Policy":
        """As the environment says; the key does not stay in it for what the engine starts."""
        mib = int(environ.get("MEDLEY_GUARD_BODY_MIB") or BODY_MIB)
        key = environ.get("MEDLEY_GUARD_KEY") or None
        return cls(key, is_loopback(environ.get("MEDLEY_GUARD", "")), mib << 20)

    def refusal(self, scope: Message) -> tuple[HTTPStatus, str] | None:
        """The status and the words with which a request is refused, or None."""
        headers = scope["headers"]
        if self.key is not None:
            if _is_health(scope) or _is_preflight(scope) or gives(headers, self.key):
                return None
            return HTTPStatus.UNAUTHORIZED, "give the key: Authorization: Bearer KEY"
        if self.loopback:
            return _foreign(headers)
        return None

    def proof(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """What the header of a refusal says: that who refuses knows the key, to who asked for it."""
        asked = next(
            (value for name, value in headers if name == CHALLENGE and _NONCE.fullmatch(value)), None
        )
        return b"1" if self.key is None or asked is None else proof(self.key, asked)

    def admit(self, client: Any) -> None:  # noqa: ANN401 - as uvicorn has it
        """A connection that may ask does not count among those that wait."""
        if client and client not in self.admitted:
            self.admitted.add(client)
            self.waiting.pop(client, None)

    def enter(self, client: Any, abort: Callable[[], None]) -> bool:  # noqa: ANN401 - as uvicorn has it
        """Whether one more connection may wait; it counts from then on. An older one may make room for it."""
        if not client:  # a socket in a folder
            return True
        address = client[0]
        count = Counter(each.address for each in self.waiting.values())
        if count[address] >= WAITING_OF_ONE:
            full: str | None = address
        else:
            full = max(count, key=lambda each: count[each]) if count.total() >= WAITING else None
        if full is not None and not self._made_room(full):
            return False
        self.waiting[client] = Waiting(address, time.monotonic(), abort)
        return True

    def _made_room(self, address: str) -> bool:
        client, oldest = next(each for each in self.waiting.items() if each[1].address == address)
        if time.monotonic() - oldest.since < SAFE_S:
            return False
        del self.waiting[client]
        oldest.abort()
        return True

    def gone(self, client: Any) -> None:  # noqa: ANN401
        """Its connection has ended."""
        self.admitted.discard(client)
        self.waiting.pop(client, None)


class Guard:
    """An ASGI application around the engine's: what is not let in never reaches it."""

    def __init__(self, application: Application, policy: Policy) -> None:
        self.application, self.policy = application, policy

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
            return
        refused = self.policy.refusal(scope)
        if refused:
            await _refuse(scope, send, *refused, self.policy.proof(scope["headers"]))
            return
        if scope["type"] == "websocket":
            await self.application(scope, receive, send)
            return
        if self.policy.key is None or not (_is_health(scope) or _is_preflight(scope)):
            self.policy.admit(scope.get("client"))
        if length(scope["headers"]) > self.policy.body_bytes:
            most = f"the body is larger than {self.policy.body_bytes >> 20} MiB (MEDLEY_GUARD_BODY_MIB)"
            await _refuse(scope, send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, most)
            return
        await self._bounded(scope, receive, send)

    async def _bounded(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass on a body that ends in time and is not too large."""
        body = _Body(receive, self.policy.body_bytes)
        began = False

        def answer(message: Message) -> Awaitable[None]:
            """No coroutine of its own: a streamed answer has one message for each token."""
            nonlocal began
            if not began and body.failed:
                return _nothing()
            began = True
            return send(message)

        try:
            await self.application(scope, body.receive, answer)
        except TooLarge:
            if began:
                raise
        if body.failed and not began:
            await _refuse(
                scope, send, body.failed, "the body is larger than allowed, or did not come in time"
            )


async def _nothing() -> None:
    """Instead of what is not to be sent."""


class _Body:
    """The parts of a request's body, counted."""

    def __init__(self, receive: Receive, most_bytes: int) -> None:
        self._receive, self._left = receive, most_bytes
        self._whole = False
        self.failed: HTTPStatus | None = None

    async def receive(self) -> Message:
        if self._whole:  # what comes is that the client hangs up
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), BODY_S)
        except asyncio.TimeoutError:  # noqa: UP041 - another one in Python 3.10
            self.failed = HTTPStatus.REQUEST_TIMEOUT
            raise TooLarge from None
        self._left -= len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._left < 0:
            self.failed = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            raise TooLarge
        return message


def is_loopback(address: str) -> bool:
    name = address.strip("[]").lower()
    try:
        found = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def gives(headers: list[tuple[bytes, bytes]], key: str) -> bool:
    """Whether a request gives the key, once: as OpenAI's clients do, or as Anthropic's."""
    given = [
        *(_bearer(value) for name, value in headers if name == b"authorization"),
        *(value for name, value in headers if name == b"x-api-key"),
    ]
    wanted = hashlib.sha256(key.encode()).digest()
    # Of hashes, so that not even its length shows in the time that it takes.
    return bool(given) and all(hmac.compare_digest(hashlib.sha256(each).digest(), wanted) for each in given)


def proof(key: str, nonce: bytes) -> bytes:
    """By which a server shows that it knows the key, to a client that does not want to give it to another."""
    return hmac.digest(key.encode(), b"medley guard " + nonce, "sha256").hex().encode()


def length(headers: list[tuple[bytes, bytes]]) -> int:
    """Of the body, as the request says; 0 where it does not."""
    said = [value for name, value in headers if name == b"content-length"]
    return max((int(each) for each in said if each.isdigit() and len(each) < _DIGITS), default=0)


def _bearer(value: bytes) -> bytes:
    found = _BEARER.fullmatch(value)
    return found[1] if found else b""


def _is_health(scope: Message) -> bool:
    return scope["type"] == "http" and scope["path"] == OPEN and scope["method"] in {"GET", "HEAD"}


def _is_preflight(scope: Message) -> bool:
    """A browser's question before a request has no key yet; both engines answer it before any route."""
    if scope["type"] != "http" or scope["method"] != "OPTIONS":
        return False
    names = {name for name, _ in scope["headers"]}
    return b"origin" in names and b"access-control-request-method" in names


def _foreign(headers: list[tuple[bytes, bytes]]) -> tuple[HTTPStatus, str] | None:
    """A page of elsewhere may send a browser to this host's loopback, by its own name or by ours."""
    hosts = [_host(value) for name, value in headers if name == b"host"]
    origins = [_ORIGIN.fullmatch(value) for name, value in headers if name == b"origin"]
    advice = "without a key this server answers this host's own programs alone: medley serve --api-key FILE"
    if any(not is_loopback(host) for host in hosts) or len(hosts) > 1:
        return HTTPStatus.MISDIRECTED_REQUEST, advice
    if any(not found or not is_loopback(_host(found[1])) for found in origins) or _for_a_page(headers):
        return HTTPStatus.FORBIDDEN, advice
    return None


def _for_a_page(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a browser asks on behalf of a page of elsewhere: for a picture, say, it tells no Origin."""
    sites = [value.lower() for name, value in headers if name == b"sec-fetch-site"]
    if sites:
        return any(site not in {b"same-origin", b"none"} for site in sites)
    pages = [_PAGE.match(value) for name, value in headers if name == b"referer"]
    return any(not found or not is_loopback(_host(found[1])) for found in pages)


def _host(value: bytes) -> str:
    text = value.decode("latin-1")
    return text[: text.find("]") + 1] if text.startswith("[") else text.partition(":")[0]


async def _refuse(scope: Message, send: Send, status: HTTPStatus, words: str, mark: bytes = b"1") -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": words})
        return
    text = f'{{"error": {{"message": "{words}", "type": "medley_guard", "code": {status.value}}}}}'.encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
        (MARK, mark),
        *([(b"www-authenticate", b"Bearer")] if status == HTTPStatus.UNAUTHORIZED else []),
    ]
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": text})


class Bounds:
    """Mixed into uvicorn's protocol: clients wait in bounded numbers, and none stalls for ever."""

    policy: Policy
    transport: Any
    client: Any
    loop: Any
    _timer: Any = None
    _stranger: Any = None
    _stalled: Any = None
    _head_bytes = 0
    _counted = False

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401
        super().connection_made(transport)  # type: ignore[misc] # of uvicorn's protocol
        self._counted = self.policy.enter(self.client, transport.abort)
        if self._counted:
            self._timer = self.loop.call_later(HEAD_S, transport.abort)
            self._stranger = self.loop.call_later(STRANGER_S, self._no_stranger)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._counted:
            return
        super().data_received(data)  # type: ignore[misc]
        if not self._in_head():
            self._head_bytes = 0
            self._untimed()
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self.transport.abort()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _no_stranger(self) -> None:
        """Whatever it says now and then, who has not given the key by now does not stay."""
        if self.client and self.client in self.policy.waiting:
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if self._stranger:
            self._stranger.cancel()
        self._untimed()
        self._flowing()
        if self._counted:
            self._counted = False
            self.policy.gone(self.client)
        super().connection_lost(error)  # type: ignore[misc]

    def handle_websocket_upgrade(self, *event: Any) -> None:  # noqa: ANN401 - h11's has one
        """Another protocol has the connection from here on."""
        self._untimed()
        if self._counted:
            self._counted = False
            self.policy.gone(self.client)
        super().handle_websocket_upgrade(*event)  # type: ignore[misc]

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        self._stalled = self._stalled or self.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._flowing()
        super().resume_writing()  # type: ignore[misc]

    def _untimed(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None

    def _flowing(self) -> None:
        if self._stalled:
            self._stalled.cancel()
        self._stalled = None

    def _in_head(self) -> bool:
        raise NotImplementedError


class _OfHttptools(Bounds):
    _heading = False

    def on_message_begin(self) -> None:
        self._heading = True
        super().on_message_begin()  # type: ignore[misc]

    def on_headers_complete(self) -> None:
        self._heading = False
        super().on_headers_complete()  # type: ignore[misc]

    def _in_head(self) -> bool:
        return self._heading


class _OfH11(Bounds):
    conn: Any

    def _in_head(self) -> bool:
        return self.conn.their_state.__name__ == "IDLE" and bool(self.conn.trailing_data[0])


def bounded(protocol: type, policy: Policy) -> type:
    """The protocol class of uvicorn's with bounds."""
    mixed = _OfHttptools if hasattr(protocol, "on_headers_complete") else _OfH11
    return type(f"Bounded{protocol.__name__}", (mixed, protocol), {"policy": policy})


def install(environ: MutableMapping[str, str] = os.environ) -> None:
    """From here on each server that uvicorn runs in this process is guarded."""
    from uvicorn.config import Config

    unproxied(environ)
    policy, load = Policy.of(environ), Config.load

    def guarded(config: Any) -> None:  # noqa: ANN401
        load(config)
        config.loaded_app = Guard(config.loaded_app, policy)
        config.http_protocol_class = bounded(config.http_protocol_class, policy)

    Config.load = guarded


def unproxied(environ: MutableMapping[str, str]) -> None:
    """Keep what an engine asks of itself from a proxy: SGLang's warm-up would never be answered."""
    if any(name.lower() in {"http_proxy", "all_proxy"} for name in environ):
        said = environ.get("no_proxy") or environ.get("NO_PROXY")
        environ["no_proxy"] = environ["NO_PROXY"] = ",".join(filter(None, ("127.0.0.1,localhost,::1", said)))


def main(program: str, *words: str) -> Any:  # noqa: ANN401 - whatever the program returns
    from importlib.metadata import entry_points

    found = next(iter(entry_points(group="console_scripts", name=program)))
    sys.argv = [program, *words]
    return found.load()()


if __name__ in {"__main__", "__mp_main__"}:  # also in the processes that it starts to answer
    # The folder of this file has modules of other names: none of them is to be the engine's.
    sys.path[:] = [each for each in sys.path if each != str(Path(__file__).parent)]
    if "MEDLEY_GUARD" in os.environ:
        install()
if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
