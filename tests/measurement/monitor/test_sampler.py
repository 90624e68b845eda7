"""This host looked at, over a tree of files made as the kernel makes it, and this very host."""

import os
import sys
from pathlib import Path

import psutil
import pytest

from medley import storage
from medley.cli.agent import requests
from medley.engine.server_spec import ServerSpec
from medley.measurement.monitor import gpu
from medley.measurement.monitor.gpu import GpuSampler
from medley.measurement.monitor.sample import GpuSample, Sample
from medley.measurement.monitor.sampler import HostSampler, parse_retransmits
from medley.serving import server_records
from tests.measurement.monitor.hosts import METRICS
from tests.waiting import wait_for
from tests.web_server import answering

PORT = "class/infiniband/rocep1s0f0/ports/1"
SMI = """#!{python}
import sys, time
if "power.limit" in sys.argv[1] and {old}:
    print('Field "power.limit" is not a valid field to query.')
    sys.exit(2)
while True:
    for nth in range(2):
        print(nth, "NVIDIA RTX", 50, 1000, 500, 40, 100, *([300, 1000, 2000, "0x4"] if not {old} else []), sep=", ", flush=True)
    time.sleep(0.1)
"""  # noqa: E501


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def test_a_link_has_the_kind_that_the_facts_give_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(
        tmp_path,
        {
            "proc/net/dev": f"head\nhead\nhe-ipv6: {' 0' * 16}\nhome: {' 0' * 16}",
            "sys/class/net/he-ipv6/type": "776",
            "sys/class/net/home/type": "65534",
        },
    )
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(root / "proc"))
    assert {each.name: each.kind for each in HostSampler(2, root / "sys")._sample_links()} == {  # noqa: SLF001 - a sample needs all of /proc
        "he-ipv6": "tunnel",
        "home": "tunnel",
    }


def test_ports_count_bytes_and_know_their_state(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            f"{PORT}/state": "4: ACTIVE",
            f"{PORT}/rate": "200 Gb/sec (4X HDR)",
            f"{PORT}/counters/port_rcv_data": "1000",
            f"{PORT}/counters/port_xmit_data": "18446744073709551615",
            f"{PORT}/counters/symbol_error": "7",
            f"{PORT}/counters/port_rcv_packets": "5",
            f"{PORT}/hw_counters/out_of_sequence": "3",
            f"{PORT}/hw_counters/lifespan": "12",
        },
    )
    (port,) = HostSampler(2, root).sample().ports
    assert (port.name, port.up, port.mbit) == ("rocep1s0f0/1", True, 200_000)
    words = 18446744073709551615
    assert port.counters == {"rx_bytes": 4000, "tx_bytes": 4 * words, "symbol_error": 7, "out_of_sequence": 3}


def test_a_jetson_has_its_gpu_in_files(tmp_path: Path) -> None:
    files = {
        gpu.LOAD_FILE: "453",
        "class/thermal/thermal_zone0/type": "cpu-thermal",
        "class/thermal/thermal_zone1/type": "gpu-thermal",
        "class/thermal/thermal_zone1/temp": "56500",
        "class/devfreq/17000000.gpu/cur_freq": "1300500000",
        "class/devfreq/17000000.gpu/max_freq": "1300500000",
    }
    gpus, problem = GpuSampler(2, write(tmp_path, files)).read_samples()
    assert gpus == (
        GpuSample(0, "integrated GPU", 0.453, temperature_c=56.5, clock_mhz=1300.5, clock_most_mhz=1300.5),
    )
    assert problem is None


@pytest.mark.parametrize("old", [False, True], ids=["all fields", "a driver that refuses one"])
def test_nvidia_smi_goes_on_telling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, old: bool) -> None:
    """A program in its place that prints as it does; a real one was not at hand."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI.format(python=sys.executable, old=old))
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    sampler = GpuSampler(1, tmp_path)
    try:
        wait_for("two GPUs are seen", lambda: len(sampler.read_samples()[0]) == 2, state=sampler.read_samples)
        gpus = sampler.read_samples()[0]
    finally:
        sampler.stop()
    assert [gpu.index for gpu in gpus] == [0, 1]
    assert gpus[0].held_back == (() if old else ("power cap",))


def test_this_host() -> None:
    sample = Sample.from_table(requests.answer_request("sample", {"every_s": 2, "whole": False}, print))
    assert sample.cpu.threads == os.cpu_count()
    assert 0 < sample.memory.available_bytes < sample.memory.total_bytes
    assert "lo" not in {link.name for link in sample.links}


def test_retransmits() -> None:
    assert parse_retransmits("Ip: a b\nIp: 1 2\nTcp: RtoMin RetransSegs InErrs\nTcp: 1 292 0\n") == 292
    assert parse_retransmits("Ip: a b\n") is None


@pytest.fixture
def served(tmp_path: Path) -> ServerSpec:
    return ServerSpec("m", "m", socket_folder=storage.make_private_folder(tmp_path / "sockets"))


def test_an_engine_is_asked_at_its_socket(served: ServerSpec) -> None:
    text = (METRICS / "vllm.txt").read_bytes()
    with (
        answering({"/metrics": text}, served.socket) as server,
        server_records.record_server(served, "ready"),
    ):
        (engine,) = HostSampler(2).sample(include_metrics=True).engines
        assert server.asked == [("/metrics", None, None)]
    assert engine.figures["generated_tokens_total"] == 28
    assert engine.said == text.decode()
    with server_records.record_server(served, "ready"):
        assert "refused" in str(HostSampler(2).sample().engines[0].silent)


def test_an_engine_without_metrics_says_so_and_is_not_asked_at_each_look(served: ServerSpec) -> None:
    with answering({}, served.socket) as server, server_records.record_server(served, "ready"):
        sampler = HostSampler(2)
        (engine,) = sampler.sample().engines
        assert sampler.sample().engines == (engine,)
        assert len(server.asked) == 1
    assert engine.silent == "it has no /metrics (SGLang: --enable-metrics)"
