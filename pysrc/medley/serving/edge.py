"""Write the configuration of the edge, Caddy in front of an engine: keys, routes, limits, TLS.

The engine listens on a socket in a folder that only its user can open. The edge listens at the address that
clients use; only what this configuration lets through reaches the engine. Each rule was attacked as it stands
here (tests/engine/test_edge.py); Caddy 2.11.7.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from medley import config
from medley.engine.server_spec import Tls, find_tls_folder
from medley.serving.edge_answers import (
    RETRY_AFTER_S,
    Route,
    build_error_handler,
    build_failure_route,
    list_refusal_routes,
)
from medley.values import Value

MAX_BODY_MIB = 64
MAX_HEADER_BYTES = 64 << 10
HEADER_LIMIT_S, BODY_PAUSE_LIMIT_S, BODY_LIMIT_S, WRITE_PAUSE_LIMIT_S = 10, 10, 60, 120
"""Seconds for a request's headers, a pause in its body, its whole body, and a client that reads no answer."""
MIN_BODY_BYTES_PER_S = 4096
CONNECTION_IDLE_LIMIT_S = 120
_ALLOWED_PATHS = config.read_module_table(__file__, "edge_routes.toml")
_LOOPBACK_HOST_REGEX = (
    r"(localhost|[a-z0-9.-]*\.localhost|127\.[0-9]+\.[0-9]+\.[0-9]+|\[::1\]|\[::ffff:127\.[0-9.]+\])"
    r"(:[0-9]+)?"
)
_NO_ROUTE_MESSAGE = "no such route: the server answers OpenAI's and Anthropic's API"
_OWN_HOST_MESSAGE = (
    "without a key this server answers only http://127.0.0.1 on its own host: medley serve --api-key FILE"
)
_KEY_MESSAGE = "give the key: Authorization: Bearer KEY, or x-api-key: KEY; with both, the same in each"
_AUTHORIZATION_VALUE, _API_KEY_VALUE = (
    "{http.request.header.Authorization}",
    "{http.request.header.X-Api-Key}",
)
_TOO_LARGE_MESSAGE = f"the body is larger than {MAX_BODY_MIB} MiB"


class EdgeClosure(Value):
    """The reason why the edge refuses new requests, which clients get as a 503."""

    reason: str
    retry_after_s: int = RETRY_AFTER_S
    has_engine: bool = True
    """Whether the engine runs, so that /health is its answer."""


class Edge(Value):
    """The addresses, keys and limits of the edge of one server."""

    address: str
    port: int
    engine_socket: Path
    """The engine's socket."""
    folder: Path
    """The folder of the edge's configuration and its control socket; its mode is 0700."""
    keys: Mapping[str, str] | None = None
    """Each key by its name; None: no key is needed."""
    is_loopback: bool = True
    """Whether it listens on this host only; without a key it then answers only this host's programs."""
    tls: Tls | None = None
    origins: tuple[str, ...] = ()
    """Origins of web pages whose requests are allowed, as SCHEME://HOST[:PORT]."""

    @property
    def control_socket(self) -> Path:
        """The socket at which Caddy takes a new configuration; it shows the keys."""
        return self.folder / "control.sock"

    @property
    def upstream_address(self) -> str:
        return f"unix/{self.engine_socket}"

    def build_configuration(self, closure: EdgeClosure | None = None) -> dict[str, Any]:
        """Return Caddy's configuration; `closure`: new requests get 503, the running ones go on."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        server: dict[str, Any] = {
            "listen": [f"{host}:{self.port}"],
            # No HTTP/2: a connection that shakes hands while Caddy 2.11.7 takes a configuration keeps the old
            # one, with its revoked keys, and GET /health may stream a body there.
            "protocols": ["h1"],
            "read_header_timeout": f"{HEADER_LIMIT_S}s",
            # A client with a key may send a body slowly, or not at all. None of these limits ends every such
            # request: with Caddy 2.11.7 some ended after 10 s, and some were open after 40 s.
            "read_timeout": f"{BODY_LIMIT_S}s",
            "read_idle_timeout": f"{BODY_PAUSE_LIMIT_S}s",
            "read_min_rate": MIN_BODY_BYTES_PER_S,
            "write_idle_timeout": f"{WRITE_PAUSE_LIMIT_S}s",
            "idle_timeout": f"{CONNECTION_IDLE_LIMIT_S}s",
            "max_header_bytes": MAX_HEADER_BYTES,
            "strict_sni_host": False,
            "automatic_https": {"disable": True},
            "routes": list(self._list_routes(closure)),
            "errors": {"routes": [build_failure_route()]},
        }
        # Without a grace_period, so that streams outlive a change.
        apps: dict[str, Any] = {"http": {"servers": {"edge": server}}}
        if self.tls:
            apps |= _build_tls_apps(self.tls, server)
        storage = find_tls_folder() if self.tls else self.folder / "caddy"
        return {
            "admin": {"listen": f"unix/{self.control_socket}|0600", "config": {"persist": False}},
            "storage": {"module": "file_system", "root": str(storage)},
            "logging": {"logs": {"default": {"level": "WARN", "writer": {"output": "stderr"}}}},
            "apps": apps,
        }

    def _list_routes(self, closure: EdgeClosure | None) -> Iterator[Route]:
        yield {"handle": [_build_header_handler()]}
        yield from list_refusal_routes("400", "GET /health has no body", *_HEALTH_WITH_BODY_MATCHERS)
        yield self._build_health_route(closure)
        yield from self._list_origin_routes()
        yield from self._list_own_host_routes() if self.keys is None else self._list_key_routes(self.keys)
        yield from self._list_path_routes()
        if closure:
            yield from list_refusal_routes(
                "503",
                closure.reason,
                {"not": [_build_request_matcher("GET /metrics")]},
                retry_after_s=closure.retry_after_s,
            )
        yield from list_refusal_routes("413", _TOO_LARGE_MESSAGE, {"expression": _TOO_LARGE_EXPRESSION})
        yield {
            "handle": [
                {"handler": "rewrite", "uri": "{medley.path}?"},
                {"handler": "request_body", "max_size": MAX_BODY_MIB << 20},
                {"handler": "headers", "request": {"delete": ["Authorization", "X-Api-Key", "Cookie"]}},
                self._build_engine_handler(),
            ]
        }

    def _build_health_route(self, closure: EdgeClosure | None) -> Route:
        """Answer /health, which needs no key; its matcher takes //health and x/../health too.

        One with a body was refused before: a stranger could stream it to the engine (2.11.7 passes it on).
        """
        if closure and not closure.has_engine:
            handle = [build_error_handler("503", closure.reason, retry_after_s=closure.retry_after_s)]
        else:
            handle = [{"handler": "rewrite", "uri": "/health?"}, self._build_engine_handler()]
        return {
            "match": [_HEALTH_MATCHER],
            "handle": handle,
            "terminal": True,
        }

    def _list_own_host_routes(self) -> Iterator[Route]:
        """Refuse a browser that another site's page sends to this host, by any of its names."""
        if not self.is_loopback:
            return
        host = {"not": [{"header_regexp": {"Host": {"pattern": f"(?i)^{_LOOPBACK_HOST_REGEX}$"}}}]}
        yield from list_refusal_routes("421", _OWN_HOST_MESSAGE, host)
        own_origin = {"header_regexp": {"Origin": {"pattern": f"(?i)^https?://{_LOOPBACK_HOST_REGEX}$"}}}
        origin = {"header": {"Origin": ["*"]}, "not": [own_origin, *self._build_origin_matchers()]}
        site = {
            "header": {"Sec-Fetch-Site": ["cross-site", "same-site"]},
            "not": self._build_origin_matchers() or [_NEVER_MATCHER],
        }
        page = {
            "not": [
                {"header_regexp": {"Referer": {"pattern": f"(?i)^https?://{_LOOPBACK_HOST_REGEX}([/?#]|$)"}}}
            ]
        }
        referer = {
            "header": {"Referer": ["*"]},
            "not": [*page["not"], {"header": {"Sec-Fetch-Site": ["*"]}}, *self._build_origin_matchers()],
        }
        yield from list_refusal_routes("403", _OWN_HOST_MESSAGE, origin, site, referer)

    def _build_origin_matchers(self) -> list[Route]:
        return [{"header": {"Origin": list(self.origins)}}] if self.origins else []

    def _list_origin_routes(self) -> Iterator[Route]:
        """Allow requests of the origins: answer a browser's preflight, and set the CORS headers."""
        if not self.origins:
            return
        allow = {"Access-Control-Allow-Origin": ["{http.request.header.Origin}"], "Vary": ["Origin"]}
        yield {
            "match": self._build_origin_matchers(),
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
        for header, variable in (
            (_AUTHORIZATION_VALUE, "{medley.bearer}"),
            (_API_KEY_VALUE, "{medley.api_key}"),
        ):
            yield _build_map_route(header, variable, key_mappings)
        # Caddy uses only the first map of a destination, so a third map combines the two results.
        pairs = [
            {"input": pair, "outputs": [name]}
            for name in keys
            for pair in (f"{name}/", f"/{name}", f"{name}/{name}")
        ]
        yield _build_map_route("{medley.bearer}/{medley.api_key}", "{medley.key}", pairs)
        missing = {"vars": {"{medley.key}": ["-"]}}
        yield from list_refusal_routes("401", _KEY_MESSAGE, missing, has_challenge=True)

    def _list_path_routes(self) -> Iterator[Route]:
        """Replace the path by the equal entry of edge_routes.toml; refuse a request for any other path."""
        exact = [
            {"input": f"{method} {path}", "outputs": [path]}
            for method, paths in (("GET", _ALLOWED_PATHS["get"]), ("POST", _ALLOWED_PATHS["post"]))
            for path in paths
        ]
        items = [
            {"input_regexp": f"^GET {re.escape(path)}/({name})$", "outputs": [f"{path}/${{1}}"]}
            for path, name in _ALLOWED_PATHS["get_item"].items()
        ]
        yield _build_map_route(
            "{http.request.method} {http.request.uri.path}", "{medley.path}", [*exact, *items]
        )
        yield from list_refusal_routes("404", _NO_ROUTE_MESSAGE, {"vars": {"{medley.path}": ["-"]}})

    def _build_engine_handler(self) -> Route:
        return {
            "handler": "reverse_proxy",
            "upstreams": [{"dial": self.upstream_address}],
            "flush_interval": -1,
            "transport": {"protocol": "http", "compression": False},
        }


def list_accepted_keys(routes: Sequence[Route]) -> frozenset[str]:
    """Return the keys that the routes of a running configuration let in."""
    handlers = (handler for route in routes for handler in route.get("handle", ()))
    inputs = []
    for handler in handlers:
        if handler.get("source") == _AUTHORIZATION_VALUE:
            inputs += [mapping["input"] for mapping in handler["mappings"]]
    return frozenset(value for value in inputs if value and " " not in value)


_NEVER_MATCHER: Route = {"method": ["NEVER"]}
_HEALTH_MATCHER: Route = {"path": ["/health"], "method": ["GET", "HEAD"]}
_HEALTH_WITH_BODY_MATCHERS: tuple[Route, ...] = (
    {**_HEALTH_MATCHER, "header": {"Transfer-Encoding": ["*"]}},
    {**_HEALTH_MATCHER, "header": {"Content-Length": ["*"]}, "not": [{"header": {"Content-Length": ["0"]}}]},
)
_TOO_LARGE_EXPRESSION = (
    '{http.request.header.Content-Length}.matches("^[0-9]{1,18}$") && '
    f"int({{http.request.header.Content-Length}}) > {MAX_BODY_MIB << 20}"
)


def _build_request_matcher(request: str) -> Route:
    method, _, path = request.partition(" ")
    return {"method": [method], "vars": {"{medley.path}": [path]}}


def _build_map_route(source: str, destination: str, mappings: Sequence[Route]) -> Route:
    handler = {"handler": "map", "source": source, "destinations": [destination], "defaults": ["-"]}
    return {"handle": [{**handler, "mappings": list(mappings)}]}


def _build_header_handler() -> Route:
    """Return the handler that removes headers which clients must not send, or engines need not return."""
    return {
        "handler": "headers",
        "request": {"delete": ["Upgrade", "Connection", "Expect", "X-Forwarded-*", "X-Medley-*"]},
        "response": {"deferred": True, "delete": ["Via", "Server"]},
    }


def _build_tls_apps(tls: Tls, server: dict[str, Any]) -> dict[str, Any]:
    """Return Caddy's TLS apps, and set the TLS policies of `server`."""
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
