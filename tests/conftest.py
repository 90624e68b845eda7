import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from medley import api, machine
from medley.command import Command
from tests.served import Served, Start

PROGRAM = Path(__file__).parent / "engine_program.py"


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def server(free_port: int, request: pytest.FixtureRequest) -> Iterator[str]:
    """The base URL of a small real server; a parameter says how it behaves."""
    behaviour = getattr(request, "param", "well")
    process = machine.Process(
        Command((sys.executable, str(PROGRAM), str(free_port), behaviour)), lambda _: None
    )
    url = f"http://127.0.0.1:{free_port}/v1"
    try:
        while not api.answered(url, "tiny"):
            assert process.wait(0.05) is None
        yield url
    finally:
        process.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a command that serves; whatever is left at the end is ended."""
    started: list[Served] = []

    def run(command: Command) -> Served:
        started.append(Served(command.with_env({"MEDLEY_STATE": str(tmp_path / "state")})))
        return started[-1]

    yield run
    for each in started:
        each.process.stop()
