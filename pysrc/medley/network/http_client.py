"""HTTP client with limits: certificates, proxies and sizes.

TLS certificates are always verified, requests to this host itself bypass proxies, and answers are read up to
a limit, regardless of Content-Length. A server on a socket in a folder has a URL too
(socket_url).
"""

import ipaddress
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from medley import json_shape
from medley.errors import Problem, in_words
from medley.network.socket_url import read_socket_url
from medley.network.tcp import is_loopback

MOST_BYTES = 64 << 20
"""Of a whole answer, or of one line of a streamed one."""
_CONNECT_S = 5.0
_LAST_PORT, _LONGEST_LABEL = 65_535, 63


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:  # noqa: ANN401 - whatever the server sends
        """Return its JSON; None where it is not valid."""
        return json_shape.loads(self.text)


def address(url: str) -> httpx.URL:
    try:
        found = httpx.URL(url)
        labels = [] if ":" in found.host else found.host.removesuffix(".").split(".")
        if not all(0 < len(label) <= _LONGEST_LABEL for label in labels):
            cause = "a part of its host's name is empty or longer than 63 letters"
        elif found.scheme in {"http", "https"} and found.host and (found.port or 0) <= _LAST_PORT:
            return found
        else:
            cause = "it needs http:// or https://, a host, and a port up to 65535 if any"
    except (httpx.InvalidURL, ValueError) as error:
        cause = str(error)
    raise Problem(f"{url!r} is not a URL of a server", cause=cause, fix="--url http://HOST:PORT/v1")


def target(url: str) -> tuple[httpx.URL, dict[str, Any]]:
    """Return the URL that a request to a server names, and httpx's options by which it gets there."""
    if local := read_socket_url(url):
        socket_file, path = local
        _require_listener(socket_file)
        return httpx.URL(f"http://localhost{path}"), {"transport": httpx.HTTPTransport(uds=str(socket_file))}
    where = address(url)
    return where, options(where)


def _require_listener(socket_file: Path) -> None:
    """Raise httpx.ConnectError where nothing listens: httpcore 1.0.9 then leaves its socket open."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(str(socket_file))
        except OSError as error:
            raise httpx.ConnectError(in_words(error)) from error


def options(url: httpx.URL) -> dict[str, Any]:
    """Return httpx's options; loading certificates takes longer than a local request."""
    return {"verify": url.scheme == "https", "trust_env": not is_here(url.host)}


def is_here(host: str) -> bool:
    try:
        found = ipaddress.ip_address(host.strip("[]"))
    except ValueError:  # a name, which only a proxy may be able to resolve
        return is_loopback(host)
    family = socket.AF_INET6 if found.version == 6 else socket.AF_INET  # noqa: PLR2004 - of IP
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(found), 0))
    except OSError:
        return is_loopback(host)
    return True


def direct(host: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which another program reaches this host without a proxy."""
    if not is_here(host) or not any(name.lower().endswith("_proxy") for name in environ):
        return {}
    but = ",".join(filter(None, (host, environ.get("no_proxy") or environ.get("NO_PROXY"))))
    return {"no_proxy": but, "NO_PROXY": but}


def bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def pipe_bearer(reference: str) -> str:
    """Return what a shell types before `curl -H @-`; `reference` is $NAME or $(cat FILE).

    Every user of the host can read the words of curl. printf is the shell's own: its words are in no list.
    """
    return f"""printf 'Authorization: Bearer %s\\n' "{reference}" | """


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
    """Send a request and return its answer; raises httpx.HTTPError, or a Problem if it is too long."""
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
    """Send a request, and yield the answer's status and its lines."""
    with _answering(method, url, limit_s, body=body, headers=headers) as answer:
        yield answer.status_code, _lines(url, answer.iter_bytes())


def download(
    url: str, *, limit_s: float, headers: Mapping[str, str] | None = None, connect_s: float = _CONNECT_S
) -> AbstractContextManager[httpx.Response]:
    """Download a file and follow redirects; only the first host gets the credentials."""
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
    limit = httpx.Timeout(limit_s, connect=connect_s)
    where, how = target(url)
    with (
        httpx.Client(timeout=limit, follow_redirects=redirects, **how) as client,
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
        fix="start one: medley serve smollm2; or give its URL: --url http://HOST:PORT/v1",
    )


def _too_long(url: str) -> Problem:
    return Problem(
        f"the answer of {url} is too large",
        cause=f"an answer or a line of one is larger than {MOST_BYTES >> 20} MiB",
        fix="check which program listens there: ss -ltnp",
    )
