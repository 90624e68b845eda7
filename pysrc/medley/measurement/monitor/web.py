"""Serve the web page of the monitor, its JSON and its metrics."""

import base64
import contextlib
import hashlib
import ipaddress
import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Protocol, cast

from medley import credentials
from medley.errors import Problem, in_words
from medley.measurement.monitor import metrics, view
from medley.measurement.monitor.watch import Seen, table
from medley.network.tcp import Guest, Listener, ListenLimits

PAGE = Path(__file__).parent / "page.html"
_SCRAPE_LIMIT_S = 5
_LIMITS = ListenLimits(strangers=64, of_one_address=16, stranger_s=30)
"""Nobody shows anything here, so that all are strangers, with one request each."""
_LAST = 65_535
Answer = tuple[str, bytes]
"""Its type, and itself."""


@dataclass(frozen=True)
class ListenAddress:
    address: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{f'[{self.address}]' if ':' in self.address else self.address}:{self.port}/"


def place(text: str | None) -> ListenAddress:
    """ADDRESS:PORT, [ADDRESS]:PORT or :PORT; port 0 is one that is free."""
    if text is None:
        return ListenAddress("127.0.0.1", 0)
    address, colon, port = text.rpartition(":")
    address = address.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not colon or not port.isdecimal() or int(port) > _LAST or not _is_address(address):
        raise Problem(
            f"{text!r} is not an address to listen on",
            cause="it is an address of this host, a colon and a port",
            fix="medley top --web 127.0.0.1:9180",
        )
    return ListenAddress(address, int(port))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return text == "localhost"
    return True


def require_meant(where: ListenAddress, *, opened: bool) -> None:
    """Beyond this host only for who has said that it is meant."""
    if credentials.is_open(where.address) and not opened:
        raise Problem(
            f"others would reach {where.address}",
            cause=opens(where),
            fix=f"medley top --web {where.address}:{where.port} --open; or stay on this host and reach it by "
            f"ssh -N -L {where.port or 9180}:127.0.0.1:{where.port or 9180} HERE",
        )


def opens(where: ListenAddress) -> str:
    at = f" at port {where.port}" if where.port else ""
    return (
        f"anyone who can reach it{at} can read host and model names, load, links and engine metrics, "
        "without a key and unencrypted; the page changes nothing"
    )


class Watched(Protocol):
    """The part of a Watching that is served."""

    def seen(self) -> Mapping[str, Seen]: ...

    def fresh(self, limit_s: float) -> Mapping[str, Seen]: ...


class Web:
    """Answers at a place, until it is closed."""

    def __init__(self, where: ListenAddress, watching: Watched, every_s: float) -> None:
        family = socket.AF_INET6 if ":" in where.address else socket.AF_INET
        try:
            server = socket.create_server((where.address, where.port), family=family)
        except OSError as error:
            raise Problem(
                f"{where.address}:{where.port} cannot be listened at",
                cause=in_words(error),
                fix="another port: medley top --web 127.0.0.1:0 takes one that is free",
            ) from error
        self.place = ListenAddress(where.address, server.getsockname()[1])
        page = PAGE.read_bytes()
        self.pages: Mapping[str, Callable[[], Answer]] = {
            "/": lambda: ("text/html; charset=utf-8", page),
            "/view.json": lambda: _json(shown(watching.seen(), every_s)),
            "/json": lambda: _json(table(watching.seen())),
            "/metrics": lambda: (metrics.TYPE, metrics.metrics(watching.fresh(_SCRAPE_LIMIT_S)).encode()),
        }
        self.policy = _policy(page.decode())
        self.names = {"localhost"}
        if credentials.is_open(where.address):
            self.names |= {socket.gethostname(), f"{socket.gethostname().partition('.')[0]}.local"}
        self._listener = Listener(server, self._attend, _LIMITS)

    def _attend(self, guest: Guest) -> bool:
        with contextlib.suppress(OSError):  # a browser that hangs up is no error of ours
            _Request(guest.connection, (guest.address, 0), cast("Any", self))
        return False

    def close(self) -> None:
        self._listener.close()


class _Request(BaseHTTPRequestHandler):
    server: Web  # type: ignore[assignment] # the standard library's own is not ours, and it asks nothing of it
    timeout = _LIMITS.stranger_s
    server_version, sys_version = "medley", ""

    def do_GET(self) -> None:
        if not self._is_for_us():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "ask by address, or by this host's own name")
            return
        found = self.server.pages.get(self.path.partition("?")[0])
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        kind, body = found()
        self.send_response(HTTPStatus.OK)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": self.server.policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _is_for_us(self) -> bool:
        """A page from elsewhere may have its own name lead to us, and would read what we tell.

        An address cannot be led anywhere else; names are those that this host gives itself. Where a browser
        says on which page's behalf it asks, that page is ours.
        """
        host, origin = self.headers.get("host", ""), self.headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return False
        name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
        name = name.strip("[]").lower()
        if name in {"", *map(str.lower, self.server.names)}:
            return True
        try:
            asked = ipaddress.ip_address(name)
        except ValueError:
            return False
        return asked.is_loopback or credentials.is_open(self.server.place.address)

    def log_message(self, *_: object) -> None:
        """It says nothing of who asked."""


@contextmanager
def served(where: ListenAddress, watching: Watched, every_s: float) -> Iterator[ListenAddress]:
    """Until the body ends; where it listens then."""
    with contextlib.closing(Web(where, watching, every_s)) as server:
        yield server.place


def shown(seen: Mapping[str, Seen], every_s: float) -> dict[str, Any]:
    tables = [asdict(each) for each in view.tables(seen)]
    for each in tables:  # on a terminal the first title names the table; on the page a heading does
        each["columns"][0]["title"] = "host"
    return {"epoch_s": time.time(), "every_s": every_s, "title": view.title(seen, every_s), "tables": tables}


def _json(found: object) -> Answer:
    return "application/json", json.dumps(found).encode()


def _policy(page: str) -> str:
    """Nothing but the page's own script and style, by their hashes, and questions to us."""
    hashes = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind in ("script", "style")
        for text in re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
    }
    allowed = "; ".join(f"{kind}-src 'sha256-{found}'" for kind, found in hashes.items())
    closed = "; ".join(
        f"{each} 'none'" for each in ("default-src", "base-uri", "form-action", "frame-ancestors")
    )
    return f"{closed}; {allowed}; connect-src 'self'"
