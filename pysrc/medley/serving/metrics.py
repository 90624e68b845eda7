"""Read the metrics of an engine (vLLM 0.32.0, SGLang 0.5.23)."""

import http.client
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from medley.host_schema import ENGINE_TABLES
from medley.network.socket_url import read_socket_url
from medley.schema import DEFAULT_ENGINE

if TYPE_CHECKING:
    from prometheus_client import Metric

_NAMES: Mapping[str, tuple[str, ...]] = {
    figure: tuple(table.metrics[figure] for table in ENGINE_TABLES.values())
    for figure in ENGINE_TABLES[DEFAULT_ENGINE].metrics
}
"""The engines' names of each figure, of which the first that is present counts."""
_SHARES = {"kv_cache"}
_RANKS = {"tp_rank", "pp_rank", "moe_ep_rank", "pid"}
"""Labels of ranks of one model, each of which reports the same queue."""
_LONGEST, _MOST_QUOTES = 10_000, 100
"""For each quote within a label the parser goes over its line again."""
_ODD = (ValueError, IndexError, OverflowError)
_LIMIT_S = 1.5
_MOST_BYTES = 8 << 20


def read(url: str) -> str:
    """Return the text of a server's /metrics. Raises OSError, HTTPException or ValueError."""
    status, text = get(url)
    if status == http.client.NOT_FOUND:
        raise ValueError("it has no /metrics (SGLang: --enable-metrics)")
    if status != http.client.OK:
        raise ValueError(f"its /metrics answers {status}")
    return text


def figures(url: str) -> dict[str, float]:
    """Return an engine's figures; none where it does not answer, or has none."""
    with suppress(OSError, http.client.HTTPException, ValueError):
        return engine_figures(read(url))
    return {}


def is_idle(url: str) -> bool:
    """Whether no request runs or waits; without metrics it is never known to be."""
    found = figures(url)
    return "running" in found and not (found["running"] or found.get("waiting"))


def get(url: str) -> tuple[int, str]:
    """Return status and text of the /metrics of the server with this URL, of a host or of a socket."""
    local, place = read_socket_url(url), urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "localhost", place.port, timeout=_LIMIT_S)
    try:
        if local:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(_LIMIT_S)
            connection.sock.connect(str(local[0]))
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES).decode(errors="replace")
    finally:
        connection.close()


def engine_figures(text: str) -> dict[str, float]:
    """Add up parallel engines; of a share take the highest."""
    wanted = tuple(name for names in _NAMES.values() for name in names)
    values: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in families(line for line in text.split("\n") if line.startswith(wanted)):
        for sample in family.samples:
            engine = frozenset(label for label in sample.labels.items() if label[0] not in _RANKS)
            of = values.setdefault(sample.name, {})
            of[engine] = max(of.get(engine, sample.value), sample.value)
    found = {}
    for figure, names in _NAMES.items():
        if known := next((values[name].values() for name in names if name in values), None):
            found[figure] = float(max(known) if figure in _SHARES else sum(known))
    return found


def families(lines: Iterable[str]) -> "list[Metric]":
    """Parse Prometheus' text format; leave out the lines that are not in it."""
    kept = [line for line in lines if len(line) <= _LONGEST and line.count('\\"') <= _MOST_QUOTES]
    try:
        return _parsed(kept)
    except _ODD:
        good = []
        for line in kept:
            with suppress(*_ODD):
                _parsed([line])
                good.append(line)
        return _parsed(good)


def _parsed(lines: Iterable[str]) -> "list[Metric]":
    from prometheus_client import parser  # noqa: PLC0415 - 0.1 s, only where an engine serves

    found = list(parser.text_string_to_metric_families("\n".join(lines)))
    for family in found:
        for sample in family.samples:
            float(sample.value)  # the parser takes whole numbers that are too large for a float
    return found
