"""HTTP client with limits: certificates, proxies and sizes.

A certificate is verified wherever TLS is spoken, and no proxy of the environment sees what this host sends to
itself. What a server sends is read up to a limit, whatever it says of its length.
"""

import ipaddress
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from medley import json_shape
from medley.errors import Problem, in_words
from medley.network.tcp import is_loopback

MOST_BYTES = 64 << 20
"""Of an answer that is read whole, and of one line of one that comes in lines."""
_CONNECT_S = 5.0
_LAST_PORT = 65_535


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:  # noqa: ANN401 - whatever the server sends
        """The JSON of it; None where it is none, for who reads it looks for what it needs."""
        return json_shape.loads(self.text)


def address(url: str) -> httpx.URL:
    """The URL, its scheme in small letters; a Problem where it is none of HTTP."""
    try:
        found = httpx.URL(url)
        if found.scheme in {"http", "https"} and found.host and (found.port or 0) <= _LAST_PORT:
            return found
        cause = "it needs http:// or https://, a host, and a port up to 65535 if any"
    except (httpx.InvalidURL, ValueError) as error:
        cause = str(error)
    raise Problem(f"{url!r} is no address", cause=cause, fix="--url http://HOST:PORT/v1")


def options(url: httpx.URL) -> dict[str, Any]:
    """How a client of this address is made; to load certificates takes longer than a request on this host."""
    return {"verify": url.scheme == "https", "trust_env": not is_here(url.host)}


def is_here(host: str) -> bool:
    """Whether it is this host: its loopback, or the address of one of its interfaces."""
    try:
        found = ipaddress.ip_address(host.strip("[]"))
    except ValueError:  # of a name, a proxy may know better whom it means
        return is_loopback(host)
    family = socket.AF_INET6 if found.version == 6 else socket.AF_INET  # noqa: PLR2004 - of IP
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(found), 0))
    except OSError:
        return is_loopback(host)
    return True


def direct(host: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables by which another program reaches this host without a proxy; none where there is none."""
    if not is_here(host) or not any(name.lower().endswith("_proxy") for name in environ):
        return {}
    but = ",".join(filter(None, (host, environ.get("no_proxy") or environ.get("NO_PROXY"))))
    return {"no_proxy": but, "NO_PROXY": but}


def bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def ask(
    method: str,
    url: str,
    *,
    limit_s: float,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    connect_s: float = _CONNECT_S,
    redirects: bool = False,
) -> Response:
    """A request, and the whole answer; raises httpx.HTTPError, or a Problem where it is too long."""
    with _answering(
        method, url, limit_s, body=body, headers=headers, connect_s=connect_s, redirects=redirects
    ) as answer:
        found = bytearray()
        for chunk in answer.iter_bytes():
            found += chunk
            if len(found) > MOST_BYTES:
                raise _too_long(url)
        return Response(answer.status_code, answer.headers, found.decode("utf-8", "replace"))


@contextmanager
def lines(
    method: str, url: str, *, limit_s: float, body: object = None, headers: Mapping[str, str] | None = None
) -> Iterator[tuple[int, Iterator[str]]]:
    """A request whose answer comes line by line: its status, and the lines."""
    with _answering(method, url, limit_s, body=body, headers=headers) as answer:
        yield answer.status_code, _lines(url, answer.iter_bytes())


def download(
    url: str, *, limit_s: float, headers: Mapping[str, str] | None = None, connect_s: float = _CONNECT_S
) -> AbstractContextManager[httpx.Response]:
    """A file, from where redirects lead; what says who asks goes to the first address alone."""
    return _answering("GET", url, limit_s, headers=headers, connect_s=connect_s, redirects=True)


@contextmanager
def _answering(
    method: str,
    url: str,
    limit_s: float,
    *,
    body: object = None,
    headers: Mapping[str, str] | None,
    connect_s: float = _CONNECT_S,
    redirects: bool = False,
) -> Iterator[httpx.Response]:
    where = address(url)
    limit = httpx.Timeout(limit_s, connect=connect_s)
    with (
        httpx.Client(timeout=limit, follow_redirects=redirects, **options(where)) as client,
        client.stream(method, where, json=body, headers=dict(headers or {})) as answer,
    ):
        yield answer


def _lines(url: str, chunks: Iterator[bytes]) -> Iterator[str]:
    left = b""
    for chunk in chunks:
        *whole, left = (left + chunk).split(b"\n")
        yield from (each.decode("utf-8", "replace").rstrip("\r") for each in whole)
        if len(left) > MOST_BYTES:
            raise _too_long(url)
    if left:
        yield left.decode("utf-8", "replace")


def unanswered(url: str, error: Exception) -> Problem:
    return Problem(
        f"no server answers at {url}",
        cause=in_words(error),
        fix="start one: medley serve demo (or name where it is: --url http://HOST:PORT/v1)",
    )


def _too_long(url: str) -> Problem:
    return Problem(
        f"{url} sends too much",
        cause=f"an answer or a line of one is larger than {MOST_BYTES >> 20} MiB",
        fix="see what listens there: ss -ltnp",
    )
