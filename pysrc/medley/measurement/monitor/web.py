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
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Protocol, cast

from medley import credentials
from medley.errors import Problem, describe_error
from medley.measurement.monitor import metrics, view
from medley.measurement.monitor.watch import HostStatus, build_table
from medley.network.tcp import Guest, Listener, ListenLimits
from medley.values import Value

PAGE = Path(__file__).parent / "page.html"
_SCRAPE_LIMIT_S = 5
_LIMITS = ListenLimits(max_strangers=64, max_per_address=16, stranger_limit_s=30)
"""Limits for strangers; the page has no keys, so every client is one, with one request per connection."""
_MAX_PORT = 65_535
_SSH_EXAMPLE_PORT = 9180
Answer = tuple[str, bytes]
"""The content type and the body."""


class ListenAddress(Value):
    """An address and a port to listen on."""

    address: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{f'[{self.address}]' if ':' in self.address else self.address}:{self.port}/"


def parse_address(text: str | None) -> ListenAddress:
    """Parse ADDRESS:PORT, [ADDRESS]:PORT or :PORT, or raise a Problem; port 0 stands for any free one."""
    if text is None:
        return ListenAddress("127.0.0.1", 0)
    address, colon, port = text.rpartition(":")
    address = address.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not colon or not port.isdecimal() or int(port) > _MAX_PORT or not _is_address(address):
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


def require_consent(endpoint: ListenAddress, *, opened: bool) -> None:
    """Raise a Problem if other hosts could reach the address and the user has not typed --open."""
    if credentials.is_reachable_address(endpoint.address) and not opened:
        port = endpoint.port or _SSH_EXAMPLE_PORT
        raise Problem(
            f"others would reach {endpoint.address}",
            cause=describe_exposure(endpoint),
            fix=f"medley top --web {endpoint.address}:{endpoint.port} --open; "
            f"or stay on this host and reach it by ssh -N -L {port}:127.0.0.1:{port} HERE",
        )


def describe_exposure(endpoint: ListenAddress) -> str:
    """Return what other users of the network can read at this address."""
    port_text = f" at port {endpoint.port}" if endpoint.port else ""
    return (
        f"anyone who can reach it{port_text} can read host and model names, load, links and engine metrics, "
        "without a key and unencrypted; the page changes nothing"
    )


class StatusSource(Protocol):
    """The methods of a FleetWatch that the server calls."""

    def read_statuses(self) -> Mapping[str, HostStatus]: ...

    def sample_now(self, limit_s: float) -> Mapping[str, HostStatus]: ...


class PageServer:
    """Server of the page, its JSON and its metrics, until it is closed."""

    def __init__(self, endpoint: ListenAddress, source: StatusSource, interval_s: float) -> None:
        family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
        try:
            server = socket.create_server((endpoint.address, endpoint.port), family=family)
        except OSError as error:
            raise Problem(
                f"{endpoint.address}:{endpoint.port} cannot be listened at",
                cause=describe_error(error),
                fix="another port: medley top --web 127.0.0.1:0 takes one that is free",
            ) from error
        self.listen_address = ListenAddress(endpoint.address, server.getsockname()[1])
        page = PAGE.read_bytes()
        self.pages: Mapping[str, Callable[[], Answer]] = {
            "/": lambda: ("text/html; charset=utf-8", page),
            "/view.json": lambda: _encode_json(_build_view(source.read_statuses(), interval_s)),
            "/json": lambda: _encode_json(build_table(source.read_statuses())),
            "/metrics": lambda: _encode_metrics(source.sample_now(_SCRAPE_LIMIT_S)),
        }
        self.policy = _build_policy(page.decode())
        self.names = {"localhost"}
        if credentials.is_reachable_address(endpoint.address):
            self.names |= {socket.gethostname(), f"{socket.gethostname().partition('.')[0]}.local"}
        self._listener = Listener(server, self._answer, _LIMITS)

    def _answer(self, guest: Guest) -> bool:
        with contextlib.suppress(OSError):  # a browser that hangs up is not an error
            _Request(guest.connection, (guest.address, 0), cast("Any", self))
        return False

    def close(self) -> None:
        self._listener.close()


class _Request(BaseHTTPRequestHandler):
    server: PageServer  # type: ignore[assignment] # the base class declares its own server, and calls none of it
    timeout = _LIMITS.stranger_limit_s
    server_version, sys_version = "medley", ""

    def do_GET(self) -> None:
        if not self._is_allowed():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "ask by address, or by this host's own name")
            return
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        content_type, body = page()
        self.send_response(HTTPStatus.OK)
        for name, value in {
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": self.server.policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _is_allowed(self) -> bool:
        """Return whether the request is for this server by address or by this host's own name.

        A foreign page could let its own name resolve to this host, and read the answers (DNS rebinding).
        It cannot do so with an address. If the browser sends an origin, that has to be this server, too.
        """
        host, origin = self.headers.get("host", ""), self.headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return False
        name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
        name = name.strip("[]").lower()
        if name in {"", *map(str.lower, self.server.names)}:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or credentials.is_reachable_address(self.server.listen_address.address)

    def log_message(self, *_: object) -> None:
        """Log nothing about clients."""


@contextmanager
def serve_page(endpoint: ListenAddress, source: StatusSource, interval_s: float) -> Iterator[ListenAddress]:
    """Serve until the body ends; yield the address with the real port. Raise a Problem if it is in use."""
    with contextlib.closing(PageServer(endpoint, source, interval_s)) as server:
        yield server.listen_address


def _build_view(statuses: Mapping[str, HostStatus], interval_s: float) -> dict[str, Any]:
    tables = [table.to_table() for table in view.build_tables(statuses)]
    for table in tables:  # on a terminal the first title names the table; on the page a heading does
        table["columns"][0]["title"] = "host"
    title = view.format_title(statuses, interval_s)
    return {"epoch_s": time.time(), "every_s": interval_s, "title": title, "tables": tables}


def _encode_json(value: object) -> Answer:
    return "application/json", json.dumps(value).encode()


def _encode_metrics(statuses: Mapping[str, HostStatus]) -> Answer:
    return metrics.CONTENT_TYPE, metrics.format_metrics(statuses).encode()


def _build_policy(page: str) -> str:
    """Return a policy that allows the page's script and style, by hash, and requests to this server."""
    hashes = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind in ("script", "style")
        for text in re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
    }
    allowed = "; ".join(f"{kind}-src 'sha256-{digest}'" for kind, digest in hashes.items())
    forbidden = "; ".join(
        f"{directive} 'none'" for directive in ("default-src", "base-uri", "form-action", "frame-ancestors")
    )
    return f"{forbidden}; {allowed}; connect-src 'self'"
