"""Guard an engine's HTTP API: only /health answers without the key, and what a client costs is bounded.

    python api_guard.py vllm serve MODEL FLAGS…       runs `vllm serve MODEL FLAGS…` behind the guard

It runs in the engine's Python (3.10 or later), and needs uvicorn, which serves both engines. Their own checks
leave routes open: vLLM 0.32.0 asks for its key only below /v1, /v2, /inference and /cohere. It reads these
variables:

    MEDLEY_GUARD           the address that the server listens at
    MEDLEY_GUARD_KEY       the key that requests give; none on loopback, or where the user opens the server
    MEDLEY_GUARD_BODY_MIB  the largest body of a request, 64 unless given
    MEDLEY_GUARD_GATE      a file: while it exists, requests that cost something get 503. It holds
                           {"reason": TEXT, "retry_after_s": SECONDS}
    MEDLEY_NO_REASONING    set where no parser reads the model's reasoning: see api_answers.py
"""

import asyncio
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

if __package__:
    from . import api_answers as answers
    from . import http_requests as checks
else:  # it is run as a program, or an engine's imports it; a process that it starts has the path without it
    sys.path.insert(0, str(Path(__file__).parent))
    import api_answers as answers  # type: ignore[no-redef]
    import http_requests as checks  # type: ignore[no-redef]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

MARK, CHALLENGE = b"x-medley-guard", b"x-medley-challenge"
"""Headers. Each refusal has the first, by which `serve` finds the guard. A client sends the second to get a
proof before it gives the key, because another program may have the port that the engine does not have yet."""
OPEN = b"x-medley-open"
"""Header. The guard itself answers GET /health with it: how many requests are open in this process."""
RETRY_AFTER_S = 30
"""Where the gate's file does not say it."""
BODY_MIB = 64
HEAD_BYTES = 64 << 10
"""Of a request's line and headers."""
HEAD_S, BODY_S, STALL_S = 20.0, 60.0, 120.0
"""How long a client may take for its headers, between two parts of a body, and to take what it is sent."""
WAITING, WAITING_OF_ONE = 512, 128
"""Connections that have not given the key yet: in all, and from one address."""
SAFE_S, STRANGER_S = 1.0, 60.0
"""How long such a connection need not make room for later ones, and how long it may stay at all."""
_REASON_BYTES = 40
"""Of a websocket's end, whose frame has room for 123 bytes; a character may take three."""
_NONCE = re.compile(rb"[0-9a-f]{64}")


class Refused(Exception):  # noqa: N818 - it ends a request, and no more
    """Raised for a body that is too large or too slow."""


class Waiting(NamedTuple):
    """A connection that has not given the key."""

    address: str
    since: float
    abort: Callable[[], None]


@dataclass
class Policy:
    """Which requests are let in, and which connections have given the key."""

    key: str | None = None
    loopback: bool = True
    """It listens on this host only."""
    body_bytes: int = BODY_MIB << 20
    waiting: dict[Any, Waiting] = field(default_factory=dict)
    """Connections that have not given the key, by the client's address and port, the oldest first."""
    gate: str | None = None
    open: int = 0

    @classmethod
    def of(cls, environ: MutableMapping[str, str]) -> "Policy":
        """Read the environment's variables."""
        mib = int(environ.get("MEDLEY_GUARD_BODY_MIB") or BODY_MIB)
        key = environ.get("MEDLEY_GUARD_KEY") or None
        gate = environ.get("MEDLEY_GUARD_GATE") or None
        return cls(key, checks.is_loopback(environ.get("MEDLEY_GUARD", "")), mib << 20, gate=gate)

    def refusal(self, scope: Message) -> tuple[HTTPStatus, str] | None:
        """Return status and message of a refusal, or None."""
        if self.key is None:
            return checks.foreign(scope["headers"]) if self.loopback else None
        if checks.needs_no_key(scope) or checks.gives(scope["headers"], self.key):
            return None
        return HTTPStatus.UNAUTHORIZED, "give the key: Authorization: Bearer KEY"

    def closed(self, scope: Message) -> tuple[str, int] | None:
        """Return why the gate is closed for a request, and when to retry, in seconds; None: it is let in."""
        if self.gate is None or not os.path.exists(self.gate) or checks.costs_nothing(scope):  # noqa: PTH110 - per request
            return None
        try:
            told = json.loads(Path(self.gate).read_text(encoding="utf-8"))
            return str(told["reason"]), int(told["retry_after_s"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError):
            return "the server takes no new requests", RETRY_AFTER_S

    def proof(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """The MARK of a refusal: it shows a client that asks that this server has the key."""
        nonce = next((each for name, each in headers if name == CHALLENGE and _NONCE.fullmatch(each)), None)
        return b"1" if self.key is None or nonce is None else checks.proof(self.key, nonce)

    def enter(self, client: Any, abort: Callable[[], None]) -> bool:  # noqa: ANN401 - as uvicorn has it
        """Whether one more connection may wait; it counts from then on. An older one may make room for it."""
        if not client:  # a socket in a folder
            return True
        address, now = client[0], time.monotonic()
        count = Counter(each.address for each in self.waiting.values())
        if (full := count[address] >= WAITING_OF_ONE) or count.total() >= WAITING:
            crowd = address if full else max(count, key=lambda each: count[each])
            first, oldest = next(each for each in self.waiting.items() if each[1].address == crowd)
            if now - oldest.since < SAFE_S:
                return False
            del self.waiting[first]
            oldest.abort()
        self.waiting[client] = Waiting(address, now, abort)
        return True

    def leave(self, client: Any) -> None:  # noqa: ANN401 - as uvicorn has it
        """Count a connection no longer among those that wait: it has given the key, or has ended."""
        self.waiting.pop(client, None)


class Guard:
    """An ASGI application around the engine's: refused requests never reach that."""

    def __init__(self, application: Application, policy: Policy) -> None:
        self.application, self.policy = application, policy

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        kind, most = scope["type"], self.policy.body_bytes
        refused = None if kind == "lifespan" else self.policy.refusal(scope)
        if refused:
            await _refuse(scope, send, *refused, mark=self.policy.proof(scope["headers"]))
        elif kind == "lifespan":
            await self.application(scope, receive, send)
        elif closed := self.policy.closed(scope):
            await _refuse(scope, send, HTTPStatus.SERVICE_UNAVAILABLE, closed[0], retry_after_s=closed[1])
        elif kind == "websocket":
            await self._counted(self.application(scope, receive, send))
        elif scope["path"] == "/health" and any(name == OPEN for name, _ in scope["headers"]):
            await _answer(send, HTTPStatus.OK, b"", [(OPEN, str(self.policy.open).encode())])
        else:
            if self.policy.key is None or not checks.needs_no_key(scope):
                self.policy.leave(scope.get("client"))
                keys = [value for name, value in scope["headers"] if name == b"x-api-key"]
                bearers = [(b"authorization", b"Bearer " + key) for key in keys]
                scope = {**scope, "headers": [*scope["headers"], *bearers]}  # vLLM itself takes no x-api-key
            if checks.length(scope["headers"]) > most:
                words = f"the body is larger than {most >> 20} MiB (MEDLEY_GUARD_BODY_MIB)"
                await _refuse(scope, send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words)
            elif checks.costs_nothing(scope):
                await self._bounded(scope, receive, send)
            else:
                await self._counted(self._bounded(scope, receive, send))

    async def _counted(self, answered: Awaitable[None]) -> None:
        """Answer a request; nothing is awaited between the look at the gate and the count."""
        self.policy.open += 1
        try:
            await answered
        finally:
            self.policy.open -= 1

    async def _bounded(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass on a body that ends in time and is not too large."""
        left, whole, began = self.policy.body_bytes, False, False
        failed: HTTPStatus | None = None

        async def part() -> Message:
            nonlocal left, whole, failed
            if whole:  # what comes is that the client hangs up
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), BODY_S)
            except asyncio.TimeoutError:  # noqa: UP041 - another one in Python 3.10
                failed = HTTPStatus.REQUEST_TIMEOUT
                raise Refused from None
            left -= len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if left < 0:
                failed = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                raise Refused
            return message

        def answer(message: Message) -> Awaitable[None]:
            """Pass on a message, without a coroutine: a streamed answer has one for each token."""
            nonlocal began
            if failed and not began:
                return asyncio.sleep(0)
            began = True
            return send(message)

        try:
            await self.application(scope, part, answer)
        except Refused:
            if began:
                raise
        if failed and not began:
            await _refuse(scope, send, failed, "the body is larger than allowed, or did not come in time")


async def _refuse(
    scope: Message,
    send: Send,
    status: HTTPStatus,
    words: str,
    *,
    mark: bytes = b"1",
    retry_after_s: int | None = None,
) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": words[:_REASON_BYTES]})
        return
    body = answers.error_body(scope, status.value, words)
    headers = [
        (b"content-type", b"application/json"),
        (b"connection", b"close"),
        (MARK, mark),
        *([(b"www-authenticate", b"Bearer")] if status == HTTPStatus.UNAUTHORIZED else []),
        *([] if retry_after_s is None else [(b"retry-after", str(retry_after_s).encode())]),
    ]
    await _answer(send, status, body, headers)


async def _answer(send: Send, status: HTTPStatus, text: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    whole = [*headers, (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status.value, "headers": whole})
    await send({"type": "http.response.body", "body": text})


class Bounds:
    """Mixed into uvicorn's protocol: clients wait in bounded numbers, and none stalls for ever."""

    policy: Policy
    transport: Any
    client: Any
    loop: Any
    _counted = False
    _head_bytes = 0

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - as asyncio has it
        super().connection_made(transport)  # type: ignore[misc] # of uvicorn's protocol
        self._timers: dict[str, Any] = {}
        self._counted = self.policy.enter(self.client, transport.abort)
        if self._counted:
            self._limit("head", HEAD_S)
            self._timers["key"] = self.loop.call_later(STRANGER_S, self._abort_stranger)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._counted:
            return
        super().data_received(data)  # type: ignore[misc]
        if not self._in_head():
            self._head_bytes = 0
            self._cancel("head")
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self.transport.abort()
        else:
            self._limit("head", HEAD_S)

    def connection_lost(self, error: Exception | None) -> None:
        for name in list(self._timers):
            self._cancel(name)
        self._leave()
        super().connection_lost(error)  # type: ignore[misc]

    def handle_websocket_upgrade(self, *event: Any) -> None:  # noqa: ANN401 - h11's has one
        self._cancel("head")
        self._leave()
        super().handle_websocket_upgrade(*event)  # type: ignore[misc]

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        self._limit("stall", STALL_S)

    def resume_writing(self) -> None:
        self._cancel("stall")
        super().resume_writing()  # type: ignore[misc]

    def _abort_stranger(self) -> None:
        """End a connection that has not given the key by now, whatever it sends now and then."""
        if self.client and self.client in self.policy.waiting:
            self.transport.abort()

    def _limit(self, name: str, limit_s: float) -> None:
        """Abort the connection then, unless the timer of this name runs already or is canceled."""
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(limit_s, self.transport.abort)

    def _cancel(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()

    def _leave(self) -> None:
        if self._counted:
            self._counted = False
            self.policy.leave(self.client)

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
    mixed = _OfHttptools if hasattr(protocol, "on_headers_complete") else _OfH11
    return type(f"Bounded{protocol.__name__}", (mixed, protocol), {"policy": policy})


def install(environ: MutableMapping[str, str] = os.environ) -> None:
    """Guard each server that uvicorn runs in this process from now on."""
    from uvicorn.config import Config

    # Keep what an engine asks of itself from a proxy: SGLang's warm-up would never be answered.
    if any(name.lower() in {"http_proxy", "all_proxy"} for name in environ):
        given = environ.get("no_proxy") or environ.get("NO_PROXY")
        environ["no_proxy"] = environ["NO_PROXY"] = ",".join(filter(None, ("127.0.0.1,localhost,::1", given)))
    policy, load = Policy.of(environ), Config.load

    def guarded(config: Any) -> None:  # noqa: ANN401
        load(config)
        reads = answers.NO_REASONING not in environ
        config.loaded_app = Guard(answers.Answers(config.loaded_app, reasoning=reads), policy)
        config.http_protocol_class = bounded(config.http_protocol_class, policy)

    Config.load = guarded


if __name__ in {"__main__", "__mp_main__"}:  # also in the processes that it starts to answer
    # The folder of this file has modules of other names: none of them is to be the engine's.
    sys.path[:] = [each for each in sys.path if each != str(Path(__file__).parent)]
    if "MEDLEY_GUARD" in os.environ:
        install()
if __name__ == "__main__":
    from importlib.metadata import entry_points

    del sys.argv[0]
    program = next(iter(entry_points(group="console_scripts", name=sys.argv[0])))
    sys.exit(program.load()())
