"""Runs of a benchmark, by a small program that behaves as an engine's client does."""

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from medley.command import Command
from medley.errors import Problem
from medley.measurement.bench import record
from medley.measurement.bench.clients import ServedModel
from medley.measurement.bench.load import BenchLoad, BenchRun
from medley.measurement.bench.run import Runner, measure_server
from medley.measurement.bench.target import BenchTarget, require_context_room
from medley.process_identity import list_descendants
from medley.progress import SILENT, SilentProgress
from tests.measurement.bench.benches import FILES
from tests.problems import raises_problem
from tests.waiting import wait_for

RUN = BenchRun(4, 8, 32, 16, 7, 1)
LOAD = BenchLoad((1, 4), repeats=1, input_tokens=32, output_tokens=16, seed=7, requests=8)
# It writes what vLLM's benchmark wrote here, or does what its second argument says.
PROGRAM = f"""
import shutil, subprocess, sys, time
result, how = sys.argv[1:]
print("Starting main benchmark run...", flush=True)
if how == "hangs":
    subprocess.Popen(["sleep", "300"])
    time.sleep(300)
if how == "dies":
    sys.exit("ValueError: no such tokenizer")
if how == "all-refused":
    print("Error: Bad Request")
    open(result, "w").write('{{"duration": 0.1, "completed": 0, "failed": 8}}')
if how == "well":
    shutil.copy({str(FILES["vllm"])!r}, result)
"""


class ProgramTarget(BenchTarget):
    """A target without a server: its client is PROGRAM, which behaves in each run as `behaviors` lists."""

    behaviors: tuple[str, ...] = ("well",)

    def build_command(self, run: BenchRun, result: Path) -> Command:
        behavior = self.behaviors[(run.seed - LOAD.seed) % len(self.behaviors)]
        return Command((sys.executable, "-c", PROGRAM, str(result), behavior))


def build_target(*behaviors: str) -> ProgramTarget:
    return ProgramTarget(
        "vllm", Path("/env/bin"), ServedModel("http://127.0.0.1:9", "/v1", "demo", "/m"), behaviors=behaviors
    )


class RecordedNotes(SilentProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def run(how: str, limit_s: float = 60) -> None:
    Runner(SILENT, limit_s).run(build_target(how), RUN)


@pytest.mark.parametrize(
    ("how", "cause", "fix"),
    [
        ("dies", ("code 1:", "no such tokenizer"), ()),
        ("writes nothing", "code 0:", ()),
        ("all-refused", "Bad Request", 'medley chat "Hello"'),
    ],
)
def test_a_run_that_measured_nothing_is_a_problem(
    how: str, cause: str | tuple[str, ...], fix: str | tuple[str, ...]
) -> None:
    with raises_problem(cause=cause, fix=fix):
        run(how)


def test_a_run_that_hangs_is_ended_with_its_children() -> None:
    old_processes = list_descendants(os.getpid())  # an earlier test's browser may still be ending
    with raises_problem(cause=" 1 s", fix="--requests 8 --timeout 7200"):
        run("hangs", limit_s=1)
    assert list_descendants(os.getpid()) <= old_processes


def test_a_bench_is_kept_whole() -> None:
    saved = measure_server(build_target("well"), LOAD, 60, SILENT)
    assert record.find_record("last") == saved
    assert saved.whole
    assert [result.run for result in saved.done] == list(LOAD.list_runs())
    assert saved.model == "demo"


@pytest.mark.parametrize("behavior", ["well", "dies"])
def test_the_key_of_the_environment_is_in_no_file_after_the_bench(behavior: str, tmp_path: Path) -> None:
    target = build_target(behavior)
    copy, own = tmp_path / "bench-key", tmp_path / "own-key"
    for file in (copy, own):
        file.write_text("k")
        with suppress(Problem):
            measure_server(target.replace(served=target.served.replace(key_file=str(file))), LOAD, 60, SILENT)
    assert (copy.exists(), own.exists()) == (False, True)


def test_what_was_measured_before_a_failure_is_kept_and_named() -> None:
    watch = RecordedNotes()
    with raises_problem(cause=("code 1:", "no such tokenizer")):
        measure_server(build_target("well", "well", "dies"), LOAD, 60, watch)
    saved = record.find_record("last")
    assert (saved.whole, len(saved.counted)) == (False, 1)
    assert f"stopped; 1 of its runs are kept: medley bench show {saved.id}" in watch.notes


def test_ctrl_c_leaves_no_process_and_keeps_what_is_done() -> None:
    def interrupt() -> None:
        wait_for(
            "the second run hangs",
            lambda: any(child.name == "sleep" for child in list_descendants(os.getpid()) - old_processes),
            60,
        )
        os.kill(os.getpid(), signal.SIGINT)

    old_processes = list_descendants(os.getpid())
    old_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            measure_server(build_target("well", "well", "hangs"), LOAD, 60, SILENT)
    finally:
        signal.signal(signal.SIGINT, old_handler)
    assert len(record.find_record("last").counted) == 1
    assert list_descendants(os.getpid()) <= old_processes


def test_a_load_larger_than_what_is_served_is_a_problem_at_once() -> None:
    require_context_room(BenchLoad(input_tokens=1920, output_tokens=128), "demo", 2048)
    require_context_room(BenchLoad(), "demo", None)
    with raises_problem("1921 ", "128 ", "demo", cause=" 2048 ", fix="--input-len 1920"):
        require_context_room(BenchLoad(input_tokens=1921, output_tokens=128), "demo", 2048)
    with raises_problem("8 ", "4096 ", "demo", fix="--input-len 1024 --output-len 512"):
        require_context_room(BenchLoad(input_tokens=8, output_tokens=4096), "demo", 2048)
