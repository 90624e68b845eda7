"""A scan is which TCP ports of a host answer whoever tries, as somebody else on the network finds them."""

import errno
import resource
import select
import socket
import time
from collections.abc import Iterator, Sequence

AT_ONCE = 16_000
SILENT_S = 1.0
"""After so long a port that says nothing is closed; the others answer in a fraction of it."""


def scan(address: str, ports: Sequence[int] = range(1, 65_536)) -> set[int]:
    """The open ones, tried from this thread's network."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, AT_ONCE + 500), most))
    found: set[int] = set()
    for at in range(0, len(ports), AT_ONCE):
        found.update(_opened(address, ports[at : at + AT_ONCE]))
    return found


def _opened(address: str, ports: Sequence[int]) -> Iterator[int]:
    poll = select.epoll()
    tried: dict[int, tuple[socket.socket, int]] = {}
    try:
        for port in ports:
            each = socket.socket()
            each.settimeout(0)
            tried[each.fileno()] = each, port
            begun = each.connect_ex((address, port))
            assert begun in {0, errno.EINPROGRESS}, errno.errorcode[begun]
            poll.register(each, select.EPOLLOUT)
        deadline = time.monotonic() + SILENT_S
        silent = set(tried)
        while silent and (ready := poll.poll(max(0, deadline - time.monotonic()))):
            for number, _ in ready:
                poll.unregister(number)
                silent.remove(number)
                each, port = tried[number]
                if each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    yield port
    finally:
        for each, _ in tried.values():
            each.close()
        poll.close()
