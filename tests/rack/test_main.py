"""The rack as a command."""

import os
import subprocess
import sys

import pytest

from tests.rack import running_racks
from tests.rack.conftest import Up
from tests.rack.rack import TREE

pytestmark = pytest.mark.rack


def test_the_command(rack: Up) -> None:
    name = f"command-{os.getpid()}"
    words = (sys.executable, "-m", "tests.rack")

    def say(*more: str, status: int = 0) -> str:
        done = subprocess.run(
            [*words, *more], cwd=TREE, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    rack(1)
    try:
        assert "10.78.1.2 fast" in say(
            "up", "2", "--name", name, "--link", "lan", "--cable", "fast:host1,host2:400"
        )
        assert "is up already" in say("up", "2", "--name", name, status=1)
        assert f"{name}: 2 of 2 hosts" in say("ls")
        assert say("x", "--name", name, "host2", "hostname") == "host2\n"
        assert "there is no host host9" in say("x", "--name", name, "host9", "true", status=1)
        assert say("x", "--name", name, "host2", "sh", "-c", "exit 3", status=3) == ""
    finally:
        assert say("down", "--name", name) == f"{name} is down\n"
    assert all(keeper.spec.name != name for keeper in running_racks.keepers())
    assert "is not up" in say("x", "--name", name, "host1", "true", status=1)
    assert "has not two ends" in say("up", "2", "--name", name, "--cable", "fast:host1", status=2)
