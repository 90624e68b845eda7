"""A stream is a connection to one source: pieces are asked for ahead, and kept while more come."""

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from medley.sealed import Channel, Closed, Refused
from medley.transfer.held import Held

_AHEAD = 3
"""Pieces asked for and not yet here: the wire is busy while one is hashed."""
_KEEPERS = 2
SILENT_LIMIT_S = 5.0
WAIT_LIMIT_S = 20.0
"""How long a source may say that it waits for the piece itself, before others are tried."""
_PIECE_LIMIT_S = 60.0
LOOK_S = 1.0


class Lost(Exception):  # noqa: N818 - what the source is
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
        except Refused as error:
            raise Lost("it does not know this transfer's secret") from error
        except Closed as error:
            raise Lost(str(error)) from error

    def run(self, tell: Callable[[], None]) -> None:
        """Until nothing is missing, or the source is Lost."""
        with ThreadPoolExecutor(_KEEPERS) as pool:
            try:
                self._take(pool, tell)
            except (Closed, Refused) as error:
                raise Lost(str(error)) from error
            finally:
                # What has come is kept, whatever became of the source.
                with contextlib.suppress(Lost):
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
        """The word that the piece comes now."""
        begun = heard = time.monotonic()
        while (now := time.monotonic()) < begun + WAIT_LIMIT_S:
            message = self._channel.receive(LOOK_S)
            if message is None:
                if now > heard + SILENT_LIMIT_S:
                    raise Lost(f"it was silent for {SILENT_LIMIT_S:.0f} s")
            elif message.get("piece") == number:
                return
            elif "gone" in message:
                raise Lost(str(message["gone"]))
            else:
                heard = now
        raise Lost(f"it had itself to wait for {WAIT_LIMIT_S:.0f} s")

    def _received(self, number: int) -> memoryview:
        buffer = self._buffers[0]
        self._buffers.rotate(-1)
        into = buffer[: self._held.manifest.pieces[number].size_bytes]
        at, begun = 0, time.monotonic()
        heard = begun
        while at < len(into):
            size = self._channel.take(into[at:], LOOK_S)
            now = time.monotonic()
            if size:
                heard = now
            if now > heard + SILENT_LIMIT_S or now > begun + _PIECE_LIMIT_S:
                raise Lost(f"it was too slow: {at} of {len(into)} bytes in {now - begun:.0f} s")
            at += size
        self.received_bytes += at
        return into

    def _keep(self, number: int, data: memoryview) -> None:
        if not self._held.keep(number, data):
            raise Lost(f"it sent something else for {self._held.manifest.pieces[number]}")

    def _settle(self, most: int) -> None:
        """Wait until no more than so many pieces are being kept."""
        while len(self._keeping) > most:
            self._keeping.popleft().result()
