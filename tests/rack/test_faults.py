"""What happens to a cluster that serves: parts of Ray are killed, and all is as before without a hand."""

import json
import os
import re
from collections.abc import Iterator

import pytest

from tests.rack.desk import LINKS, Desk, process
from tests.rack.rack import up
from tests.rack.spec import Spec

pytestmark = pytest.mark.rack

SERVE = ("serve", "demo", "--detach", "--restart", "--pp", "2")
ASK = ("chat", "--max-tokens", "8", "--json", "Hello")


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """Two hosts that are up, and serve one model over both."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    with up(Spec(2, LINKS, name=f"pytest-{os.getpid()}-faults")) as rack:
        made = Desk.of(rack)
        made.done("up")
        made.done(*SERVE, limit_s=400)
        yield made


def answer(desk: Desk) -> str:
    return str(json.loads(desk.done(*ASK)[-1])["answer"])


def test_a_second_server_of_a_port_is_refused(desk: Desk) -> None:
    before = desk.states()["host1"]
    assert "(ready)" in before
    second = desk.type(*SERVE)
    assert second.status == 1
    assert any("is in use" in line or "is started already" in line for line in second.lines), second.lines
    memory = re.compile(r"[\d.]+ of [\d.]+")  # which other processes take and give back
    assert memory.sub("", desk.states()["host1"]) == memory.sub("", before)


def test_a_gcs_server_that_is_killed_ends_the_model_and_brings_it_back(desk: Desk) -> None:
    """It said that it was ready, and every chat hung."""
    first = answer(desk)
    desk.head.says("kill", "-KILL", str(process(desk.head, "gcs_server")))
    desk.become(lambda said: "(ready)" not in said["host1"], limit_s=30)
    desk.become(lambda said: "(ready)" in said["host1"], limit_s=300)
    assert answer(desk) == first


@pytest.mark.slow
def test_an_agent_of_ray_s_that_is_killed_costs_its_host_no_hand(desk: Desk) -> None:
    """Its raylet goes with it; `ray start --block` stayed, and the host was out until somebody came."""
    worker = desk.rack["host2"]
    raylet = process(worker, "raylet/raylet")
    worker.says("kill", "-KILL", str(process(worker, "DashboardAgent")))
    desk.become(lambda said: "(ready)" not in said["host1"], limit_s=120)
    desk.become(lambda said: "(ready)" in said["host1"], limit_s=300)
    desk.all_up()
    assert process(worker, "raylet/raylet") != raylet
    assert answer(desk)
