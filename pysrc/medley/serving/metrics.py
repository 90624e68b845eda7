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

_METRIC_NAMES: Mapping[str, tuple[str, ...]] = {
    figure: tuple(table.metrics[figure] for table in ENGINE_TABLES.values())
    for figure in ENGINE_TABLES[DEFAULT_ENGINE].metrics
}
"""The engines' names of each figure; the first one that is present counts."""
_SHARE_FIGURES = {"kv_cache"}
_RANK_LABELS = {"tp_rank", "pp_rank", "moe_ep_rank", "pid"}
"""Labels of the ranks of one model, which all report the same queue."""
_MAX_LINE_CHARS, _MAX_QUOTES = 10_000, 100
"""Characters and quotes per line: the parser reads a line again for each quote within a label."""
_PARSE_ERRORS = (ValueError, IndexError, OverflowError)
_ANSWER_LIMIT_S = 1.5
_MAX_ANSWER_BYTES = 8 << 20


def read_metrics(url: str) -> str:
    """Return the text of a server's /metrics; raise OSError, HTTPException or ValueError without one."""
    status, text = fetch_metrics(url)
    if status == http.client.NOT_FOUND:
        raise ValueError("it has no /metrics (SGLang: --enable-metrics)")
    if status != http.client.OK:
        raise ValueError(f"its /metrics answers {status}")
    return text


def read_figures(url: str) -> dict[str, float]:
    """Return an engine's figures by name; empty if it does not answer, or has none."""
    with suppress(OSError, http.client.HTTPException, ValueError):
        return parse_figures(read_metrics(url))
    return {}


def is_idle(url: str) -> bool:
    """Return whether no request runs or waits; False without metrics."""
    current = read_figures(url)
    return "running" in current and not (current["running"] or current.get("waiting"))


def fetch_metrics(url: str) -> tuple[int, str]:
    """Return status and text of a server's /metrics; the URL names a host or a socket."""
    socket_parts, address = read_socket_url(url), urlsplit(url)
    connection = http.client.HTTPConnection(
        address.hostname or "localhost", address.port, timeout=_ANSWER_LIMIT_S
    )
    try:
        if socket_parts:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(_ANSWER_LIMIT_S)
            connection.sock.connect(str(socket_parts[0]))
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        return answer.status, answer.read(_MAX_ANSWER_BYTES).decode(errors="replace")
    finally:
        connection.close()


def parse_figures(text: str) -> dict[str, float]:
    """Return the figures in a text of metrics: sums over parallel engines, and the highest of a share."""
    prefixes = tuple(name for names in _METRIC_NAMES.values() for name in names)
    values: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in parse_families(line for line in text.split("\n") if line.startswith(prefixes)):
        for sample in family.samples:
            engine = frozenset(label for label in sample.labels.items() if label[0] not in _RANK_LABELS)
            by_engine = values.setdefault(sample.name, {})
            by_engine[engine] = max(by_engine.get(engine, sample.value), sample.value)
    totals = {}
    for figure, names in _METRIC_NAMES.items():
        if engine_values := next((values[name].values() for name in names if name in values), None):
            totals[figure] = float(max(engine_values) if figure in _SHARE_FIGURES else sum(engine_values))
    return totals


def parse_families(lines: Iterable[str]) -> "list[Metric]":
    """Return the metrics in Prometheus' text format, without lines that the parser refuses."""
    short_lines = [
        line for line in lines if len(line) <= _MAX_LINE_CHARS and line.count('\\"') <= _MAX_QUOTES
    ]
    try:
        return _parse_lines(short_lines)
    except _PARSE_ERRORS:
        valid_lines = []
        for line in short_lines:
            with suppress(*_PARSE_ERRORS):
                _parse_lines([line])
                valid_lines.append(line)
        return _parse_lines(valid_lines)


def _parse_lines(lines: Iterable[str]) -> "list[Metric]":
    from prometheus_client import parser  # noqa: PLC0415 - 0.1 s, only where an engine serves

    parsed = list(parser.text_string_to_metric_families("\n".join(lines)))
    for family in parsed:
        for sample in family.samples:
            float(sample.value)  # the parser takes whole numbers that are too large for a float
    return parsed
