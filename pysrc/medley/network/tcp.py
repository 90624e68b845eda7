"""Find free and used TCP ports of this host; listen with limits on strangers.

A client is a stranger until it has authenticated. Strangers are limited in number, in total and per address,
and have a total time limit, so slow clients cannot hold a connection. At the limit a new stranger replaces an
old one.
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

from medley.errors import Problem, in_words

_LAST = 65_535
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOOK_EVERY_S = 0.25
_PAUSE_S = 0.1
_USED_UP = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def outward_address() -> str:
    """Return this host's address on its default route, else on a link that is up; else its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # documentation's (RFC 5737); of a datagram socket it sends nothing
        return str(probe.getsockname()[0])
    import psutil  # noqa: PLC0415 - 20 ms, which hosts with a default route save

    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    for name, addresses in psutil.net_if_addrs().items():
        found = (each.address for each in addresses if each.family == socket.AF_INET)
        if name in up and (own := next((each for each in found if not is_loopback(each)), None)):
            return str(own)
    return socket.gethostname()


def require_free(address: str, port: int) -> None:
    """Raise a Problem unless a server could listen there now."""
    if not 0 < port <= _LAST:
        raise Problem(f"port {port} does not exist", cause=f"ports are 1 to {_LAST}", fix="--port 8000")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except (OSError, UnicodeError) as error:
        cause = in_words(error)
        # UnicodeError: a part of a name is empty or longer than 63 letters
        if isinstance(error, socket.gaierror | UnicodeError):
            what, fix = f"{address} is not an address", "--host 127.0.0.1, or 0.0.0.0 for every interface"
        elif error.errno == errno.EADDRINUSE:
            what, cause = f"port {port} is in use", _holder(port) or "another process listens there"
            fix = f"end it, or use another port: --port {port + 1 if port < _LAST else 8000}"
        elif error.errno == errno.EADDRNOTAVAIL:
            what = f"this host has no address {address}"
            fix = "ip -brief address  # give one of these as --host, or 0.0.0.0 for all"
        else:
            what, fix = f"port {port} of {address} cannot be used", "--port 8000, or another above 1023"
        raise Problem(what, cause=cause, fix=fix) from error


def _holder(port: int) -> str | None:
    """Name the process that listens on the port, as far as the kernel lets this user see."""
    found = ((pid, words) for at, pid, words in listening() if at == port and pid)
    return next((f"process {pid} listens there: {words}" for pid, words in found), None)


def outside_ports() -> frozenset[int]:
    return frozenset(each.laddr.port for each in _listeners() if not is_loopback(each.laddr.ip))


def bound_addresses(port: int) -> list[str]:
    return sorted({each.laddr.ip for each in _listeners() if each.laddr.port == port})


def listening() -> Iterator[tuple[int, int | None, str]]:
    """Yield each port where something listens, with its process and command, where this user may see them."""
    import psutil  # noqa: PLC0415 - 20 ms, and few verbs need it

    for port, pid in sorted({(each.laddr.port, each.pid or 0) for each in _listeners()}):
        with suppress(psutil.Error):  # it is another user's, or ended meanwhile
            process = psutil.Process(pid)
            yield port, pid, (" ".join(process.cmdline()).strip() or process.name())[:120]
            continue
        yield port, None, "another user's process"


def _listeners() -> Iterator[Any]:
    import psutil  # noqa: PLC0415 - as above

    connections = psutil.net_connections("tcp")
    return (each for each in connections if each.status == psutil.CONN_LISTEN and each.laddr)


def lost_address(address: str) -> str:
    """Say that this host has no such address any more, or that its interface is down; empty if neither."""
    import psutil  # noqa: PLC0415 - as above

    found = psutil.net_if_addrs().items()
    name = next((name for name, those in found if any(each.address == address for each in those)), None)
    if name is None:
        return f"this host does not have {address} any more; "
    state = psutil.net_if_stats().get(name)
    return "" if state and state.isup else f"{name} of this host ({address}) is down; "


def is_loopback(host: str) -> bool:
    """Whether a URL's host is this host itself."""
    name = host.strip("[]").lower()
    try:
        found = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def ephemeral_range() -> tuple[int, int]:
    first, last = _RANGE.read_text(encoding="ascii").split()
    return int(first), int(last)


@dataclass(frozen=True)
class ListenLimits:
    strangers: int = 64
    of_one_address: int = 16
    stranger_s: float = 10
    safe_s: float = 1
    """A stranger is not replaced for this long, which is enough to authenticate."""
    known: int = 64
    """Limit of authenticated connections."""


@dataclass(eq=False)
class Guest:
    connection: socket.socket
    address: str
    admit: Callable[["Guest"], bool]
    """Call it once the guest has authenticated; it returns False at the limit."""
    since: float = field(default_factory=time.monotonic)

    def drop(self) -> None:
        """Shut down the connection; closing it would not wake a waiting thread."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class Listener:
    def __init__(
        self, server: socket.socket, attend: Callable[[Guest], bool], limits: ListenLimits | None = None
    ) -> None:
        """`attend` returns whether the connection stays open."""
        self._server, self._attend, self._limits = server, attend, limits or ListenLimits()
        self._strangers: set[Guest] = set()
        self._threads: dict[Guest, threading.Thread] = {}
        self._lock = threading.Lock()
        self._closed = False
        server.setblocking(False)  # noqa: FBT003 - the name is the standard library's
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def stop(self) -> None:
        self._closed = True
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._accepting:
            self._accepting.join()

    def close(self) -> None:
        """Accept no more connections, and end those that are open."""
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
                    # A lost client needs nothing; wait where handles have run out.
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
        """Make room by dropping the oldest stranger of the same address, or of the busiest one."""
        count = Counter(each.address for each in self._strangers)
        full = count[address] >= self._limits.of_one_address
        if not full and len(self._strangers) < self._limits.strangers:
            return True
        crowd = address if full else max(count, key=lambda each: count[each])
        oldest = min((each for each in self._strangers if each.address == crowd), key=lambda each: each.since)
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
