"""A TCP channel authenticated by the cluster token (HMAC).

The token itself is never sent. Each end answers the other's random challenge with an HMAC (SHA-256) of it,
the client first, and every message after that carries one of its number and text: none can be forged,
changed, repeated or left out. Messages are not encrypted, as Ray's are not.
docs/explanation/security.md has the protocol and its limits.
"""

import contextlib
import hmac
import json
import re
import secrets
import select
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from medley import json_shape, storage
from medley.errors import Problem, in_words

_CHALLENGE_BYTES = 32
_CHALLENGE = re.compile(rb"[0-9a-f]{64}")
_MOST_HANDSHAKE_BYTES = 4096
_MOST_BYTES = 4 << 20
"""Of one message; a host's facts are about 10,000."""
_HANDSHAKE_LIMIT_S = 10


class ChannelRefused(Exception):  # noqa: N818 - a state of the other end
    """The other end does not have the token, or speaks another protocol."""


class Closed(Exception):  # noqa: N818 - as above
    """The other end is gone."""


class Channel:
    """One end; `server` is part of the MAC, so that no message can be sent back to its sender."""

    def __init__(self, connection: socket.socket, token: str, *, server: bool) -> None:
        self._connection = connection
        self._buffer = b""
        self._sent = self._received = 0
        self._most_bytes = _MOST_HANDSHAKE_BYTES
        connection.settimeout(_HANDSHAKE_LIMIT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._names = (b"server", b"client") if server else (b"client", b"server")
        try:
            self._key = self._shaken(token.encode())
        except BaseException:
            connection.close()
            raise
        self.heard = time.monotonic()

    def _shaken(self, token: bytes) -> bytes:
        ours, theirs = self._names
        own = secrets.token_bytes(_CHALLENGE_BYTES).hex().encode()
        self._write(own)
        other = self._line()
        if not _CHALLENGE.fullmatch(other) or other == own:
            raise ChannelRefused("it speaks another protocol")
        challenges = b"".join(sorted((own, other)))
        answer = _mac(token, ours + challenges)
        # A server sends no MAC of the token to a stranger, who could brute-force a short token with it.
        if ours == b"client":
            self._write(answer)
        if not hmac.compare_digest(self._line(), _mac(token, theirs + challenges)):
            raise ChannelRefused("its token is different")
        if ours == b"server":
            self._write(answer)
        self._most_bytes = _MOST_BYTES
        return hmac.digest(token, b"key" + challenges, "sha256")

    def send(self, message: Mapping[str, Any]) -> None:
        self.send_text(json.dumps(message).encode())

    def send_text(self, text: bytes) -> None:
        """Send a message that is one line of JSON already."""
        seal = _mac(self._key, self._names[0] + str(self._sent).encode() + text)
        self._sent += 1
        self._write(seal + b" " + text)

    def receive(self, limit_s: float) -> dict[str, Any] | None:
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            if not self._readable(max(0.0, deadline - time.monotonic())):
                return None
            self._fill()
        seal, _, text = self._line().partition(b" ")
        expected = _mac(self._key, self._names[1] + str(self._received).encode() + text)
        if not hmac.compare_digest(seal, expected):
            raise ChannelRefused("a message was changed on its way")
        self._received += 1
        self.heard = time.monotonic()
        message = json_shape.table(text)
        if message is None:
            raise ChannelRefused("it sent an invalid message")
        return message

    def give(self, file: IO[bytes], offset: int, size_bytes: int, limit_s: float) -> None:
        """Send a part of a file without a MAC, because the receiver checks its hash."""
        with _open():
            self._connection.settimeout(limit_s)
            sent = self._connection.sendfile(file, offset, size_bytes)
        if sent != size_bytes:
            raise Closed(f"a file ended {size_bytes - sent} bytes too soon")

    def take(self, into: memoryview, limit_s: float) -> int:
        """Receive such a part; return the number of bytes, 0 after the time limit."""
        if self._buffer:
            size = min(len(into), len(self._buffer))
            into[:size], self._buffer = self._buffer[:size], self._buffer[size:]
            return size
        if not self._readable(limit_s):
            return 0
        with _open():
            read = self._connection.recv_into(into)
        if not read:
            raise Closed("it closed the connection")
        return read

    def close(self) -> None:
        self._connection.close()

    def _readable(self, limit_s: float) -> bool:
        """Wait with `poll`, because `select` takes no handle beyond 1023."""
        try:
            waiting = select.poll()
            waiting.register(self._connection, select.POLLIN)
            return bool(waiting.poll(limit_s * 1000))
        except (OSError, ValueError) as error:
            raise Closed("it was closed here") from error

    def _write(self, line: bytes) -> None:
        with _open():
            self._connection.sendall(line + b"\n")

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _fill(self) -> None:
        with _open():
            read = self._connection.recv(1 << 16)
        if not read:
            raise Closed("it closed the connection")
        self._buffer += read
        if len(self._buffer) > self._most_bytes:
            raise ChannelRefused("its message is too long")


@contextlib.contextmanager
def _open() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Closed(in_words(error)) from error


def read_secret(token: Path) -> str:
    return storage.secrets({"token": str(token)})["token"].strip()


def connect(host: str, port: int, token: Path, limit_s: float) -> Channel:
    """Connect to a head; retry for `limit_s`."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=4)
        except OSError as error:
            if time.monotonic() < deadline and not isinstance(error, socket.gaierror):
                time.sleep(0.5)
                continue
            waited = f" after {limit_s:.0f} s" if limit_s else ""
            raise Problem(
                f"no model waits for hosts at {host}:{port}{waited}",
                cause=in_words(error),
                fix=f"on {host}: medley serve MODEL --launcher mp --hosts 2, and open TCP port {port}",
            ) from error
        try:
            return Channel(connection, read_secret(token), server=False)
        except (ChannelRefused, Closed) as error:
            raise Problem(
                f"the head at {host}:{port} refuses this token",
                cause=f"{error}; this host's token is in {token}",
                fix="copy the head's token file here, then: medley join HEAD --token-file FILE",
            ) from error


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256").hex().encode()
