"""Find the used TCP ports of this host; listen with limits on strangers.

A guest is a client with a connection, and a stranger until it has authenticated. Strangers are limited in
number, in total and per address, and have a total time limit, so slow clients cannot hold a connection. At
the limit a new stranger replaces an old one.
"""

import errno
import ipaddress
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medley.values import Value

_EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_POLL_INTERVAL_S = 0.25
_PAUSE_S = 0.1
_EXHAUSTED_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""The errors of `accept` where the process or the host has no more handles or memory."""


def find_outward_address() -> str:
    """Return this host's address on its default route, else on a link that is up; else its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        # An address for documentation (RFC 5737); connect() of a datagram socket sends nothing.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    import psutil  # noqa: PLC0415 - 20 ms, which hosts with a default route save

    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    for name, addresses in psutil.net_if_addrs().items():
        ipv4 = (entry.address for entry in addresses if entry.family == socket.AF_INET)
        if name in up and (outward := next((ip for ip in ipv4 if not is_loopback(ip)), None)):
            return str(outward)
    return socket.gethostname()


def list_reachable_ports() -> frozenset[int]:
    """Return the ports on which a program listens at more than the loopback."""
    return frozenset(entry.laddr.port for entry in _list_connections() if not is_loopback(entry.laddr.ip))


def list_bound_addresses(port: int) -> list[str]:
    """Return the addresses at which a program listens on this port."""
    return sorted({entry.laddr.ip for entry in _list_connections() if entry.laddr.port == port})


def list_listeners() -> Iterator[tuple[int, int | None, str]]:
    """Yield each port where something listens, with its process and command, where this user may see them."""
    import psutil  # noqa: PLC0415 - 20 ms, and few verbs need it

    for port, pid in sorted({(entry.laddr.port, entry.pid or 0) for entry in _list_connections()}):
        with suppress(psutil.Error):  # it is another user's, or ended meanwhile
            process = psutil.Process(pid)
            yield port, pid, (" ".join(process.cmdline()).strip() or process.name())[:120]
            continue
        yield port, None, "another user's process"


def _list_connections() -> Iterator[Any]:
    import psutil  # noqa: PLC0415 - as above

    connections = psutil.net_connections("tcp")
    return (entry for entry in connections if entry.status == psutil.CONN_LISTEN and entry.laddr)


def explain_lost_address(address: str) -> str:
    """Return a clause that this host lost an address, or that its interface is down; empty if neither.

    The clause ends with "; ", because the rest of a cause follows it.
    """
    import psutil  # noqa: PLC0415 - as above

    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in entries):
            state = psutil.net_if_stats().get(name)
            return "" if state and state.isup else f"{name} of this host ({address}) is down; "
    return f"this host does not have {address} any more; "


def is_loopback(host: str) -> bool:
    """Return whether a URL's host is a loopback address or name; also an IPv4 address mapped to IPv6."""
    name = host.strip("[]").lower()
    try:
        address = ipaddress.ip_address(name)  # it knows IPv6's zones; 127.0.0.1%x is a name to resolve
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def read_ephemeral_range() -> tuple[int, int]:
    """Return the first and last port that the kernel gives to programs that ask for any."""
    first, last = _EPHEMERAL_RANGE_FILE.read_text(encoding="ascii").split()
    return int(first), int(last)


class ListenLimits(Value):
    """The number of connections and the time that clients may take."""

    max_strangers: int = 64
    max_per_address: int = 16
    stranger_limit_s: float = 10
    """The time in which a stranger has to authenticate."""
    min_stranger_s: float = 1
    """The time for which a stranger is not replaced, which is enough to authenticate."""
    max_authenticated: int = 64
    """The limit of authenticated connections."""


@dataclass(eq=False)
class Guest:
    """A client with a connection."""

    connection: socket.socket
    address: str
    admit: Callable[["Guest"], bool]
    """The function to call once the guest has authenticated; it returns False at the limit."""
    since: float = field(default_factory=time.monotonic)
    """The monotonic time of its connection in seconds."""

    def drop(self) -> None:
        """Shut down the connection; closing it would not wake a waiting thread."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class Listener:
    """A server socket that serves each client in a thread, with limits on strangers."""

    def __init__(
        self,
        server: socket.socket,
        attend: Callable[[Guest], bool],
        limits: ListenLimits | None = None,
    ) -> None:
        """Start to accept; `attend` serves a guest and returns whether the connection stays open."""
        self._server, self._attend, self._limits = server, attend, limits or ListenLimits()
        self._strangers: set[Guest] = set()
        self._threads: dict[Guest, threading.Thread] = {}
        self._lock = threading.Lock()
        self._closed = False
        server.setblocking(False)  # noqa: FBT003 - the name is the standard library's
        self._accept_thread = threading.Thread(target=self._accept, daemon=True)
        self._accept_thread.start()

    def stop(self) -> None:
        self._closed = True
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._accept_thread:
            self._accept_thread.join()

    def close(self) -> None:
        """Accept no more connections, and end those that are open."""
        self.stop()
        with self._lock:
            open_threads = dict(self._threads)
        for guest, thread in open_threads.items():
            guest.drop()
            thread.join()

    def _accept(self) -> None:
        poller = select.poll()
        poller.register(self._server, select.POLLIN)
        with self._server:
            while not self._closed:
                self._drop_late()
                try:
                    if poller.poll(_POLL_INTERVAL_S * 1000):
                        connection, address = self._server.accept()
                        self._start_guest(connection, str(address[0]))
                except OSError as error:
                    # A lost client needs nothing; wait where handles have run out.
                    if error.errno in _EXHAUSTED_ERRORS:
                        time.sleep(_PAUSE_S)

    def _start_guest(self, connection: socket.socket, address: str) -> None:
        connection.setblocking(True)  # noqa: FBT003 - the name is the standard library's
        guest = Guest(connection, address, self._admit)
        with self._lock:
            if self._closed or not self._has_room(address):
                connection.close()
                return
            self._strangers.add(guest)
            thread = threading.Thread(target=self._serve_guest, args=(guest,), daemon=True)
            self._threads[guest] = thread
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._forget(guest)
            connection.close()

    def _has_room(self, address: str) -> bool:
        """Drop the oldest stranger of the same address, or of the busiest one, where none more may come."""
        counts = Counter(guest.address for guest in self._strangers)
        is_full = counts[address] >= self._limits.max_per_address
        if not is_full and len(self._strangers) < self._limits.max_strangers:
            return True
        busiest = address if is_full else max(counts, key=lambda other: counts[other])
        candidates = (guest for guest in self._strangers if guest.address == busiest)
        oldest = min(candidates, key=lambda guest: guest.since)
        if time.monotonic() - oldest.since < self._limits.min_stranger_s:
            return False
        self._strangers.discard(oldest)
        oldest.drop()
        return True

    def _drop_late(self) -> None:
        with self._lock:
            end = time.monotonic() - self._limits.stranger_limit_s
            for guest in [guest for guest in self._strangers if guest.since < end]:
                self._strangers.discard(guest)
                guest.drop()

    def _admit(self, guest: Guest) -> bool:
        with self._lock:
            authenticated_count = len(self._threads) - len(self._strangers)
            if guest not in self._strangers or authenticated_count >= self._limits.max_authenticated:
                return False
            self._strangers.discard(guest)
            return True

    def _serve_guest(self, guest: Guest) -> None:
        stays_open = False
        try:
            stays_open = self._attend(guest)
        finally:
            self._forget(guest)
            if not stays_open:
                guest.connection.close()

    def _forget(self, guest: Guest) -> None:
        with self._lock:
            self._strangers.discard(guest)
            self._threads.pop(guest, None)
