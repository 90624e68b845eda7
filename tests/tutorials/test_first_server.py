"""docs/tutorials/first-server.md, typed command by command with the real engine on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from medley.command import Command
from tests.servers import Start
from tools.tutorials.pages import CHAT, TUTORIALS, difference, steps

pytestmark = pytest.mark.engine

SERVE = "medley serve smollm2"


def test_every_command_prints_what_the_page_shows(start: Start, free_port: int, tmp_path: Path) -> None:
    """What differs: the port, and that `medley` is this tree's, with a state of its own."""
    medley = f"{sys.executable} -m medley"
    variables = {**os.environ, "MEDLEY_STATE": str(tmp_path / "state")}
    typed = list(steps((TUTORIALS / "first-server.md").read_text()))
    assert [step.command for step in typed].count(SERVE) == 1
    for step in typed:
        if step.command == SERVE:
            served = start(Command((*medley.split(), "serve", "smollm2", "--port", str(free_port))))
            served.ready()
            printed = served.tail()
        else:
            line = step.command.replace(":8000", f":{free_port}").replace("medley chat", f"medley {CHAT}")
            done = subprocess.run(
                ["sh", "-c", line.replace("medley ", f"{medley} ", 1)],
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=True,
                timeout=120,
            )
            printed = done.stdout
        assert (found := difference(step.shown, printed.replace(f":{free_port}", ":8000"))) is None, found
    finished = served.process.wait(30)
    assert finished is not None
