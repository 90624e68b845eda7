"""A real Prometheus scrapes a cluster, and knows every expression of the dashboard."""

import json
import urllib.parse
import urllib.request
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from medley import process
from medley.command import Command
from medley.measurement.monitor import web
from medley.network.free_port import find_free_port
from medley.process import Process
from tests.measurement.monitor.hosts import Replayed, cluster
from tests.measurement.monitor.test_metrics import EXPRESSIONS, everything
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.rack,
    pytest.mark.slow,
    pytest.mark.skipif(which("prometheus") is None, reason="needs Debian's prometheus"),
]


def test_what_is_scraped_has_no_fault(tmp_path: Path) -> None:
    """As promtool sees it, of our own names; of engines' it finds many."""
    (tmp_path / "metrics").write_text(everything())
    command = Command(("sh", "-c", f"promtool check metrics <{tmp_path / 'metrics'}"))
    finished = process.run(command, limit_s=20)
    assert [line for line in finished.lines if "medley_" in line or "error" in line] == []


def test_it_scrapes_and_every_expression_means_something(tmp_path: Path) -> None:
    with web.serve_page(web.parse_address(None), Replayed(cluster()), 2) as place:
        at = f"127.0.0.1:{find_free_port()}"
        target = f"{place.address}:{place.port}"
        job = {"job_name": "medley", "static_configs": [{"targets": [target]}]}
        config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))
        words = (f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data")
        process = Process(Command(("prometheus", *words, f"--web.listen-address={at}")), lambda _: None)
        try:
            wait_for(
                "Prometheus has scraped each host three times",
                lambda: len(asked(at, "count_over_time(medley_host_up[1m]) > 2")) >= 4,
                60,
                state=lambda: list(process.last_lines)[-5:],
            )
            assert [each["value"][1] for each in asked(at, 'up{job="medley"}')] == ["1"]
            for expression in EXPRESSIONS:
                meant = expression.replace("$host", ".*").replace("$__rate_interval", "1m")
                found = asked(at, meant)
                assert found or "> 0" in meant, expression
        finally:
            process.stop()


def asked(at: str, query: str) -> list[dict[str, Any]]:
    url = f"http://{at}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except ConnectionError:
        return []
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionError):
            return []
        raise
