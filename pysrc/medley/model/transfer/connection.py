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

from medley.errors import Problem, describe_error
from medley.model.transfer.inventory import keep_page_cache
from medley.model.transfer.pieces import PieceStore
from medley.network.ports import TRANSFER_PORTS
from medley.network.secure_channel import Channel, ChannelClosed, ChannelRefused
from medley.network.tcp import Guest, Listener

_MAX_PIECES_AHEAD = 3
"""The number of pieces requested ahead: the network stays busy while one is hashed."""
_STORE_THREADS = 2
SILENT_LIMIT_S = 5.0
WAIT_LIMIT_S = 20.0
"""The time that a source may wait for the piece itself before others are tried."""
_PIECE_LIMIT_S = 60.0
POLL_INTERVAL_S = 1.0
WAIT_MESSAGE_INTERVAL_S = 0.5
"""The interval of messages to a host that waits for a piece."""
_IDLE_LIMIT_S = 600
_SEND_LIMIT_S = 60


class SourceLost(Exception):  # noqa: N818 - a state of the source
    """Nothing more comes from this source, for the reason in its text."""


class Stream:
    """A connection to one source, from which missing pieces are received."""

    def __init__(self, connection: socket.socket, secret: str, store: PieceStore) -> None:
        self._store = store
        self.received_bytes = 0
        # One to receive into, while the others are hashed; each is filled again when its piece is kept.
        largest = max((piece.size_bytes for piece in store.manifest.pieces), default=0)
        self._buffers = deque(memoryview(bytearray(largest)) for _ in range(_STORE_THREADS + 1))
        self._stores: deque[Future[None]] = deque()
        try:
            self._channel = Channel(connection, secret, server=False)
        except ChannelRefused as error:
            raise SourceLost("it does not know this transfer's secret") from error
        except ChannelClosed as error:
            raise SourceLost(str(error)) from error

    def run(self, report_progress: Callable[[], None]) -> None:
        """Receive the missing pieces, and call `report_progress` after each; SourceLost if it ends."""
        with ThreadPoolExecutor(_STORE_THREADS) as pool:
            try:
                self._receive_pieces(pool, report_progress)
            except (ChannelClosed, ChannelRefused) as error:
                raise SourceLost(str(error)) from error
            finally:
                # Received pieces are kept, whatever became of the source.
                with contextlib.suppress(SourceLost):
                    self._wait_for_stores(0)

    def _receive_pieces(self, pool: ThreadPoolExecutor, report_progress: Callable[[], None]) -> None:
        missing_numbers = iter(self._store.list_missing())
        requested: deque[int] = deque()
        while True:
            for number in islice(missing_numbers, _MAX_PIECES_AHEAD - len(requested)):
                self._channel.send({"piece": number})
                requested.append(number)
            if not requested:
                break
            number = requested.popleft()
            self._wait_for_piece(number)
            self._stores.append(pool.submit(self._store_piece, number, self._receive_piece(number)))
            self._wait_for_stores(_STORE_THREADS)
            report_progress()
        self._wait_for_stores(0)

    def _wait_for_piece(self, number: int) -> None:
        """Wait until the source begins to send this piece; raise SourceLost if it is silent or has none."""
        start_s = last_message_s = time.monotonic()
        while (now := time.monotonic()) < start_s + WAIT_LIMIT_S:
            message = self._channel.receive(POLL_INTERVAL_S)
            if message is None:
                if now > last_message_s + SILENT_LIMIT_S:
                    raise SourceLost(f"it was silent for {SILENT_LIMIT_S:.0f} s")
            elif message.get("piece") == number:
                return
            elif "gone" in message:
                raise SourceLost(str(message["gone"]))
            else:
                last_message_s = now
        raise SourceLost(f"it had itself to wait for {WAIT_LIMIT_S:.0f} s")

    def _receive_piece(self, number: int) -> memoryview:
        buffer = self._buffers[0]
        self._buffers.rotate(-1)
        data = buffer[: self._store.manifest.pieces[number].size_bytes]
        received_bytes, start_s = 0, time.monotonic()
        last_data_s = start_s
        while received_bytes < len(data):
            size = self._channel.receive_file_part(data[received_bytes:], POLL_INTERVAL_S)
            now = time.monotonic()
            if size:
                last_data_s = now
            if now > last_data_s + SILENT_LIMIT_S or now > start_s + _PIECE_LIMIT_S:
                progress = f"{received_bytes} of {len(data)} bytes in {now - start_s:.0f} s"
                raise SourceLost(f"it was too slow: {progress}")
            received_bytes += size
        self.received_bytes += received_bytes
        return data

    def _store_piece(self, number: int, data: memoryview) -> None:
        if not self._store.store_piece(number, data):
            raise SourceLost(f"it sent something else for {self._store.manifest.pieces[number]}")

    def _wait_for_stores(self, max_stores: int) -> None:
        """Wait until at most this number of pieces is being stored."""
        while len(self._stores) > max_stores:
            self._stores.popleft().result()


@contextlib.contextmanager
def serve_pieces(store: PieceStore, address: str, secret: str) -> Iterator[int]:
    """Serve the pieces at this address, and yield the port; end all connections at the end."""
    server_socket, is_closed = _open_server(address), threading.Event()
    port = int(server_socket.getsockname()[1])

    def attend(guest: Guest) -> bool:
        # A client that fails is gone, or is a stranger: it asks another host, or again.
        with contextlib.suppress(ChannelClosed, ChannelRefused, OSError, ValueError, LookupError, TypeError):
            channel = Channel(guest.connection, secret, server=True)
            if guest.admit(guest):
                while message := channel.receive(_IDLE_LIMIT_S):
                    _send_piece(channel, store, int(message["piece"]), is_closed)
        return False

    listener = Listener(server_socket, attend)
    try:
        yield port
    finally:
        is_closed.set()
        listener.close()


def _send_piece(channel: Channel, store: PieceStore, number: int, is_closed: threading.Event) -> None:
    piece = store.manifest.pieces[number]
    while not store.wait_for_piece(number, WAIT_MESSAGE_INTERVAL_S):
        if store.is_ended or is_closed.is_set():
            channel.send({"gone": f"it lacks {piece}, and gets no more"})
            return
        channel.send({"wait": number})
    try:
        with store.open_piece(number) as file:
            channel.send({"piece": number})
            with keep_page_cache(file.fileno(), piece.offset, piece.size_bytes):
                # The kernel sends the file's bytes unchanged: the manifest has their hashes.
                channel.send_file_part(file, piece.offset, piece.size_bytes, _SEND_LIMIT_S)
    except FileNotFoundError:
        channel.send({"gone": f"{piece.file.path} is no longer there"})


def _open_server(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in TRANSFER_PORTS:
        try:
            return socket.create_server((address, port), family=family)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise Problem(
                    f"pieces cannot be handed out at {address}",
                    cause=describe_error(error),
                    fix="ip -brief address  # is it still an address of this host?",
                ) from error
    raise Problem(
        f"no port is free at {address} to hand out pieces",
        cause=f"{TRANSFER_PORTS[0]} to {TRANSFER_PORTS[-1]} are all in use",
        fix="ss -ltnp  # see what listens there, and end what you do not need",
    )
