"""A TCP channel authenticated by the cluster token (HMAC), for `medley join` and transfers; agents use ssh.

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
from medley.errors import Problem, describe_error

_CHALLENGE_BYTES = 32
_CHALLENGE_PATTERN = re.compile(rb"[0-9a-f]{64}")
_MAX_HANDSHAKE_BYTES = 4096
_MAX_MESSAGE_BYTES = 4 << 20
"""The limit of one message; a host's facts are about 10,000 bytes."""
_HANDSHAKE_LIMIT_S = 10


class ChannelRefused(Exception):  # noqa: N818 - a state of the other end
    """The other end does not have the token, or speaks another protocol."""


class ChannelClosed(Exception):  # noqa: N818 - as above
    """The other end is gone."""


class Channel:
    """One end of a channel; `server` is in the MAC, so that no message can be sent back to its sender."""

    def __init__(self, connection: socket.socket, token: str, *, server: bool) -> None:
        self._connection = connection
        self._buffer = b""
        self._sent = self._received = 0
        self._max_bytes = _MAX_HANDSHAKE_BYTES
        connection.settimeout(_HANDSHAKE_LIMIT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._names = (b"server", b"client") if server else (b"client", b"server")
        try:
            self._key = self._authenticate(token.encode())
        except BaseException:
            connection.close()
            raise
        self.last_received_s = time.monotonic()

    def _authenticate(self, token: bytes) -> bytes:
        """Authenticate both ends; return the key of later MACs, or raise ChannelRefused."""
        local_name, remote_name = self._names
        local_challenge = secrets.token_bytes(_CHALLENGE_BYTES).hex().encode()
        self._write(local_challenge)
        remote_challenge = self._read_line()
        if not _CHALLENGE_PATTERN.fullmatch(remote_challenge) or remote_challenge == local_challenge:
            raise ChannelRefused("it speaks another protocol")
        challenges = b"".join(sorted((local_challenge, remote_challenge)))
        answer = _compute_mac(token, local_name + challenges)
        # A server sends no MAC of the token to a stranger, who could brute-force a short token with it.
        if local_name == b"client":
            self._write(answer)
        if not hmac.compare_digest(self._read_line(), _compute_mac(token, remote_name + challenges)):
            raise ChannelRefused("its token is different")
        if local_name == b"server":
            self._write(answer)
        self._max_bytes = _MAX_MESSAGE_BYTES
        return hmac.digest(token, b"key" + challenges, "sha256")

    def send(self, message: Mapping[str, Any]) -> None:
        self.send_text(json.dumps(message).encode())

    def send_text(self, text: bytes) -> None:
        """Send a message that is one line of JSON already."""
        seal = _compute_mac(self._key, self._names[0] + str(self._sent).encode() + text)
        self._sent += 1
        self._write(seal + b" " + text)

    def receive(self, limit_s: float) -> dict[str, Any] | None:
        """Return the next message; None after the time limit.

        Raise ChannelRefused for a message that was changed or is not a JSON table, Closed if the other end
        is gone.
        """
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            if not self._has_data(max(0.0, deadline - time.monotonic())):
                return None
            self._fill()
        seal, _, text = self._read_line().partition(b" ")
        expected = _compute_mac(self._key, self._names[1] + str(self._received).encode() + text)
        if not hmac.compare_digest(seal, expected):
            raise ChannelRefused("a message was changed on its way")
        self._received += 1
        self.last_received_s = time.monotonic()
        message = json_shape.parse_object(text)
        if message is None:
            raise ChannelRefused("it sent an invalid message")
        return message

    def send_file_part(self, file: IO[bytes], offset: int, size_bytes: int, limit_s: float) -> None:
        """Send a part of a file without a MAC, because the receiver checks its hash."""
        with _raise_closed():
            self._connection.settimeout(limit_s)
            sent = self._connection.sendfile(file, offset, size_bytes)
        if sent != size_bytes:
            raise ChannelClosed(f"a file ended {size_bytes - sent} bytes too soon")

    def receive_file_part(self, into: memoryview, limit_s: float) -> int:
        """Receive a part of a file; return the number of bytes, 0 after the time limit."""
        if self._buffer:
            size = min(len(into), len(self._buffer))
            into[:size], self._buffer = self._buffer[:size], self._buffer[size:]
            return size
        if not self._has_data(limit_s):
            return 0
        with _raise_closed():
            read = self._connection.recv_into(into)
        if not read:
            raise ChannelClosed("it closed the connection")
        return read

    def close(self) -> None:
        self._connection.close()

    def _has_data(self, limit_s: float) -> bool:
        """Return whether data arrives in time; `poll`, because `select` takes no handle beyond 1023."""
        try:
            waiting = select.poll()
            waiting.register(self._connection, select.POLLIN)
            return bool(waiting.poll(limit_s * 1000))
        except (OSError, ValueError) as error:
            raise ChannelClosed("it was closed here") from error

    def _write(self, line: bytes) -> None:
        with _raise_closed():
            self._connection.sendall(line + b"\n")

    def _read_line(self) -> bytes:
        while b"\n" not in self._buffer:
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _fill(self) -> None:
        with _raise_closed():
            read = self._connection.recv(1 << 16)
        if not read:
            raise ChannelClosed("it closed the connection")
        self._buffer += read
        if len(self._buffer) > self._max_bytes:
            raise ChannelRefused("its message is too long")


@contextlib.contextmanager
def _raise_closed() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ChannelClosed(describe_error(error)) from error


def read_token(token: Path) -> str:
    return storage.read_secrets({"token": str(token)})["token"].strip()


def connect_to_head(host: str, port: int, token: Path, limit_s: float) -> Channel:
    """Connect to a head; retry for `limit_s`. Raise a Problem if none answers or the tokens differ."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=4)
        except OSError as error:
            if time.monotonic() < deadline and not isinstance(error, socket.gaierror):
                time.sleep(0.5)
                continue
            waited_text = f" after {limit_s:.0f} s" if limit_s else ""
            raise Problem(
                f"no model waits for hosts at {host}:{port}{waited_text}",
                cause=describe_error(error),
                fix=f"on {host}: medley serve MODEL --launcher mp --hosts 2, and open TCP port {port}",
            ) from error
        try:
            return Channel(connection, read_token(token), server=False)
        except (ChannelRefused, ChannelClosed) as error:
            raise Problem(
                f"the head at {host}:{port} refuses this token",
                cause=f"{error}; this host's token is in {token}",
                fix="copy the head's token file here, then: medley join HEAD --token-file FILE",
            ) from error


def _compute_mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256").hex().encode()
