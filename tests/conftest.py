# First, because it changes what other modules see when they are imported.
from tests import caller  # isort: split

import gc
import os
import runpy
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from medley import process
from medley.__main__ import main
from medley.command import Command
from medley.process import Process
from medley.serving import readiness
from medley.transcript import Transcript
from tests import time_limit
from tests.servers import Served, Start
from tests.small_engine import environment
from tests.waiting import wait_for
from tools import durations

PROGRAM = Path(__file__).parent / "engine_program.py"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(caller, "caller")
    config.pluginmanager.register(time_limit, "time_limit")
    if file := os.environ.get(durations.VARIABLE):
        is_worker = hasattr(config, "workerinput")
        config.pluginmanager.register(durations.Recorder(Path(file), is_worker))
        if is_worker or not config.getoption("numprocesses", None):
            del os.environ[durations.VARIABLE]  # a test may start a run of its own


def pytest_collection_finish() -> None:
    """What the collected tests hold stays to the end: the garbage collector need not look there again."""
    gc.collect()
    gc.freeze()


class _HubVariables:
    """pytest's own; changed variables reach the hub's library too, which reads them when it is imported."""

    def __init__(self, own: pytest.MonkeyPatch) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def setenv(self, name: str, *words: str) -> None:
        self._own.setenv(name, *words)
        self._read_again(name)

    def delenv(self, name: str, **options: bool) -> None:
        self._own.delenv(name, **options)
        self._read_again(name)

    def _read_again(self, name: str) -> None:
        if name.startswith(("HF_", "HUGGING", "TRANSFORMERS_", "XDG_CACHE_HOME", "HOME")):
            for constant, value in runpy.run_path(str(constants.__file__)).items():
                if constant.isupper() and value != getattr(constants, constant, value):
                    self._own.setattr(constants, constant, value)


@pytest.fixture
def monkeypatch(monkeypatch: pytest.MonkeyPatch) -> _HubVariables:
    return _HubVariables(monkeypatch)


@pytest.fixture(params=["shared blobs", "blobs of each model"])
def cache_layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let the hub's library lay out its cache in both ways; return whether models share blobs."""
    shared: bool = request.param == "shared blobs"
    monkeypatch.setenv("HF_HUB_DISABLE_SHARED_BLOBS", str(int(not shared)))
    return shared


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run `medley WORDS` in this process; return the exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["medley", *words])
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            status = main()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture(scope="module")
def answers() -> dict[object, Transcript]:
    return {}


@pytest.fixture
def asked_once(answers: dict[object, Transcript], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask this host each question once for all tests of a module, which change nothing that it answers."""
    really = process.ask_host

    def ask(
        questions: Iterable[str], variables: Mapping[str, str] | None = None, **limit: float
    ) -> Transcript:
        asked = (tuple(questions), frozenset((variables or {}).items()))
        if asked not in answers:
            answers[asked] = really(asked[0], variables, **limit)
        return answers[asked]

    monkeypatch.setattr(process, "ask_host", ask)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def free_port() -> int:
    return unused_port()


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The base URL of a small real server; a parameter says how it behaves."""
    behaviour, port = getattr(request, "param", "well"), unused_port()
    engine = Process(Command((sys.executable, str(PROGRAM), str(port), behaviour)), lambda _: None)
    url = f"http://127.0.0.1:{port}/v1"
    try:
        wait_for(
            "the small server answers, or ends",
            lambda: readiness.request_probe_answer(url, "tiny") or engine.poll() is not None,
            60,
            state=lambda: list(engine.last_lines),
        )
        assert engine.poll() is None, list(engine.last_lines)
        yield url
    finally:
        engine.stop()


@pytest.fixture
def small_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let medley start the small engine as vLLM, in tests of what medley does around an engine."""
    monkeypatch.setenv("MEDLEY_CACHE", str(environment.cache()))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a command that serves; whatever is left at the end is ended."""
    started: list[Served] = []

    def run(command: Command) -> Served:
        started.append(Served(command.add_variables({"MEDLEY_STATE": str(tmp_path / "state")})))
        return started[-1]

    yield run
    for each in started:
        each.process.stop()
