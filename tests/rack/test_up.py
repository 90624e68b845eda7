"""A cluster of hosts with real sshd, from one terminal: up, and back after whatever happens; down."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from medley.command import Command
from medley.process import run
from tests.rack import ssh
from tests.rack.cluster import MEDLEY
from tests.rack.conftest import Up
from tests.rack.rack import up
from tests.rack.spec import Spec
from tests.rack.ssh_cluster import LINKS, SshCluster, falls_still, kept, process, processes
from tests.rack.test_joining import other
from tests.waiting import wait_for

pytestmark = pytest.mark.rack

HANGS = "import socket; s = socket.create_server(('0.0.0.0', 22)); input() or 1"


@pytest.fixture(scope="module")
def desk() -> Iterator[SshCluster]:
    """Three hosts that were brought up once; each test leaves them up."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    with up(Spec(3, LINKS, name=f"pytest-{os.getpid()}-desk")) as rack:
        made = SshCluster.of(rack)
        lines = made.done("up")
        assert [line.split()[-1] for line in lines if line.startswith("host")] == ["up"] * 3, lines
        yield made


def test_up_again_changes_nothing(desk: SshCluster) -> None:
    before = [process(host, "raylet/raylet") for host in desk.rack.hosts]
    lines = desk.done("up", at="host3")
    assert sum("was up" in line for line in lines) == 3, lines
    assert [process(host, "raylet/raylet") for host in desk.rack.hosts] == before
    assert all("10.78.1." in row and "eth1" in row for row in desk.states().values())
    for host in desk.rack.hosts:
        assert host.path("/tmp/home/.local/state/medley/token").stat().st_mode & 0o777 == 0o600


def test_doctor_counts_ray_as_medleys_own_and_ends_no_other(desk: SshCluster, tmp_path: Path) -> None:
    """Agents of Ray hide their mark; to root outside, the hosts are containers with the same paths."""
    finished = desk.type("doctor", "--json")
    checks = json.loads(next(line for line in finished.lines if line.startswith("{")))["checks"]
    found = [each for each in checks if each["rule"] == "leftovers"]
    assert [each["state"] for each in found] == ["ok"] * 3, found
    before = [process(host, "raylet/raylet") for host in desk.rack.hosts]
    outside = Command(
        (*MEDLEY, "doctor", "--fix", "--yes", "--json"),
        {"HOME": str(tmp_path), "MEDLEY_STATE": "/tmp/home/.local/state/medley"},
    )
    lines = run(outside, limit_s=60).lines
    checks = json.loads(next(line for line in lines if line.startswith("{")))["checks"]
    found = [each["problem"] for each in checks if each["rule"] == "leftovers"]
    (problem,) = [each for each in found if "raylet" in each["what"]]
    assert "another state folder" in problem["cause"], found
    run(outside.replace(argv=(*MEDLEY, "ray-stop")), limit_s=60)
    assert [process(host, "raylet/raylet") for host in desk.rack.hosts] == before


def test_a_host_that_left_is_brought_back_alone(desk: SshCluster) -> None:
    desk.done("ray-stop", at="host2")
    head = process(desk.head, "gcs_server")
    found = desk.become("host2 is not up", lambda said: "up" not in said["host2"].split())
    assert "not in the cluster" in found["host2"]
    desk.done("up")
    desk.all_up()
    assert process(desk.head, "gcs_server") == head


def test_a_worker_that_is_killed_comes_back_by_itself(desk: SshCluster) -> None:
    worker = desk.rack["host2"]
    before = set(processes(worker, "raylet/raylet"))
    worker.says("kill", "-KILL", str(process(worker, "raylet/raylet")))
    desk.all_up_without("host2", "raylet/raylet", before)


def test_a_cut_is_told_from_an_end_and_mends_itself(desk: SshCluster) -> None:
    desk.rack.cut("fast", "host3")
    desk.become("host3 is not up", lambda said: "up" not in said["host3"].split(), limit_s=60)
    wait_for(
        "status says that host3 cannot reach host1",
        lambda: any("host3: it cannot reach host1" in line for line in desk.type("status").lines),
        60,
        state=lambda: desk.type("status").lines,
    )
    desk.rack.mend("fast", "host3")
    desk.all_up()


def test_a_head_that_is_killed_comes_back_with_all(desk: SshCluster) -> None:
    before = set(processes(desk.head, "gcs_server"))
    desk.head.says("kill", "-KILL", str(process(desk.head, "gcs_server")))
    desk.all_up_without("host1", "gcs_server", before, limit_s=180)
    wanted = "9 hosts are needed, and 3 are available"
    refused: list[str] = []

    def counts_three() -> bool:
        refused[:] = desk.type("serve", "demo", "--hosts", "9", at="host1").lines
        return any(wanted in line for line in refused)

    wait_for("the head counts three hosts again", counts_three, 60, state=lambda: refused)


def test_a_rebooted_worker_joins_by_itself(desk: SshCluster) -> None:
    desk.rack["host3"].kill()
    found = desk.become("host3 does not answer", lambda said: "does not answer" in said["host3"], limit_s=60)
    assert "up" in found["host2"].split()
    desk.rack = desk.rack.boot("host3")
    ssh.serve(desk.rack, desk.rack["host3"])
    resumed = desk.done("service", "start", at="host3")  # as its init does where there is no systemd
    assert "medley-ray" in " ".join(resumed)
    desk.all_up()


@pytest.mark.parametrize("file", ["ray.json", "units/medley-ray.json", "units/medley-ray.state"])
def test_a_half_written_file_is_set_right(desk: SshCluster, file: str) -> None:
    there = desk.rack["host2"].path(f"/tmp/home/.local/state/medley/{file}")
    there.write_text(there.read_text()[:20])
    desk.done("up")
    desk.all_up()


def test_logs_of_all_hosts_by_time(desk: SshCluster) -> None:
    lines = desk.done("logs", "-n", "5")
    assert {line.split()[0] for line in lines} == {"host1", "host2", "host3"}
    times = [line.split()[1] for line in lines]
    assert times == sorted(times)
    assert len(desk.done("logs", "host2", "-n", "2")) == 2
    followed = desk.begin("logs", "-f", "-n", "1", "host1", until="host1")
    desk.head.says("kill", "-INT", str(process(desk.head, "medley logs -f")))
    finished = followed.wait(20)
    assert finished
    assert finished.status == 128 + signal.SIGINT


def test_down_leaves_nothing_but_logs(desk: SshCluster) -> None:
    desk.done("down", at="host2")
    for host in desk.rack.hosts:
        falls_still(host)
        assert kept(host) == set()
        assert host.says("ss", "-Hltn").count(":24") == 0
    again = json.loads(desk.done("down", "--json")[-1])
    assert [each["ended"] for each in again["ended"].values()] == [0, 0, 0]
    desk.done("up")


def test_one_bad_host_hides_no_other(rack: Up) -> None:
    """One fault on each host: every one is named with its fix, and the two good ones are a cluster."""
    made = rack(Spec(9, LINKS))
    us = f'"{sys.executable}", "-m", "medley"'
    env = other("2.58.1", "3.11")
    desk = SshCluster.of(
        made,
        {
            "host5": f'medley = ["faketime", "-f", "+1h", {us}]',
            "host6": f'medley = ["env", "MEDLEY_STATE=/tmp/small/state", {us}]',
            "host7": f'medley = ["env", "MEDLEY_CONFIG={env}/config", "MEDLEY_CACHE={env}/cache", {us}]',
        },
    )
    for name in ("host3", "host4"):
        made[name].says("kill", str(process(made[name], "sshd: /")))
    made["host4"].start([sys.executable, "-c", HANGS.replace("input() or 1", "import time; time.sleep(600)")])
    made["host6"].says("mkdir", "/tmp/small")
    made["host6"].says("mount", "-t", "tmpfs", "-o", "size=8m", "small", "/tmp/small")
    made["host8"].drop(24_000, 24_999)
    listens = "import socket, time; s = socket.create_server(('0.0.0.0', 24001)); time.sleep(600)"
    made["host9"].start([sys.executable, "-c", listens])
    finished = desk.type("up")
    text = "\n".join(finished.lines)
    assert finished.status == 1, text
    for said in (
        "host3 cannot be reached",
        "host4 cannot be reached\n  cause: it does not answer (Connection timed out during banner exchange)",
        "the clock of host5 is off",
        "the disk of host6 is full",
        "this host (host7) and the head (host1) run different versions",
        "does not reach host8",
        "host9: port 24001 is taken",
    ):
        assert said in text, text
    states = {line.split()[0]: line.split()[-1] for line in finished.lines if line.startswith("host")}
    assert [states[f"host{number}"] for number in (1, 2)] == ["up", "up"]
    assert text.count("fix:") == 7, text
    without = [f"--without=host{number}" for number in range(3, 10)]
    assert sum("was up" in line for line in desk.done("up", *without)) == 2


@pytest.mark.parametrize("phase", ["check", "engine environments", "check ports", "Ray on"])
def test_ctrl_c_leaves_nothing(rack: Up, phase: str) -> None:
    desk = SshCluster.of(rack(Spec(2, LINKS)))
    running = desk.begin("up", until=phase)
    # The process that we hold is nsenter's; medley is below it, as it is below a terminal's shell.
    desk.head.says("kill", "-INT", str(process(desk.head, "medley up")))
    finished = running.wait(60)
    assert finished
    assert finished.status == 128 + signal.SIGINT, finished.lines
    for host in desk.rack.hosts:
        falls_still(host)


def test_after_a_crash_of_medley_itself_down_sets_it_right(rack: Up) -> None:
    desk = SshCluster.of(rack(Spec(2, LINKS)))
    desk.begin("up", until="Ray on")
    desk.head.says("kill", "-KILL", str(process(desk.head, "medley up")))
    desk.done("down")
    for host in desk.rack.hosts:
        falls_still(host)
        assert kept(host) == set()
