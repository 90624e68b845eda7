"""HTTP client with limits: certificates, proxies and sizes.

TLS certificates are always verified, requests to this host itself bypass proxies, and answers are read up to
a limit, regardless of Content-Length. A server on a socket in a folder has a URL too
(socket_url).
"""

import ipaddress
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from medley import json_shape
from medley.errors import Problem, describe_error
from medley.network.socket_url import read_socket_url
from medley.network.tcp import is_loopback
from medley.values import Value

MAX_ANSWER_BYTES = 64 << 20
"""The limit of a whole answer, or of one line of a streamed one."""
_CONNECT_LIMIT_S = 5.0
_LAST_PORT = 65_535
_MAX_LABEL_CHARS = 63
"""The limit of each part of a host name (RFC 1035)."""


class HttpResponse(Value):
    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:  # noqa: ANN401 - whatever the server sends
        """Return its JSON; None where it is not valid."""
        return json_shape.parse_json(self.text)


def parse_url(url: str) -> httpx.URL:
    """Return a server's URL; raise a Problem if it is not an HTTP URL with a valid host and port."""
    try:
        parsed = httpx.URL(url)
        labels = [] if ":" in parsed.host else parsed.host.removesuffix(".").split(".")
        if not all(0 < len(label) <= _MAX_LABEL_CHARS for label in labels):
            cause = "a part of its host's name is empty or longer than 63 letters"
        elif parsed.scheme in {"http", "https"} and parsed.host and (parsed.port or 0) <= _LAST_PORT:
            return parsed
        else:
            cause = "it needs http:// or https://, a host, and a port up to 65535 if any"
    except (httpx.InvalidURL, ValueError) as error:
        cause = str(error)
    raise Problem(f"{url!r} is not a URL of a server", cause=cause, fix="--url http://HOST:PORT/v1")


def resolve_target(url: str) -> tuple[httpx.URL, dict[str, Any]]:
    """Return the URL that a request to a server names, and httpx's options by which it gets there."""
    if socket_and_path := read_socket_url(url):
        socket_file, path = socket_and_path
        _require_listener(socket_file)
        return httpx.URL(f"http://localhost{path}"), {"transport": httpx.HTTPTransport(uds=str(socket_file))}
    server_url = parse_url(url)
    return server_url, choose_client_options(server_url)


def _require_listener(socket_file: Path) -> None:
    """Raise httpx.ConnectError where nothing listens: httpcore 1.0.9 then leaves its socket open."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_LIMIT_S)
        try:
            probe.connect(str(socket_file))
        except OSError as error:
            raise httpx.ConnectError(describe_error(error)) from error


def choose_client_options(server_url: httpx.URL) -> dict[str, Any]:
    """Return httpx's options; loading certificates takes longer than a local request."""
    return {"verify": server_url.scheme == "https", "trust_env": not is_this_host(server_url.host)}


def is_this_host(host: str) -> bool:
    """Return whether an address or name is this host's; a name counts only if it is a loopback name."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:  # a name, which only a proxy may be able to resolve
        return is_loopback(host)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET  # noqa: PLR2004 - of IP
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return is_loopback(host)
    return True


def list_no_proxy_variables(host: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which another program reaches this host without a proxy."""
    if not is_this_host(host) or not any(name.lower().endswith("_proxy") for name in environ):
        return {}
    exceptions = ",".join(filter(None, (host, environ.get("no_proxy") or environ.get("NO_PROXY"))))
    return {"no_proxy": exceptions, "NO_PROXY": exceptions}


def build_auth_header(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def format_bearer_pipe(reference: str) -> str:
    """Return what a shell types before `curl -H @-`; `reference` is $NAME or $(cat FILE).

    Every user of the host can read the words of curl. printf is the shell's own: its words are in no list.
    """
    return f"""printf 'Authorization: Bearer %s\\n' "{reference}" | """


def send_request(
    method: str,
    url: str,
    *,
    limit_s: float,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    connect_s: float = _CONNECT_LIMIT_S,
    redirects: bool = False,
) -> HttpResponse:
    """Send a request and return its answer; raises httpx.HTTPError, or a Problem if it is too long."""
    with _stream_answer(
        method, url, limit_s, body=body, headers=headers, connect_s=connect_s, redirects=redirects
    ) as answer:
        content = bytearray()
        for chunk in answer.iter_bytes():
            content += chunk
            if len(content) > MAX_ANSWER_BYTES:
                raise _build_too_large_problem(url)
        return HttpResponse(answer.status_code, answer.headers, content.decode("utf-8", "replace"))


@contextmanager
def stream_lines(
    method: str, url: str, *, limit_s: float, body: object = None, headers: Mapping[str, str] | None = None
) -> Iterator[tuple[int, Iterator[str]]]:
    """Send a request, and yield the answer's status and its lines."""
    with _stream_answer(method, url, limit_s, body=body, headers=headers) as answer:
        yield answer.status_code, _split_lines(url, answer.iter_bytes())


def stream_download(
    url: str, *, limit_s: float, headers: Mapping[str, str] | None = None, connect_s: float = _CONNECT_LIMIT_S
) -> AbstractContextManager[httpx.Response]:
    """Download a file and follow redirects; only the first host gets the credentials."""
    return _stream_answer("GET", url, limit_s, headers=headers, connect_s=connect_s, redirects=True)


@contextmanager
def _stream_answer(
    method: str,
    url: str,
    limit_s: float,
    *,
    body: object = None,
    headers: Mapping[str, str] | None,
    connect_s: float = _CONNECT_LIMIT_S,
    redirects: bool = False,
) -> Iterator[httpx.Response]:
    limit = httpx.Timeout(limit_s, connect=connect_s)
    request_url, client_options = resolve_target(url)
    with (
        httpx.Client(timeout=limit, follow_redirects=redirects, **client_options) as client,
        client.stream(method, request_url, json=body, headers=dict(headers or {})) as answer,
    ):
        yield answer


def _split_lines(url: str, chunks: Iterator[bytes]) -> Iterator[str]:
    """Yield the lines of an answer as they arrive; raise a Problem if one is too long."""
    partial_line = b""
    for chunk in chunks:
        *complete_lines, partial_line = (partial_line + chunk).split(b"\n")
        yield from (line.decode("utf-8", "replace").rstrip("\r") for line in complete_lines)
        if len(partial_line) > MAX_ANSWER_BYTES:
            raise _build_too_large_problem(url)
    if partial_line:
        yield partial_line.decode("utf-8", "replace")


def build_missing_answer_problem(url: str, error: Exception) -> Problem:
    return Problem(
        f"no server answers at {url}",
        cause=describe_error(error),
        fix="start one: medley serve smollm2; or give its URL: --url http://HOST:PORT/v1",
    )


def _build_too_large_problem(url: str) -> Problem:
    return Problem(
        f"the answer of {url} is too large",
        cause=f"an answer or a line of one is larger than {MAX_ANSWER_BYTES >> 20} MiB",
        fix="check which program listens there: ss -ltnp",
    )
