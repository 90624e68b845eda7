"""Real Ray on the rack: two hosts are two nodes to it, and it stops because orphans are reaped."""

import re

import pytest

from medley.command import Command
from medley.environment import virtualenv
from tests.rack.conftest import Up
from tests.rack.host import Host
from tests.waiting import wait_for

pytestmark = pytest.mark.rack

PORT = "6379"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}
COMMON = ("--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats")


@pytest.fixture(scope="module")
def program() -> str:
    """Ray's own command, of the environment that this medley would use."""
    environment = virtualenv.find_environment("vllm-cpu")
    if environment is None:
        pytest.skip("no environment with Ray: medley env build vllm-cpu")
    return str(environment.programs / "ray")


def ray(host: Host, program: str, *words: str) -> str:
    finished = host.run(Command((program, *words), env=QUIET))
    text = "\n".join(finished.lines)
    assert finished.status == 0, text
    return text


def nodes(head: Host, program: str) -> int:
    """What `ray status` counts; for some seconds after the start it counts nothing."""
    said = ray(head, program, "status", f"--address={head.address}:{PORT}")
    return len(re.findall(r"^ 1 node_", said, re.MULTILINE))


def test_two_hosts_are_two_nodes_and_stop_ends_all(rack: Up, program: str) -> None:
    made = rack(2)
    one, two = made.hosts
    head = ("--head", f"--port={PORT}", f"--node-ip-address={one.address}", "--include-dashboard=false")
    ray(one, program, "start", *head, *COMMON)
    ray(two, program, "start", f"--address={one.address}:{PORT}", f"--node-ip-address={two.address}", *COMMON)
    wait_for("Ray counts two nodes", lambda: nodes(one, program) == 2, 60, state=lambda: nodes(one, program))
    assert two.path("/tmp/ray").is_dir()
    said = ray(two, program, "stop")
    # Where orphans stay as zombies, it waits for its grace period and stops only some.
    assert re.search(r"Stopped all \d+ Ray processes", said), said
