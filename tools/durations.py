"""Record how long tests take and what they wait for, and print where the time of a check goes.

    MEDLEY_TEST_TIMES=FILE .venv/bin/pytest -m rack     adds lines of JSON to FILE
    python -m tools.durations FILE…                    prints what `.ci/run` prints at its end

What a test waits for is sampled: ten times a second the stack of the main thread is read, and the first rule
that fits one of its frames, from the outside in, names it. With pytest-xdist the workers are sampled, whose
seconds add up.
"""

import json
import linecache
import re
import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest

VARIABLE = "MEDLEY_TEST_TIMES"
SAMPLE_S = 0.1
SETUPS_SHOWN = 10
CALLS_SHOWN = 10
# What a command is for, by its words; the first that fits.
COMMANDS = (
    (re.compile(r"\bmedley .*\bserve\b|#serve\b"), "start of an engine"),
    (re.compile(r"\b(ray-head|ray-worker|ray start)\b|medley up\b"), "start of Ray"),
    (re.compile(r"\benv build\b|\bpip install\b|\buv pip\b|-m venv\b"), "build of an environment"),
    (re.compile(r"\bnix(-\w+)? "), "Nix"),
    (re.compile(r"-m medley\b|/bin/medley\b"), "another command of medley"),
    (re.compile(r""), "another program"),
)
# What a function of the tests waits for, by its name and its module.
FUNCTIONS = {
    ("tests.rack.cluster", "served"): "start of an engine",
    ("tests.servers", "ready"): "start of an engine",
    ("tests.rack.matrix", "_started"): "start of an engine",
    ("tests.rack.cluster", "cluster"): "start of Ray",
}
RUNS = {("medley.process", "run"), ("medley.process", "wait"), ("subprocess", "run")}
POLL, FIXED_TIME, OWN = "a state that is polled", "a fixed time", "the test's own Python"


@dataclass(eq=False)  # pytest-xdist keeps plugins in a set
class Recorder:
    """A plugin of pytest: writes the phases of each test, and at the end what all of them waited for."""

    file: Path
    is_worker: bool = False
    """Of pytest-xdist: the main process gets its reports, and writes them."""
    waits: Counter[str] = field(default_factory=Counter)
    running: bool = False
    """Whether a test runs, or is set up or torn down."""
    ended: threading.Event = field(default_factory=threading.Event)

    def pytest_sessionstart(self) -> None:
        threading.Thread(target=self._sample, args=(threading.main_thread().ident,), daemon=True).start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self.running = True
        try:
            return (yield)
        finally:
            self.running = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.is_worker:
            return
        seconds = round(report.duration, 3)
        self._write({"test": report.nodeid, "phase": report.when, "s": seconds, "outcome": report.outcome})

    def pytest_sessionfinish(self) -> None:
        self.ended.set()
        self._write({"waits": {name: round(count * SAMPLE_S, 1) for name, count in self.waits.items()}})

    def _sample(self, thread: int) -> None:
        while not self.ended.wait(SAMPLE_S):
            frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to sample
            if frame and self.running:
                self.waits[reason(frame)] += 1

    def _write(self, table: object) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(table) + "\n")


def reason(innermost: FrameType) -> str:
    """Name what the thread with this stack waits for."""
    frames = list(_stack(innermost))
    for frame in reversed(frames):
        name = (str(frame.f_globals.get("__name__")), frame.f_code.co_name)
        if name in FUNCTIONS:
            return FUNCTIONS[name]
        if name == ("tests.waiting", "wait_for"):
            return POLL
        if name in RUNS:
            return _purpose(frame)
    here = linecache.getline(innermost.f_code.co_filename, innermost.f_lineno or 0)
    return FIXED_TIME if "sleep(" in here else OWN


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame:
        yield frame
        frame = frame.f_back


def _purpose(frame: FrameType) -> str:
    process = frame.f_locals.get("self")
    command = frame.f_locals.get("command") or getattr(process, "command", "")
    if arguments := frame.f_locals.get("popenargs"):  # of subprocess.run: a text or words
        command = arguments[0] if isinstance(arguments[0], str) else " ".join(map(str, arguments[0]))
    return next(name for pattern, name in COMMANDS if pattern.search(str(command)))


@dataclass(frozen=True)
class Group:
    """What one run of pytest recorded."""

    name: str
    phases: list[dict[str, object]]
    waits: dict[str, float]

    @property
    def tests(self) -> int:
        return len({row["test"] for row in self.phases if row["phase"] == "call"})

    @property
    def seconds(self) -> float:
        return sum(_seconds(row) for row in self.phases)

    def longest(self, phase: str) -> list[tuple[float, str]]:
        rows = ((_seconds(row), str(row["test"])) for row in self.phases if row["phase"] == phase)
        return sorted(rows, reverse=True)


def _seconds(row: dict[str, object]) -> float:
    return float(str(row["s"]))


def read(file: Path) -> Group:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    waits: Counter[str] = Counter()
    for row in rows:
        waits.update(row.get("waits", {}))
    return Group(file.stem, [row for row in rows if "test" in row], dict(waits))


def table(groups: Iterable[Group]) -> Iterator[str]:
    """Yield the lines of the summary: groups, what they waited for, the most expensive set-ups and tests."""
    groups = list(groups)
    yield f"{'group':12} {'tests':>6} {'seconds':>8}"
    for group in groups:
        yield f"{group.name:12} {group.tests:>6} {group.seconds:>8.0f}"
    names = sorted({name for group in groups for name in group.waits})
    if names:
        yield ""
        yield f"{'seconds spent on':28}" + "".join(f"{group.name:>10}" for group in groups if group.waits)
    for name in sorted(names, key=lambda each: -sum(group.waits.get(each, 0) for group in groups)):
        yield f"{name:28}" + "".join(f"{group.waits.get(name, 0):>10.0f}" for group in groups if group.waits)
    for phase, title, count in (
        ("setup", "most expensive set-ups", SETUPS_SHOWN),
        ("call", "longest tests", CALLS_SHOWN),
    ):
        yield ""
        yield f"seconds  {title}"
        longest = sorted((each for group in groups for each in group.longest(phase)), reverse=True)
        yield from (f"{seconds:7.1f}  {test}" for seconds, test in longest[:count])


if __name__ == "__main__":
    for line in table(read(Path(file)) for file in sys.argv[1:]):
        print(line)
