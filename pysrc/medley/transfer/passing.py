"""Passing on is to hand out the pieces that this host holds, also those that are still on their way to it.

Who asks shows first that it knows the transfer's secret. The pieces themselves go as they are, out of the
file by the kernel: the manifest has their hashes.
"""

import contextlib
import errno
import socket
from collections.abc import Iterator

from medley.listener import Guest, Listener
from medley.problem import Problem, in_words
from medley.sealed import Channel, Closed, Refused
from medley.transfer.held import Held

PORTS = range(24_020, 24_100)
"""Among Ray's, so that one firewall rule opens all."""
WAIT_S = 0.5
"""After which one who waits for a piece is told that it still has to."""
_IDLE_LIMIT_S = 600
_SEND_LIMIT_S = 60


@contextlib.contextmanager
def serve(held: Held, address: str, secret: str) -> Iterator[int]:
    """Hand out what is held at this address of ours, and yield the port; ends all connections at the end."""
    listening = _listening(address)
    serving = _Serving(held, secret)
    port = int(listening.getsockname()[1])
    listener = Listener(listening, serving.attend)
    try:
        yield port
    finally:
        serving.closed = True
        listener.close()


class _Serving:
    def __init__(self, held: Held, secret: str) -> None:
        self._held, self._secret = held, secret
        self.closed = False

    def attend(self, guest: Guest) -> bool:
        # What fails is gone, or was none of ours: it asks another, or again.
        with contextlib.suppress(Closed, Refused, OSError, ValueError, LookupError, TypeError):
            channel = Channel(guest.connection, self._secret, server=True)
            if guest.admit(guest):
                while message := channel.receive(_IDLE_LIMIT_S):
                    self._answer(channel, int(message["piece"]))
        return False

    def _answer(self, channel: Channel, number: int) -> None:
        piece = self._held.manifest.pieces[number]
        while not self._held.wait(number, WAIT_S):
            if self._held.ended or self.closed:
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
