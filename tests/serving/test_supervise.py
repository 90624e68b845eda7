import os
import sys
import threading
from pathlib import Path

import pytest

from medley.command import Command
from medley.engine.vllm import find_last_error, is_fatal
from medley.explain import explain_engine_end
from medley.process import ProcessResult
from medley.serving import readiness
from medley.serving.supervise import EngineRun, supervise
from tests.problems import raises_problem
from tests.waiting import wait_for

PROGRAM = Path(__file__).parents[1] / "engine_program.py"


class Watched:
    """One supervised run of the small engine."""

    def __init__(self, port: int, behaviour: str, limit_s: float = 20) -> None:
        self.lines: list[str] = []
        self.ready: list[str] = []
        self._command = Command((sys.executable, str(PROGRAM), str(port), behaviour))
        self._url = f"http://127.0.0.1:{port}/v1"
        self._limit_s = limit_s

    def run(self, *, end: bool = False) -> None:
        def ready(completion: str, _: float) -> None:
            self.ready.append(completion)
            if end:
                raise KeyboardInterrupt

        supervise(
            EngineRun(
                self._command,
                self._url,
                "tiny",
                self._limit_s,
                Path("serve.log"),
                self.lines.append,
                find_last_error,
                is_fatal,
            ),
            on_ready=ready,
        )


def test_ctrl_c_after_it_is_ready_leaves_nothing(free_port: int) -> None:
    watched = Watched(free_port, "well")
    with pytest.raises(KeyboardInterrupt):
        watched.run(end=True)
    assert watched.ready == [" ba lu"]
    assert watched.lines == ["starting"]
    assert readiness.request_probe_answer(f"http://127.0.0.1:{free_port}/v1", "tiny") is None
    assert not _children()


@pytest.mark.parametrize(
    ("behaviour", "status", "what", "cause"),
    [
        pytest.param("dies-at-start", 4, "code 4 ", "RuntimeError: Engine core", id="at once"),
        pytest.param("dies-at-first-request", 3, "code 3 ", "KeyError: 'cmpl-1'", id="at the first request"),
    ],
)
def test_an_engine_that_dies_is_a_problem(
    free_port: int, behaviour: str, status: int, what: str, cause: str
) -> None:
    with raises_problem(what, cause=cause, fix="less serve.log", status=status):
        Watched(free_port, behaviour).run()


def test_an_engine_that_dies_later_is_a_problem_too(free_port: int) -> None:
    watched = Watched(free_port, "well")

    def kill() -> None:
        wait_for("it is ready", lambda: watched.ready, 60)
        for pid in _children():
            os.kill(pid, 9)

    threading.Thread(target=kill).start()
    with raises_problem("137", cause="(SIGKILL)", fix="less serve.log", status=137):
        watched.run()


def test_a_line_that_says_all_is_lost_ends_an_engine_that_goes_on(free_port: int) -> None:
    watched = Watched(free_port, "loses-a-rank")
    with raises_problem("code 1", cause="RayWorkerProc rank=[1] died unexpectedly", fix="less serve.log"):
        watched.run()
    assert watched.ready
    assert not _children()


def test_an_engine_that_is_never_ready_is_ended(free_port: int) -> None:
    with raises_problem("tiny", "5 s", cause="starting", fix="--timeout 1800"):
        Watched(free_port, "never-ready", limit_s=5).run()
    assert not _children()


def test_a_quiet_end_is_still_a_failure() -> None:
    problem = explain_engine_end(
        ProcessResult(0, ()), ready=True, log=Path("x.log"), last_error=find_last_error
    )
    assert (problem.status, problem.cause) == (1, "it printed nothing")


def test_the_last_line_of_an_engine_that_was_killed_has_no_colors() -> None:
    problem = explain_engine_end(
        ProcessResult(137, ("\x1b[36m(RayWorkerProc)\x1b[0m INFO done",)),
        ready=True,
        log=Path("x.log"),
        last_error=find_last_error,
    )
    assert problem.cause.endswith("Its last line: (RayWorkerProc) INFO done")


def test_an_engine_core_that_was_killed_is_named() -> None:
    lines = (
        "(APIServer pid=9) ERROR 11-24 20:26:52 [serving.py:500] Error in completion stream generator.",
        "(APIServer pid=9) ERROR 11-24 20:26:52 [serving.py:500] EngineDeadError: EngineCore encountered …",
    )
    problem = explain_engine_end(
        ProcessResult(0, lines), ready=True, log=Path("x.log"), last_error=find_last_error
    )
    assert problem.cause.startswith("EngineCore ended without an error of its own")


def _children() -> list[int]:
    text = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in text.split() if "engine_program" in Path(f"/proc/{pid}/cmdline").read_text()]
