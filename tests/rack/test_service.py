"""A service under a real systemd: a user's manager stands in for the system's, of which there is none."""

import os
import sys
from pathlib import Path

import pytest

from medley.cluster import systemd
from medley.cluster.systemd import Service, SystemdState, select_service_variables
from medley.environment import virtualenv
from tests.rack import cluster
from tests.rack.conftest import Up
from tests.rack.host import Host
from tests.rack.systemd_manager import manager
from tests.waiting import wait_for

pytestmark = pytest.mark.rack

MEDLEY = str(Path(sys.executable).with_name("medley"))
ENV = select_service_variables(os.environ)
UNITS = "/tmp/home/.config/systemd/user"
SYSTEMS = ("User=", "WorkingDirectory=")
"""What a user's manager has no say in."""
UP_LIMIT_S = 120


def begin(host: Host, service: Service) -> None:
    kept = [line for line in service.text.splitlines() if not line.startswith(SYSTEMS)]
    folder = host.path(UNITS)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{service.name}.service").write_text("\n".join(kept) + "\n")
    host.says("systemctl", "--user", "daemon-reload")
    host.says("systemctl", "--user", "start", "--no-block", f"{service.name}.service")


def state(host: Host, name: str) -> SystemdState:
    asked = systemd.build_systemctl_command("show", f"{name}.service").argv
    found = systemd.parse_state(host.says(*asked))
    assert found
    return found


def joins(host: Host) -> None:
    """Wait until it takes part in a cluster, which is noted once Ray is up."""
    wait_for(
        f"{host.name} takes part in the cluster",
        lambda: host.path(f"{cluster.STATE}/ray.json").exists() and of_ray(host),
        UP_LIMIT_S,
        state=lambda: host.says("ps", "-eo", "pid,args"),
    )


def begins_again(host: Host, name: str, times: int) -> None:
    wait_for(
        f"{name} on {host.name} has restarted more than {times} times",
        lambda: state(host, name).restart_count > times,
        UP_LIMIT_S,
        state=lambda: state(host, name),
    )


def of_ray(host: Host) -> set[str]:
    said = (host.run(["pgrep", "-x", name]).lines for name in ("gcs_server", "raylet"))
    return {line for lines in said for line in lines if line.isdecimal()}


@pytest.mark.slow
def test_a_worker_waits_for_its_head_and_a_head_that_ends_begins_anew(rack: Up) -> None:
    if virtualenv.find_environment("vllm-cpu") is None:
        pytest.skip("no environment with Ray: medley env build vllm-cpu")
    one, two = rack(2).hosts
    with manager(one), manager(two):
        begin(two, Service("worker", ("host1", "--kind", "cpu"), "root", (MEDLEY,), ENV))
        begins_again(two, "medley-worker", 0)  # its head is not there yet
        begin(one, Service("head", ("--kind", "cpu"), "root", (MEDLEY,), ENV))
        joins(one)
        token = one.path(f"{cluster.STATE}/token").read_text()
        two.path(cluster.STATE).mkdir(parents=True, exist_ok=True)
        two.path(f"{cluster.STATE}/token").write_text(token)
        joins(two)

        before, tries = of_ray(one), state(two, "medley-worker").restart_count
        one.says("pkill", "-9", "gcs_server")
        begins_again(one, "medley-head", 0)
        joins(one)
        assert not of_ray(one) & before
        begins_again(two, "medley-worker", tries)  # it has lost its head
        joins(two)

        one.says("systemctl", "--user", "stop", "medley-head.service")
        assert of_ray(one) == set()
        assert not one.path(f"{cluster.STATE}/ray.json").exists()
        assert state(one, "medley-head").active_state == "inactive"


def test_who_is_not_root_is_told_the_whole_line(rack: Up) -> None:
    (one,) = rack(1).hosts
    # It reads the tree and Python, wherever they lie.
    reads = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    away = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *reads)
    finished = one.run([*away, "env", "HOME=/tmp", MEDLEY, "service", "install", "head"], folder="/tmp")
    assert finished.status == 1
    assert f"  fix:   sudo {MEDLEY} service install head" in finished.lines
