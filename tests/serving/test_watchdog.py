"""An engine that is stuck is named within its limit, and one that works is not."""

import os
import platform
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from medley.command import Command
from medley.engine.vllm import find_last_error
from medley.environment.payload.process_stacks import HostReport, ProcessRow
from medley.errors import Problem
from medley.explain import explain_problem
from medley.process_identity import list_descendants
from medley.serving import server_records
from medley.serving.supervise import EngineRun, supervise
from medley.serving.watchdog import (
    HostQuery,
    ProcessSample,
    Watchdog,
    write_report,
)
from tests.problems import raises_problem
from tests.serving.simulated_time import NEVER, SimulatedTime

PROGRAM = Path(__file__).parents[1] / "engine_program.py"
LIMIT_S = 4.0


class Enough(Exception):  # noqa: N818 - no error
    """It has run for long enough."""


def watch(
    port: int, behaviour: str, *, for_s: float = 40, stop: bool = False, hosts: HostQuery = lambda **_: {}
) -> float:
    """Serve with a watchdog; return after how many seconds from its start it ended."""
    url = f"http://127.0.0.1:{port}/v1"
    ready: list[float] = []

    def on_ready(_: str, __: float) -> None:
        ready.append(time.monotonic())
        if stop:
            for each in list_descendants(os.getpid()):
                each.signal(signal.SIGSTOP)

    class Limit:
        """Ends the run some time after the engine was ready."""

        def check(self) -> None:
            if ready and time.monotonic() - ready[0] > for_s:
                raise Enough

    log = server_records.get_log_file("x")
    dog = Watchdog(url, "tiny", port, LIMIT_S, log, query_hosts=hosts)
    try:
        supervise(
            EngineRun(
                Command((sys.executable, str(PROGRAM), str(port), behaviour)),
                url,
                "tiny",
                20,
                log,
                lambda _: None,
                find_last_error,
            ),
            on_ready=on_ready,
            monitors=[Limit()],
            watchdog=dog,
        )
    finally:
        assert not [each for each in list_descendants(os.getpid()) if each.is_alive]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> SimulatedTime:
    made = SimulatedTime(LIMIT_S)
    made.install(monkeypatch)
    return made


def test_an_engine_that_answers_without_requests_of_others_is_no_alarm(free_port: int) -> None:
    with pytest.raises(Enough):
        watch(free_port, "well", for_s=2 * LIMIT_S)


def test_an_engine_that_answers_nothing_is_named(free_port: int) -> None:
    with raises_problem() as caught:
        watch(free_port, "hangs")
    # On a busy machine the look that is one too many comes later.
    limits = [re.search(r"(\d+) s\b", text) for text in (caught.value.what, caught.value.cause)]
    assert [int(each[1]) >= least for each, least in zip(limits, (3, 4), strict=True) if each] == [True, True]
    file = server_records.get_log_file(f"stuck-{free_port}")
    assert caught.value.what.startswith(f"the engine of tiny on port {free_port} is stuck")
    assert caught.value.fix.splitlines() == [
        "start it again, and by itself from then on: medley serve tiny --restart",
        f"what each rank does, by host: less {file}",
    ]
    report = file.read_text()
    assert re.search(r"(?m)^watchdog: nothing changed for \d+ s: it has no metrics\n", report)
    assert "MemAvailable" in report


def test_a_request_that_takes_twice_the_limit_is_no_alarm(free_port: int) -> None:
    with pytest.raises(Enough):
        watch(free_port, f"computes-{2.2 * LIMIT_S}", for_s=3 * LIMIT_S)


def test_the_alarm_comes_at_the_limit(simulated: SimulatedTime) -> None:
    assert LIMIT_S <= simulated.alarm(NEVER) <= 1.1 * LIMIT_S
    assert simulated.alarm() == NEVER, "it answers at once"


def test_work_on_a_host_that_answers_slowly_is_no_alarm(simulated: SimulatedTime) -> None:
    def busy(**_: bool) -> Mapping[str, Any]:
        found = {"far": there(simulated.now, row(1, simulated.now))}
        simulated.sleep(0.7 * LIMIT_S)
        return found

    assert simulated.alarm(2.4 * LIMIT_S, hosts=busy) == NEVER


def test_other_hosts_are_asked_less_often_while_they_work(simulated: SimulatedTime) -> None:
    """Each time costs them the start of a process or two: of a long prompt, that took half of its cores."""
    asked: list[float] = []

    def busy(**_: bool) -> Mapping[str, Any]:
        asked.append(simulated.now)
        simulated.sleep(0.1 * LIMIT_S)
        return {"far": there(simulated.now, row(1, simulated.now))}

    assert simulated.alarm(4.5 * LIMIT_S, hosts=busy) == NEVER
    # Twice at once from half the limit on, then every half of the limit at least.
    assert 5 <= len(asked) <= 2 + 4 / 0.4, asked


def test_a_host_that_does_not_answer_delays_the_alarm_to_twice_the_limit(simulated: SimulatedTime) -> None:
    assert simulated.alarm(1.6 * LIMIT_S, hosts=lambda **_: {"far": None}) == NEVER
    assert 2 * LIMIT_S <= simulated.alarm(NEVER, hosts=lambda **_: {"far": None}) <= 2.1 * LIMIT_S
    assert "far did not answer" in simulated.cause
    assert simulated.fix.startswith("look at far, which did not answer: ssh far uptime\n")


@pytest.mark.parametrize(
    ("host", "target"), [("far (10.0.0.2)", "far"), ("a;id (10.0.0.2)", "'a;id'"), ("$(id)", "'$(id)'")]
)
def test_a_silent_host_is_one_word_of_the_fix(simulated: SimulatedTime, host: str, target: str) -> None:
    simulated.alarm(NEVER, hosts=lambda **_: {host: None})
    assert f": ssh {target} uptime\n" in simulated.fix


def test_a_stopped_engine_is_named_and_ended(free_port: int) -> None:
    with pytest.raises(Problem) as caught:
        watch(free_port, "well", stop=True)
    assert "was stopped by a signal" in caught.value.cause
    assert f"on {platform.node()} (this host) is stopped" in caught.value.cause
    again, stacks = caught.value.fix.splitlines()
    assert "medley serve tiny --restart" in again
    assert f"look on {platform.node()} for" in again
    assert stacks == f"what each rank does, by host: less {server_records.get_log_file(f'stuck-{free_port}')}"
    assert "state T" in server_records.get_log_file(f"stuck-{free_port}").read_text()


def row(pid: int, cpu_s: float, state: str = "S") -> ProcessRow:
    return {"pid": pid, "name": f"rank{pid}", "state": state, "cpu_s": cpu_s, "wchan": ""}


def there(at_s: float, *rows: ProcessRow) -> HostReport:
    return {"at_s": at_s, "processes": rows}


def test_cores_are_counted_per_process_and_by_the_clock_of_its_host() -> None:
    first = ProcessSample(10, {"a": there(100, row(1, 5)), "b": there(0, row(1, 7))})
    last = ProcessSample(30, {"a": there(102, row(1, 6), row(2, 9)), "b": there(20, row(1, 7, "T"))})
    assert last.compute_used_cores(first) == {"rank1 (process 1) on a": 0.5, "rank1 (process 1) on b": 0}
    assert last.list_stopped_processes() == ["rank1 (process 1) on b"]


def test_a_process_that_waits_for_a_core_both_times_works() -> None:
    """On a busy host: its main thread is runnable, and has hardly any CPU time."""
    sleeps, runs = there(0, row(1, 5)), [there(at_s, row(1, 5, "R"), row(2, 5)) for at_s in (0, 10)]
    assert ProcessSample(10, {"a": runs[1]}).is_active_since(ProcessSample(0, {"a": runs[0]}))
    assert not ProcessSample(10, {"a": runs[1]}).is_active_since(ProcessSample(0, {"a": sleeps}))
    assert not ProcessSample(10, {"a": sleeps}).is_active_since(ProcessSample(0, {"a": runs[0]}))


def test_the_last_five_reports_are_kept() -> None:
    for number in range(7):
        write_report(8000, [f"number {number}"], {}, ["end"])
    folder = server_records.get_log_file("x").parent
    kept = sorted(folder.iterdir())
    assert [each.name for each in kept] == ["stuck-8000.log", *(f"stuck-8000.log.{n}" for n in range(1, 5))]
    assert [each.read_text().splitlines()[3][-1] for each in kept] == ["6", "5", "4", "3", "2"]


def test_a_stopped_rank_is_named_first_whatever_the_engine_said_and_the_others_wait_in() -> None:
    waits = '  File "/x/torch/distributed/distributed_c10d.py", line 3000 in all_reduce'
    ranks: list[ProcessRow] = [{**row(1, 5), "stack": waits}, {**row(2, 5, "T"), "stack": "none"}]
    saw = ["nothing changed for 20 s", "rank2 (process 2) on host2 is stopped"]
    last = ["INFO 11-21 08:01:33 [launcher.py:1] Application startup complete."]
    report = write_report(8000, saw, {"host2": there(0, *ranks)}, last)
    known = explain_problem(Problem("stuck", cause="", fix=""), report)
    assert known.cause.startswith("a rank is stopped")
    assert "rank2 (process 2) on host2" in known.cause
