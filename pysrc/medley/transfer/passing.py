"""Passing on is to hand out the pieces that this host holds, also those that are still on their way to it.

Who asks shows first that it knows the transfer's secret. The pieces themselves go as they are, out of the
file by the kernel: the manifest has their hashes.
"""

import contextlib
import errno
import socket
import threading
from collections.abc import Iterator

from medley.problem import Problem, in_words
from medley.sealed import Channel, Closed, Refused
from medley.transfer.held import Held

PORTS = range(24_020, 24_100)
"""Among Ray's, so that one firewall rule opens all."""
WAIT_S = 0.5
"""After which one who waits for a piece is told that it still has to."""
_IDLE_LIMIT_S = 600
_SEND_LIMIT_S = 60
_MOST = 64
"""Connections at a time: more than hosts that any model goes to."""


@contextlib.contextmanager
def serve(held: Held, address: str, secret: str) -> Iterator[int]:
    """Hand out what is held at this address of ours, and yield the port; ends all connections at the end."""
    listening = _listening(address)
    serving = _Serving(held, secret, listening)
    accepting = threading.Thread(target=serving.accept, daemon=True)
    accepting.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        serving.close()
        accepting.join()


class _Serving:
    def __init__(self, held: Held, secret: str, listening: socket.socket) -> None:
        self._held, self._secret, self._listening = held, secret, listening
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        self._closed = False

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed
                return
            with self._lock:
                if self._closed or len(self._connections) >= _MOST:
                    connection.close()
                    continue
                thread = threading.Thread(target=self._attend, args=(connection,), daemon=True)
                self._connections[connection] = thread
            thread.start()

    def close(self) -> None:
        """To close a socket does not wake who waits on it; to shut it down does."""
        with self._lock:
            self._closed = True
            connections = dict(self._connections)
        for each in (self._listening, *connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in connections.values():
            thread.join()

    def _attend(self, connection: socket.socket) -> None:
        try:
            channel = Channel(connection, self._secret, server=True)
            while message := channel.receive(_IDLE_LIMIT_S):
                self._answer(channel, int(message["piece"]))
        except (Closed, Refused, OSError, ValueError, LookupError, TypeError):
            pass  # it is gone, or was none of ours: it asks another, or again
        finally:
            with self._lock:
                del self._connections[connection]
            connection.close()

    def _answer(self, channel: Channel, number: int) -> None:
        piece = self._held.manifest.pieces[number]
        while not self._held.wait(number, WAIT_S):
            if self._held.ended or self._closed:
                channel.send({"gone": f"it lacks {piece}, and gets no more"})
                return
            channel.send({"wait": number})
        try:
            with self._held.opened(number) as file:
                channel.send({"piece": number})
                channel.give(file, piece.offset, piece.size_bytes, _SEND_LIMIT_S)
        except FileNotFoundError:
            channel.send({"gone": f"{piece.file.path} is no longer there"})


def _listening(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in PORTS:
        try:
            return socket.create_server((address, port), family=family)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise Problem(
                    f"pieces cannot be handed out at {address}",
                    cause=in_words(error),
                    fix="ip -brief address  # is it still an address of this host?",
                ) from error
    raise Problem(
        f"no port is free at {address} to hand out pieces",
        cause=f"{PORTS[0]} to {PORTS[-1]} are all in use",
        fix="ss -ltnp  # see what listens there, and end what you do not need",
    )
