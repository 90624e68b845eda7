"""The remote side serves for its time and no longer; small programs stand in for the tools."""

import os
import time
from pathlib import Path

import pytest

from medley import process
from medley.measurement.link.measure import find_endpoint, measure_rdma, require_programs, serve_link_test
from medley.measurement.link.tools import Adapter
from medley.progress import SilentProgress
from tests.measurement.link.test_tools import BANDWIDTH, LATENCY
from tests.network import networks
from tests.problems import raises_problem

ROCE = Adapter("rocep1s0f0", 1, 3)


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs, before the real ones on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def write_program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_it_serves_for_its_time_and_a_server_for_one_client_again(tools: Path) -> None:
    write_program(tools, "iperf3", f"echo $$ >>{tools}/pids; exec sleep 60")
    write_program(
        tools, "ib_write_bw", f"echo $$ >>{tools}/pids; echo bw >>{tools}/log; echo no memory; exit 3"
    )
    write_program(tools, "ib_write_lat", f"echo $$ >>{tools}/pids; echo lat >>{tools}/log; exec sleep 60")
    ready: list[float] = []
    notes = Notes()
    start = time.monotonic()
    serve_link_test(
        find_endpoint(networks.spark(1), None),
        ROCE,
        limit_s=3,
        on_ready=lambda: ready.append(time.monotonic() - start),
        progress=notes,
    )
    assert 3 <= time.monotonic() - start < 40, "its programs would go on for a minute"
    assert len(ready) == 1
    assert notes.notes == ["ib_write_bw ended with 3: no memory"]
    programs = (tools / "log").read_text().split()
    assert programs.count("lat") == 1
    assert programs.count("bw") >= 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in (tools / "pids").read_text().split())


def test_a_server_that_ends_is_a_problem(tools: Path) -> None:
    write_program(tools, "iperf3", "echo unable to start listener: Address already in use; exit 1")
    with raises_problem(
        "iperf3", "192.168.100.1:5201", cause="Address already in use", fix="sudo ss -ltnp 'sport = :5201'"
    ):
        serve_link_test(
            find_endpoint(networks.spark(1), None),
            None,
            limit_s=5,
            on_ready=lambda: pytest.fail("ready"),
        )


def test_rdma_is_measured(tools: Path) -> None:
    for name, text in (("ib_write_bw", BANDWIDTH), ("ib_write_lat", LATENCY)):
        (tools / f"{name}.txt").write_text(text)
        write_program(tools, name, f'echo "$0 $*" >>{tools}/log; cat {tools}/{name}.txt')
    rdma = measure_rdma(ROCE, "10.0.0.2")
    assert (rdma.device, round(rdma.mbit), rdma.latency_us) == ("rocep1s0f0", 98_020, 7.04)
    assert all(line.endswith(" 10.0.0.2") for line in (tools / "log").read_text().splitlines())


def test_what_is_missing_is_said_before_anything_runs(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tools))
    write_program(tools, "ping", "")
    with raises_problem("iperf3", "ib_write_bw", fix="sudo apt-get install iperf3 perftest"):
        require_programs(("ping", "iperf3", "ib_write_bw"))
    assert process.find_program("ping") == str(tools / "ping")
