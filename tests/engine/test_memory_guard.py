"""A server in a control group whose memory another process fills: it admits nothing, then ends by itself."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from medley.command import Command
from medley.host.memory_pressure import GIB
from medley.process_identity import list_descendants
from tests.engine.test_drain import health, until
from tests.memory_group import killed, limited
from tests.servers import Start, chat

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("small_engine")]

FILL = """
import sys, time
from medley.host.memory_pressure import read_memory
open(sys.argv[1], "w").write("0")
kept = []
while min(each.available for each in read_memory().states) > int(sys.argv[2]) << 20:
    kept.append(b"x" * (16 << 20))
print("full", flush=True)
time.sleep(600)
"""


@contextmanager
def filled(group: Path, left_mib: int) -> Iterator[None]:
    """Leave only so much memory in the group while the body runs."""
    words = [sys.executable, "-c", FILL, str(group / "cgroup.procs"), str(left_mib)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as filler:
        try:
            assert filler.stdout
            assert filler.stdout.readline() == b"full\n"
            yield
        finally:
            filler.kill()


def test_low_memory_closes_the_gate_and_critical_memory_ends_the_engine(
    start: Start, free_port: int, tmp_path: Path
) -> None:
    serve = (sys.executable, "-m", "medley", "serve", "demo", "--port", str(free_port))
    with limited(4 * GIB) as group:
        served = start(Command(("sh", "-c", f'echo 0 > {group}/cgroup.procs; exec "$@"', "sh", *serve)))
        url = served.ready()
        with filled(group, 400):  # of 4 GiB 512 MiB are low, 256 MiB are critical
            _, retry, reason = until({HTTPStatus.SERVICE_UNAVAILABLE}, served, url)
            assert retry == "10"
            assert "memory is low: " in reason
            assert "MiB of 4.0 GiB available on control group /medley-test-" in reason
            assert health(url) == HTTPStatus.OK
        until({HTTPStatus.OK}, served, url)
        assert chat(url)["usage"]["completion_tokens"] == 16

        family = list_descendants(served.process.pid)
        with filled(group, 150):
            finished = served.process.wait(30)
        assert finished is not None, served.tail()
        assert finished.status == 1
        assert [each for each in family if each.is_alive] == []
        assert killed(group) == 0
    said = served.tail()
    assert f"medley ended demo on port {free_port} before this host's memory ran out" in said
    assert "largest processes: " in said
    events = [json.loads(line) for line in (tmp_path / "state" / "events.jsonl").read_text().splitlines()]
    assert [each["kind"] for each in events][:4] == ["start", "ready", "fault", "recovery"]
