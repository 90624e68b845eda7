"""Nothing of a rack is left, however it ends."""

import json
import os
import signal
import subprocess
import sys

import pytest

from medley import process
from medley.command import Command
from medley.process_identity import list_descendants
from tests.rack import cgroup
from tests.rack.conftest import Up
from tests.rack.host import running
from tests.rack.rack import TREE
from tests.waiting import wait_for

pytestmark = pytest.mark.rack


@pytest.mark.usefixtures("rack")
def test_twenty_racks_leave_nothing() -> None:
    world = ("unshare", "--mount", "--net", sys.executable, "-m", "tests.rack.leaks", "20")
    finished = process.run(Command(world, env={"PYTHONPATH": str(TREE)}), limit_s=60)
    said = json.loads(finished.lines[-1])
    assert said["made"] >= 5
    assert said["while it was up"] == ["children", "groups"], "it was seen, where it can be seen at all"
    assert [name for name, things in said["left"].items() if things] == [], said["left"]


OWNER = """
import time
from tests.rack.rack import up
from tests.rack.spec import Spec
print(up(Spec(2, name="owned")).keeper, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("victim", ["owner", "keeper"])
def test_whoever_is_killed_nothing_is_left(rack: Up, victim: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env={**os.environ, "PYTHONPATH": str(TREE)},
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        keeper = int(owner.stdout.readline())
        family = {keeper, *(each.pid for each in list_descendants(keeper))}
        assert len(family) == 5
        os.kill(keeper if victim == "keeper" else owner.pid, signal.SIGKILL)
        wait_for(
            "no process of the rack is left",
            lambda: not any(map(running, family)),
            state=lambda: list(filter(running, family)),
        )
        owner.kill()
    rack(1)  # sweeps
    wait_for(
        "no control group of the rack is left",
        lambda: all(pid != keeper for pid, _ in cgroup.left({0})),
        state=lambda: cgroup.left({0}),
    )
