"""Read the metrics of this host's engines (vLLM 0.32.0, SGLang 0.5.23) and of its Ray."""

import http.client
import time
from contextlib import suppress
from dataclasses import replace

from medley import serving
from medley.cluster import membership, ray
from medley.cluster.remote import Server
from medley.errors import in_words
from medley.measurement.monitor import EngineSample, Ray
from medley.network import ports
from medley.serving import metrics

_RAY_EVERY_S = 10
"""Its metrics are 300 kB, and to know its processes takes a look at every one of the host."""
_RETRY_S = 10
"""After one that did not answer, so that it does not hold up the rest."""


class ServedMetrics:
    def __init__(self) -> None:
        self._ray: Ray | None = None
        self._ray_at = float("-inf")
        self._silent: dict[str, tuple[float, str]] = {}

    def engines(self, *, whole: bool) -> tuple[EngineSample, ...]:
        """`whole`: with their metrics as they are."""
        return tuple(self._engine(server, whole=whole) for server in serving.servers())

    def _engine(self, server: Server, *, whole: bool) -> EngineSample:
        found = EngineSample(server.model, server.url, server.state)
        if server.state != "ready":
            return found
        at, why = self._silent.get(server.url, (float("-inf"), ""))
        if time.monotonic() < at + _RETRY_S:
            return replace(found, silent=why)
        try:
            text = metrics.read(server.local_url)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._silent[server.url] = time.monotonic(), in_words(error)
            return replace(found, silent=in_words(error))
        figures = metrics.engine_figures(text)
        silent = None if figures else "its /metrics has none of the names that we know"
        return replace(found, figures=figures, silent=silent, said=text if whole else None)

    def ray(self) -> Ray | None:
        if time.monotonic() >= self._ray_at + _RAY_EVERY_S:
            self._ray, self._ray_at = _ray(), time.monotonic()
        return self._ray


def _ray() -> Ray | None:
    """Slots as Ray's own metrics have them: GPUs, one of which stands for the CPU where there is none."""
    found = membership.last()
    if found is None:
        return None
    alive = membership.noted() is not None
    counts: dict[str, float] = {}
    if alive:
        with suppress(OSError, http.client.HTTPException):
            status, text = metrics.get(f"http://{found.address}:{ports.RayPorts.metrics}")
            counts = ray.slots(text) if status == http.client.OK else {}
    free, taken = counts.get("AVAILABLE"), counts.get("USED")
    slots = free + taken if free is not None and taken is not None else None
    return Ray(found.role, found.head, alive, found.interface, slots, taken)
