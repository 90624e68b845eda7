"""A listener accepts connections, and bounds what strangers take: how many, for how long, of one address.

Whoever connects is a stranger until it has shown that it belongs here. Strangers are few, in all and of one
address, and have one time limit for all that they do, so that a byte now and then buys them nothing. Where
there are too many, one that has been here for a while makes room for who comes now.
"""

import contextlib
import errno
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

_LOOK_EVERY_S = 0.25
_PAUSE_S = 0.1
_USED_UP = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


@dataclass(frozen=True)
class Limits:
    strangers: int = 64
    of_one_address: int = 16
    stranger_s: float = 10
    """In all, from its connection on."""
    safe_s: float = 1
    """So long a stranger does not have to make room: an honest one is done by then."""
    known: int = 64
    """Connections that have shown what they are."""


@dataclass(eq=False)
class Guest:
    connection: socket.socket
    address: str
    admit: Callable[["Guest"], bool]
    """Said once it has shown that it belongs here; false where there are too many of its sort."""
    since: float = field(default_factory=time.monotonic)

    def drop(self) -> None:
        """To close a socket does not wake who waits on it; to shut it down does."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class Listener:
    """Attends to each guest in a thread of its own, until it is closed."""

    def __init__(
        self, server: socket.socket, attend: Callable[[Guest], bool], limits: Limits | None = None
    ) -> None:
        """`attend` returns whether somebody else has taken the connection over; if not, it is closed then."""
        self._server, self._attend, self._limits = server, attend, limits or Limits()
        self._strangers: set[Guest] = set()
        self._threads: dict[Guest, threading.Thread] = {}
        self._lock = threading.Lock()
        self._closed = False
        server.setblocking(False)  # noqa: FBT003 - the name is the standard library's
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def stop(self) -> None:
        """No more come; who is here stays."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._accepting:
            self._accepting.join()

    def close(self) -> None:
        """No more come, and who is here is let go."""
        self.stop()
        with self._lock:
            left = dict(self._threads)
        for guest, thread in left.items():
            guest.drop()
            thread.join()

    def _accept(self) -> None:
        coming = select.poll()
        coming.register(self._server, select.POLLIN)
        with self._server:
            while not self._closed:
                self._drop_late()
                try:
                    if coming.poll(_LOOK_EVERY_S * 1000):
                        connection, address = self._server.accept()
                        self._welcome(connection, str(address[0]))
                except OSError as error:
                    # One that is gone again costs nothing; where handles run out, some come free.
                    if error.errno in _USED_UP:
                        time.sleep(_PAUSE_S)

    def _welcome(self, connection: socket.socket, address: str) -> None:
        connection.setblocking(True)  # noqa: FBT003 - the name is the standard library's
        guest = Guest(connection, address, self._admit)
        with self._lock:
            if self._closed or not self._has_room(address):
                connection.close()
                return
            self._strangers.add(guest)
            thread = threading.Thread(target=self._run, args=(guest,), daemon=True)
            self._threads[guest] = thread
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._forget(guest)
            connection.close()

    def _has_room(self, address: str) -> bool:
        """Or one makes room: of the same address, or else of the one that has most."""
        count = Counter(each.address for each in self._strangers)
        if count[address] >= self._limits.of_one_address:
            return self._makes_room(address)
        if len(self._strangers) >= self._limits.strangers:
            return self._makes_room(max(count, key=lambda each: count[each]))
        return True

    def _makes_room(self, address: str) -> bool:
        oldest = min(
            (each for each in self._strangers if each.address == address), key=lambda each: each.since
        )
        if time.monotonic() - oldest.since < self._limits.safe_s:
            return False
        self._strangers.discard(oldest)
        oldest.drop()
        return True

    def _drop_late(self) -> None:
        with self._lock:
            end = time.monotonic() - self._limits.stranger_s
            for each in [each for each in self._strangers if each.since < end]:
                self._strangers.discard(each)
                each.drop()

    def _admit(self, guest: Guest) -> bool:
        with self._lock:
            known = len(self._threads) - len(self._strangers)
            if guest not in self._strangers or known >= self._limits.known:
                return False
            self._strangers.discard(guest)
            return True

    def _run(self, guest: Guest) -> None:
        taken = False
        try:
            taken = self._attend(guest)
        finally:
            self._forget(guest)
            if not taken:
                guest.connection.close()

    def _forget(self, guest: Guest) -> None:
        with self._lock:
            self._strangers.discard(guest)
            self._threads.pop(guest, None)
