"""A rank on another host that is stopped: it is named, ended, and the model comes back without a hand."""

import json
import os
from collections.abc import Iterator

import pytest

from tests.rack.desk import LINKS, Desk, process
from tests.rack.rack import up
from tests.rack.spec import Spec

pytestmark = pytest.mark.rack

SERVE = ("serve", "demo", "--detach", "--restart", "--pp", "2", "--stall-limit", "20")


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """Two hosts that are up, and serve one model over both."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    with up(Spec(2, LINKS, name=f"pytest-{os.getpid()}-watchdog")) as rack:
        made = Desk.of(rack)
        made.done("up")
        made.done(*SERVE, limit_s=400)
        yield made


@pytest.mark.slow
def test_a_stopped_rank_of_another_host_is_named_and_the_model_comes_back(desk: Desk) -> None:
    rank = process(desk.rack["host2"], "RayWorkerProc")
    desk.rack["host2"].says("kill", "-STOP", str(rank))
    desk.become(lambda said: "(ready)" not in said["host1"], limit_s=120)
    desk.become(lambda said: "(ready)" in said["host1"], limit_s=300)
    assert json.loads(desk.done("chat", "--max-tokens", "8", "--json", "Hello")[-1])["answer"]
    report = desk.head.says("sh", "-c", "cat ~/.local/state/medley/logs/stuck-8000.log")
    assert f"(process {rank}) on host2" in report
    assert "is stopped" in report
