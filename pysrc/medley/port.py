"""A TCP port of this host: whether it is free, and who holds it."""

import errno
import os
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from medley.problem import Problem, in_words

_LISTENING = "0A"
_LAST = 65_535
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free() -> int:
    """One that nobody has on the loopback, as the kernel picks it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def require_free(address: str, port: int) -> None:
    """Raise a Problem unless a server could listen there now."""
    if not 0 < port <= _LAST:
        raise Problem(f"there is no port {port}", cause=f"ports are 1 to {_LAST}", fix="--port 8000")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except socket.gaierror as error:
        raise Problem(
            f"{address} is no address",
            cause=in_words(error),
            fix="--host 127.0.0.1, or 0.0.0.0 for every interface",
        ) from error
    except OSError as error:
        raise _refused(address, port, error) from error


def _refused(address: str, port: int, error: OSError) -> Problem:
    if error.errno == errno.EADDRINUSE:
        return Problem(
            f"port {port} is in use",
            cause=_holder(port) or "another process listens there",
            fix=f"end it, or take another: --port {port + 1 if port < _LAST else 8000}",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return Problem(
            f"this host has no address {address}",
            cause=in_words(error),
            fix="ip -brief address  # and give one of these as --host, or 0.0.0.0 for all",
        )
    return Problem(
        f"port {port} of {address} cannot be used",
        cause=in_words(error),
        fix="--port 8000, or another above 1023",
    )


def _holder(port: int) -> str | None:
    """The process that listens on the port, as far as /proc lets this user see."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(link.readlink()) in sockets:
                process = link.parent.parent
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                return f"process {process.name} listens there: {words.strip()[:120]}"
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return None


def _inodes(port: int) -> set[str]:
    return {fields[9] for fields in _listeners() if int(fields[1].rpartition(":")[2], 16) == port}


def outside() -> frozenset[int]:
    """Where something listens now that others can reach: on more than the loopback."""
    places = (fields[1].split(":") for fields in _listeners())
    return frozenset(int(number, 16) for address, number in places if not _address(address).is_loopback)


def _address(hexadecimal: str) -> IPv4Address | IPv6Address:
    """As /proc/net has it: words of four bytes, each the wrong way round on our processors."""
    words = [bytes.fromhex(hexadecimal[at : at + 8])[::-1] for at in range(0, len(hexadecimal), 8)]
    found = ip_address(b"".join(words))
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _listeners() -> Iterator[list[str]]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.access(table, os.R_OK):
            continue
        for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING:
                yield fields


def picked() -> tuple[int, int]:
    """The range of which the kernel gives a port to whoever asks for any."""
    first, last = _RANGE.read_text(encoding="ascii").split()
    return int(first), int(last)
