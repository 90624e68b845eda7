"""Write the configuration of the edge, Caddy in front of an engine: keys, routes, limits, TLS.

The engine listens on a socket in a folder that only its user can open. The edge listens at the address that
clients use; only what this configuration lets through reaches the engine. Each rule was attacked as it stands
here (tests/engine/test_edge.py); Caddy 2.11.7.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import config
from medley.engine import Tls, find_tls_folder
from medley.serving.edge_answers import RETRY_AFTER_S, Route, refuse, write_error, write_failure

BODY_MIB = 64
HEAD_BYTES = 64 << 10
HEAD_S, BODY_IDLE_S, BODY_S, STALL_S = 10, 10, 60, 120
"""Limits of a request's headers, of a pause in its body, and of a client that reads nothing of its answer."""
BODY_BYTES_PER_S = 4096
IDLE_S = 120
_ROUTES = config.read_own_table(__file__, "edge_routes.toml")
_LOOPBACK = (
    r"(localhost|[a-z0-9.-]*\.localhost|127\.[0-9]+\.[0-9]+\.[0-9]+|\[::1\]|\[::ffff:127\.[0-9.]+\])"
    r"(:[0-9]+)?"
)
_NO_ROUTE = "no such route: the server answers OpenAI's and Anthropic's API"
_OWN_HOST = (
    "without a key this server answers only http://127.0.0.1 on its own host: medley serve --api-key FILE"
)
_GIVE_KEY = "give the key: Authorization: Bearer KEY, or x-api-key: KEY; with both, the same in each"
_AUTHORIZATION, _API_KEY = "{http.request.header.Authorization}", "{http.request.header.X-Api-Key}"
_TOO_LARGE = f"the body is larger than {BODY_MIB} MiB"


@dataclass(frozen=True)
class Closed:
    """The edge lets no new request in, for a reason that clients read."""

    reason: str
    retry_after_s: int = RETRY_AFTER_S
    has_engine: bool = True
    """Whether the engine runs, so that /health is its answer."""


@dataclass(frozen=True)
class Edge:
    """The front of one server."""

    address: str
    port: int
    socket: Path
    """The engine's socket."""
    folder: Path
    """Mode 0700: the edge's configuration and its control socket."""
    keys: Mapping[str, str] | None = None
    """Each key by its name; None: no key is needed."""
    loopback: bool = True
    """Whether it listens on this host only; without a key it then answers only this host's programs."""
    tls: Tls | None = None
    origins: tuple[str, ...] = ()
    """Web pages that may ask from a browser, as SCHEME://HOST[:PORT]."""

    @property
    def control(self) -> Path:
        """The socket at which Caddy takes a new configuration; it shows the keys."""
        return self.folder / "control.sock"

    @property
    def upstream(self) -> str:
        return f"unix/{self.socket}"

    def build_configuration(self, closed: Closed | None = None) -> dict[str, Any]:
        """Return Caddy's configuration; `closed`: new requests get 503, the running ones go on."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        server: dict[str, Any] = {
            "listen": [f"{host}:{self.port}"],
            # No HTTP/2: a connection that shakes hands while Caddy 2.11.7 takes a configuration keeps the old
            # one, with its revoked keys, and GET /health may stream a body there.
            "protocols": ["h1"],
            "read_header_timeout": f"{HEAD_S}s",
            # Of a client with a key that sends a body slowly, or not at all, none of these ends each request
            # (2.11.7: some ended after 10 s, some were open after 40).
            "read_timeout": f"{BODY_S}s",
            "read_idle_timeout": f"{BODY_IDLE_S}s",
            "read_min_rate": BODY_BYTES_PER_S,
            "write_idle_timeout": f"{STALL_S}s",
            "idle_timeout": f"{IDLE_S}s",
            "max_header_bytes": HEAD_BYTES,
            "strict_sni_host": False,
            "automatic_https": {"disable": True},
            "routes": list(self._list_routes(closed)),
            "errors": {"routes": [write_failure()]},
        }
        # Without a grace_period, so that streams outlive a change.
        apps: dict[str, Any] = {"http": {"servers": {"edge": server}}}
        if self.tls:
            apps |= _build_tls_apps(self.tls, server)
        storage = find_tls_folder() if self.tls else self.folder / "caddy"
        return {
            "admin": {"listen": f"unix/{self.control}|0600", "config": {"persist": False}},
            "storage": {"module": "file_system", "root": str(storage)},
            "logging": {"logs": {"default": {"level": "WARN", "writer": {"output": "stderr"}}}},
            "apps": apps,
        }

    def _list_routes(self, closed: Closed | None) -> Iterator[Route]:
        yield {"handle": [_drop_hop_headers()]}
        yield from refuse("400", "GET /health has no body", *_WITH_BODY)
        yield self._build_health_route(closed)
        yield from self._list_origin_routes()
        yield from self._list_own_host_routes() if self.keys is None else self._list_key_routes(self.keys)
        yield from self._list_path_routes()
        if closed:
            yield from refuse(
                "503",
                closed.reason,
                {"not": [_match_request("GET /metrics")]},
                retry_after_s=closed.retry_after_s,
            )
        yield from refuse("413", _TOO_LARGE, {"expression": _IS_TOO_LARGE})
        yield {
            "handle": [
                {"handler": "rewrite", "uri": "{medley.path}?"},
                {"handler": "request_body", "max_size": BODY_MIB << 20},
                {"handler": "headers", "request": {"delete": ["Authorization", "X-Api-Key", "Cookie"]}},
                self._build_engine_handler(),
            ]
        }

    def _build_health_route(self, closed: Closed | None) -> Route:
        """Answer /health, which needs no key; its matcher takes //health and x/../health too.

        One with a body was refused before: a stranger could stream it to the engine (2.11.7 passes it on).
        """
        if closed and not closed.has_engine:
            handle = [write_error("503", closed.reason, retry_after_s=closed.retry_after_s)]
        else:
            handle = [{"handler": "rewrite", "uri": "/health?"}, self._build_engine_handler()]
        return {
            "match": [_HEALTH],
            "handle": handle,
            "terminal": True,
        }

    def _list_own_host_routes(self) -> Iterator[Route]:
        """Refuse a browser that another site's page sends to this host, by any of its names."""
        if not self.loopback:
            return
        host = {"not": [{"header_regexp": {"Host": {"pattern": f"(?i)^{_LOOPBACK}$"}}}]}
        yield from refuse("421", _OWN_HOST, host)
        own_origin = {"header_regexp": {"Origin": {"pattern": f"(?i)^https?://{_LOOPBACK}$"}}}
        origin = {"header": {"Origin": ["*"]}, "not": [own_origin, *self._match_origins()]}
        site = {
            "header": {"Sec-Fetch-Site": ["cross-site", "same-site"]},
            "not": self._match_origins() or [_NEVER],
        }
        page = {"not": [{"header_regexp": {"Referer": {"pattern": f"(?i)^https?://{_LOOPBACK}([/?#]|$)"}}}]}
        referer = {
            "header": {"Referer": ["*"]},
            "not": [*page["not"], {"header": {"Sec-Fetch-Site": ["*"]}}, *self._match_origins()],
        }
        yield from refuse("403", _OWN_HOST, origin, site, referer)

    def _match_origins(self) -> list[Route]:
        return [{"header": {"Origin": list(self.origins)}}] if self.origins else []

    def _list_origin_routes(self) -> Iterator[Route]:
        """Let the named web pages ask: answer a browser's preflight, and mark the answers."""
        if not self.origins:
            return
        allow = {"Access-Control-Allow-Origin": ["{http.request.header.Origin}"], "Vary": ["Origin"]}
        yield {
            "match": self._match_origins(),
            "handle": [{"handler": "headers", "response": {"deferred": True, "set": allow}}],
        }
        preflight = {
            "Access-Control-Allow-Methods": ["GET, POST, OPTIONS"],
            "Access-Control-Allow-Headers": ["{http.request.header.Access-Control-Request-Headers}"],
            "Access-Control-Max-Age": ["600"],
        }
        yield {
            "match": [
                {
                    "method": ["OPTIONS"],
                    "header": {"Origin": list(self.origins), "Access-Control-Request-Method": ["*"]},
                }
            ],
            "handle": [{"handler": "static_response", "status_code": "204", "headers": preflight}],
            "terminal": True,
        }

    def _list_key_routes(self, keys: Mapping[str, str]) -> Iterator[Route]:
        """Refuse a request without a key, and one with two headers that differ.

        A header that is not there, or empty, counts as none; a wrong one as `-`, which no pair has.
        """
        absent = {"input": "", "outputs": [""]}
        key_mappings = [
            absent,
            *(
                {"input": f"{prefix}{key}", "outputs": [name]}
                for name, key in keys.items()
                for prefix in ("Bearer ", "bearer ", "")
            ),
        ]
        for header, variable in (_AUTHORIZATION, "{medley.bearer}"), (_API_KEY, "{medley.api_key}"):
            yield _build_map(header, variable, key_mappings)
        # Caddy never asks a second map of one destination, so the two results have a third.
        pairs = [
            {"input": pair, "outputs": [name]}
            for name in keys
            for pair in (f"{name}/", f"/{name}", f"{name}/{name}")
        ]
        yield _build_map("{medley.bearer}/{medley.api_key}", "{medley.key}", pairs)
        missing = {"vars": {"{medley.key}": ["-"]}}
        yield from refuse("401", _GIVE_KEY, missing, challenge=True)

    def _list_path_routes(self) -> Iterator[Route]:
        """Replace the path by an entry of the list; refuse a request of another."""
        exact = [
            {"input": f"{method} {path}", "outputs": [path]}
            for method, paths in (("GET", _ROUTES["get"]), ("POST", _ROUTES["post"]))
            for path in paths
        ]
        items = [
            {"input_regexp": f"^GET {re.escape(path)}/({name})$", "outputs": [f"{path}/${{1}}"]}
            for path, name in _ROUTES["get_item"].items()
        ]
        yield _build_map("{http.request.method} {http.request.uri.path}", "{medley.path}", [*exact, *items])
        yield from refuse("404", _NO_ROUTE, {"vars": {"{medley.path}": ["-"]}})

    def _build_engine_handler(self) -> Route:
        return {
            "handler": "reverse_proxy",
            "upstreams": [{"dial": self.upstream}],
            "flush_interval": -1,
            "transport": {"protocol": "http", "compression": False},
        }


def list_accepted_keys(routes: Sequence[Route]) -> frozenset[str]:
    """Return the keys that the routes of a running configuration let in."""
    handlers = (handler for route in routes for handler in route.get("handle", ()))
    mappings = [
        each
        for handler in handlers
        if handler.get("source") == _AUTHORIZATION
        for each in handler["mappings"]
    ]
    return frozenset(each["input"] for each in mappings if each["input"] and " " not in each["input"])


_NEVER: Route = {"method": ["NEVER"]}
_HEALTH: Route = {"path": ["/health"], "method": ["GET", "HEAD"]}
_WITH_BODY: tuple[Route, ...] = (
    {**_HEALTH, "header": {"Transfer-Encoding": ["*"]}},
    {**_HEALTH, "header": {"Content-Length": ["*"]}, "not": [{"header": {"Content-Length": ["0"]}}]},
)
_IS_TOO_LARGE = (
    '{http.request.header.Content-Length}.matches("^[0-9]{1,18}$") && '
    f"int({{http.request.header.Content-Length}}) > {BODY_MIB << 20}"
)


def _match_request(request: str) -> Route:
    method, _, path = request.partition(" ")
    return {"method": [method], "vars": {"{medley.path}": [path]}}


def _build_map(source: str, destination: str, mappings: Sequence[Route]) -> Route:
    handler = {"handler": "map", "source": source, "destinations": [destination], "defaults": ["-"]}
    return {"handle": [{**handler, "mappings": list(mappings)}]}


def _drop_hop_headers() -> Route:
    """Remove the headers that clients may not send to the engine, and those that the engine need not send."""
    return {
        "handler": "headers",
        "request": {"delete": ["Upgrade", "Connection", "Expect", "X-Forwarded-*", "X-Medley-*"]},
        "response": {"deferred": True, "delete": ["Via", "Server"]},
    }


def _build_tls_apps(tls: Tls, server: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a server with TLS, and set its policies."""
    if tls.certificate:
        server["tls_connection_policies"] = [{}]
        files = [{"certificate": str(tls.certificate), "key": str(tls.key)}]
        return {"tls": {"certificates": {"load_files": files}}}
    names = list(tls.names)
    server["tls_connection_policies"] = [{"default_sni": names[0]}]
    server["automatic_https"] = {"disable_redirects": True}
    policy = {"subjects": names, "issuers": [{"module": "internal"}]}
    authority = {"local": {"install_trust": False, "name": "medley"}}
    return {
        "tls": {"automation": {"policies": [policy]}, "certificates": {"automate": names}},
        "pki": {"certificate_authorities": authority},
    }
