"""Real Ray on the rack: two hosts are two nodes to it, and it stops at once because orphans are reaped."""

import re
import time

import pytest

from medley.command import Command
from medley.environment import virtualenv
from tests.rack.conftest import Up
from tests.rack.host import Host

pytestmark = pytest.mark.rack

PORT = "6379"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}
COMMON = ("--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats")


@pytest.fixture(scope="module")
def program() -> str:
    """Ray's own command, of the environment that this medley would use."""
    environment = virtualenv.find("vllm-cpu")
    if environment is None:
        pytest.skip("no environment with Ray: medley env build vllm-cpu")
    return str(environment.programs / "ray")


def ray(host: Host, program: str, *words: str) -> str:
    finished = host.run(Command((program, *words), env=QUIET))
    text = "\n".join(finished.lines)
    assert finished.status == 0, text
    return text


def nodes(head: Host, program: str, limit_s: float = 20) -> int:
    """What `ray status` counts; for some seconds after the start it counts nothing."""
    deadline = time.monotonic() + limit_s
    while True:
        said = ray(head, program, "status", f"--address={head.address}:{PORT}")
        count = len(re.findall(r"^ 1 node_", said, re.MULTILINE))
        if count >= 2 or time.monotonic() > deadline:
            return count
        time.sleep(0.5)


def test_two_hosts_are_two_nodes_and_stop_is_quick(rack: Up, program: str) -> None:
    made = rack(2)
    one, two = made.hosts
    head = ("--head", f"--port={PORT}", f"--node-ip-address={one.address}", "--include-dashboard=false")
    ray(one, program, "start", *head, *COMMON)
    ray(two, program, "start", f"--address={one.address}:{PORT}", f"--node-ip-address={two.address}", *COMMON)
    assert nodes(one, program) == 2
    assert two.path("/tmp/ray").is_dir()
    begin = time.monotonic()
    said = ray(two, program, "stop")
    assert time.monotonic() - begin < 10, said
    assert re.search(r"Stopped all \d+ Ray processes", said), said
