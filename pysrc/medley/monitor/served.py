"""What this host serves and its part in Ray, asked of them over its own loopback."""

import http.client
import time
from pathlib import Path
from urllib.parse import urlsplit

from medley import api, membership, ray, serving
from medley.api_key import read
from medley.monitor import engine, exposition
from medley.monitor.sample import Engine, Ray
from medley.problem import Problem, in_words
from medley.serving import Server

_LIMIT_S = 1.5
_RAY_EVERY_S = 10
"""Its metrics are 300 kB, and to know its processes takes a look at every one of the host."""
_AGAIN_S = 10
"""After one that did not answer, so that it does not hold up the rest."""
_MOST_BYTES = 8 << 20


class Served:
    def __init__(self) -> None:
        self._ray: Ray | None = None
        self._ray_at = float("-inf")
        self._silent: dict[str, tuple[float, str]] = {}

    def engines(self, *, whole: bool) -> tuple[Engine, ...]:
        """`whole`: with their metrics as they are."""
        return tuple(self._engine(server, whole=whole) for server in serving.servers())

    def _engine(self, server: Server, *, whole: bool) -> Engine:
        found = Engine(server.model, server.url, server.state)
        if server.state != "ready":
            return found
        at, why = self._silent.get(server.url, (float("-inf"), ""))
        if time.monotonic() < at + _AGAIN_S:
            return Engine(server.model, server.url, server.state, silent=why)
        try:
            text = _metrics(server)
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = in_words(error)
            self._silent[server.url] = time.monotonic(), why
            return Engine(server.model, server.url, server.state, silent=why)
        figures = engine.figures(exposition.families(text))
        silent = None if figures else "its /metrics has none of the names that we know"
        return Engine(server.model, server.url, server.state, figures, silent, text if whole else None)

    def ray(self) -> Ray | None:
        if time.monotonic() >= self._ray_at + _RAY_EVERY_S:
            self._ray, self._ray_at = _ray(), time.monotonic()
        return self._ray


def _metrics(server: Server) -> str:
    """With the key: the guard closes them as it closes every route but /health."""
    place = urlsplit(server.url)
    headers = {}
    if server.key:
        key = read(Path(server.key))
        try:
            api.require_guarded(server.url, key)
        except Problem as problem:
            raise ValueError(problem.what) from problem
        headers = {"Authorization": f"Bearer {key}"}
    status, text = _got(place.hostname or "127.0.0.1", place.port or 80, headers)
    if status == http.client.NOT_FOUND:
        raise ValueError("it has no /metrics (SGLang: --enable-metrics)")
    if status != http.client.OK:
        raise ValueError(f"its /metrics answers {status}")
    return text


def _got(host: str, port: int, headers: dict[str, str]) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=_LIMIT_S)
    try:
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES).decode(errors="replace")
    finally:
        connection.close()


def _ray() -> Ray | None:
    """Slots as Ray's own metrics have them: GPUs, one of which stands for the CPU where there is none."""
    found = membership.last()
    if found is None:
        return None
    alive = membership.noted() is not None
    counts: dict[str, float] = {}
    if alive:
        try:
            status, text = _got(found.address, ray.Ports().metrics, {})
            counts = ray.slots(text) if status == http.client.OK else {}
        except (OSError, http.client.HTTPException):
            pass
    free, taken = counts.get("AVAILABLE"), counts.get("USED")
    slots = free + taken if free is not None and taken is not None else None
    return Ray(found.role, found.head, alive, found.interface, slots, taken)
