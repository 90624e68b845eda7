"""Read the metrics of this host's engines (vLLM 0.32.0, SGLang 0.5.23) and of its Ray."""

import http.client
import time
from contextlib import suppress

from medley.cluster import membership, ray
from medley.cluster.remote import Server
from medley.errors import describe_error
from medley.measurement.monitor.sample import EngineSample, RaySample
from medley.network import ports
from medley.serving import metrics, server_records

_RAY_INTERVAL_S = 10
"""Ray's metrics have 300 kB, and to find its processes medley examines every process of the host."""
_RETRY_S = 10
"""The pause after a server did not answer, so that it does not delay the other servers."""


class EngineSampler:
    """Sampler of the engines and Ray on this host."""

    def __init__(self) -> None:
        self._ray: RaySample | None = None
        self._ray_at = float("-inf")
        self._failures: dict[str, tuple[float, str]] = {}

    def sample_engines(self, *, include_metrics: bool) -> tuple[EngineSample, ...]:
        """Sample each server; `include_metrics` adds the unchanged text of its metrics."""
        return tuple(
            self._sample_engine(server, include_metrics=include_metrics)
            for server in server_records.list_servers()
        )

    def _sample_engine(self, server: Server, *, include_metrics: bool) -> EngineSample:
        sample = EngineSample(server.model, server.url, server.state)
        if server.state != "ready":
            return sample
        failure_time, reason = self._failures.get(server.url, (float("-inf"), ""))
        if time.monotonic() < failure_time + _RETRY_S:
            return sample.replace(silent=reason)
        try:
            text = metrics.read_metrics(server.local_url)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._failures[server.url] = time.monotonic(), describe_error(error)
            return sample.replace(silent=describe_error(error))
        figures = metrics.parse_figures(text)
        reason_without_figures = None if figures else "its /metrics has none of the names that we know"
        return sample.replace(
            figures=figures, silent=reason_without_figures, said=text if include_metrics else None
        )

    def sample_ray(self) -> RaySample | None:
        if time.monotonic() >= self._ray_at + _RAY_INTERVAL_S:
            self._ray, self._ray_at = _read_ray(), time.monotonic()
        return self._ray


def _read_ray() -> RaySample | None:
    """Read the slots from Ray's own metrics; a slot is a GPU, or the CPU of a host without a GPU."""
    member = membership.read_membership()
    if member is None:
        return None
    alive = membership.find_membership() is not None
    counts: dict[str, float] = {}
    if alive:
        with suppress(OSError, http.client.HTTPException):
            status, text = metrics.fetch_metrics(f"http://{member.address}:{ports.RayPorts.metrics}")
            counts = ray.parse_slot_metrics(text) if status == http.client.OK else {}
    free, used = counts.get("AVAILABLE"), counts.get("USED")
    slots = free + used if free is not None and used is not None else None
    return RaySample(member.role, member.head, alive, member.interface, slots, used)
