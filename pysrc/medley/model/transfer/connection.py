"""Request and serve pieces: both ends of one connection, after a proof of the transfer's secret."""

import contextlib
import errno
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from medley.errors import Problem, in_words
from medley.model.transfer.inventory import page_cache_kept
from medley.model.transfer.pieces import Held
from medley.network.ports import TRANSFER_PORTS
from medley.network.secure_channel import Channel, ChannelClosed, ChannelRefused
from medley.network.tcp import Guest, Listener

_AHEAD = 3
"""Pieces requested ahead: the network stays busy while one is hashed."""
_KEEPERS = 2
SILENT_LIMIT_S = 5.0
WAIT_LIMIT_S = 20.0
"""How long a source may wait for the piece itself before others are tried."""
_PIECE_LIMIT_S = 60.0
LOOK_S = 1.0
WAIT_S = 0.5
"""Interval of messages to a host that waits for a piece."""
_IDLE_LIMIT_S = 600
_SEND_LIMIT_S = 60


class SourceLost(Exception):  # noqa: N818 - what the source is
    """Nothing more comes from this source, for the reason given."""


class Stream:
    def __init__(self, connection: socket.socket, secret: str, held: Held) -> None:
        self._held = held
        self.received_bytes = 0
        # One to receive into, while the others are hashed; each is filled again when its piece is kept.
        largest = max((piece.size_bytes for piece in held.manifest.pieces), default=0)
        self._buffers = deque(memoryview(bytearray(largest)) for _ in range(_KEEPERS + 1))
        self._keeping: deque[Future[None]] = deque()
        try:
            self._channel = Channel(connection, secret, server=False)
        except ChannelRefused as error:
            raise SourceLost("it does not know this transfer's secret") from error
        except ChannelClosed as error:
            raise SourceLost(str(error)) from error

    def run(self, tell: Callable[[], None]) -> None:
        """Take pieces until none is missing, or the source is lost."""
        with ThreadPoolExecutor(_KEEPERS) as pool:
            try:
                self._take(pool, tell)
            except (ChannelClosed, ChannelRefused) as error:
                raise SourceLost(str(error)) from error
            finally:
                # What has come is kept, whatever became of the source.
                with contextlib.suppress(SourceLost):
                    self._settle(0)

    def _take(self, pool: ThreadPoolExecutor, tell: Callable[[], None]) -> None:
        missing = iter(self._held.missing())
        asked: deque[int] = deque()
        while True:
            for number in islice(missing, _AHEAD - len(asked)):
                self._channel.send({"piece": number})
                asked.append(number)
            if not asked:
                break
            number = asked.popleft()
            self._await(number)
            self._keeping.append(pool.submit(self._keep, number, self._received(number)))
            self._settle(_KEEPERS)
            tell()
        self._settle(0)

    def _await(self, number: int) -> None:
        begun = heard = time.monotonic()
        while (now := time.monotonic()) < begun + WAIT_LIMIT_S:
            message = self._channel.receive(LOOK_S)
            if message is None:
                if now > heard + SILENT_LIMIT_S:
                    raise SourceLost(f"it was silent for {SILENT_LIMIT_S:.0f} s")
            elif message.get("piece") == number:
                return
            elif "gone" in message:
                raise SourceLost(str(message["gone"]))
            else:
                heard = now
        raise SourceLost(f"it had itself to wait for {WAIT_LIMIT_S:.0f} s")

    def _received(self, number: int) -> memoryview:
        buffer = self._buffers[0]
        self._buffers.rotate(-1)
        into = buffer[: self._held.manifest.pieces[number].size_bytes]
        at, begun = 0, time.monotonic()
        heard = begun
        while at < len(into):
            size = self._channel.receive_file_part(into[at:], LOOK_S)
            now = time.monotonic()
            if size:
                heard = now
            if now > heard + SILENT_LIMIT_S or now > begun + _PIECE_LIMIT_S:
                raise SourceLost(f"it was too slow: {at} of {len(into)} bytes in {now - begun:.0f} s")
            at += size
        self.received_bytes += at
        return into

    def _keep(self, number: int, data: memoryview) -> None:
        if not self._held.keep(number, data):
            raise SourceLost(f"it sent something else for {self._held.manifest.pieces[number]}")

    def _settle(self, most: int) -> None:
        """Wait until no more than so many pieces are being kept."""
        while len(self._keeping) > most:
            self._keeping.popleft().result()


@contextlib.contextmanager
def serve(held: Held, address: str, secret: str) -> Iterator[int]:
    """Serve the pieces at this address, and yield the port; end all connections at the end."""
    listening, closed = _listening(address), threading.Event()
    port = int(listening.getsockname()[1])

    def attend(guest: Guest) -> bool:
        # What fails is gone, or was none of ours: it asks another, or again.
        with contextlib.suppress(ChannelClosed, ChannelRefused, OSError, ValueError, LookupError, TypeError):
            channel = Channel(guest.connection, secret, server=True)
            if guest.admit(guest):
                while message := channel.receive(_IDLE_LIMIT_S):
                    _answer(channel, held, int(message["piece"]), closed)
        return False

    listener = Listener(listening, attend)
    try:
        yield port
    finally:
        closed.set()
        listener.close()


def _answer(channel: Channel, held: Held, number: int, closed: threading.Event) -> None:
    piece = held.manifest.pieces[number]
    while not held.wait(number, WAIT_S):
        if held.ended or closed.is_set():
            channel.send({"gone": f"it lacks {piece}, and gets no more"})
            return
        channel.send({"wait": number})
    try:
        with held.opened(number) as file:
            channel.send({"piece": number})
            with page_cache_kept(file.fileno(), piece.offset, piece.size_bytes):
                # The kernel sends the file's bytes unchanged: the manifest has their hashes.
                channel.send_file_part(file, piece.offset, piece.size_bytes, _SEND_LIMIT_S)
    except FileNotFoundError:
        channel.send({"gone": f"{piece.file.path} is no longer there"})


def _listening(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in TRANSFER_PORTS:
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
        cause=f"{TRANSFER_PORTS[0]} to {TRANSFER_PORTS[-1]} are all in use",
        fix="ss -ltnp  # see what listens there, and end what you do not need",
    )
