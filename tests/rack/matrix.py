"""The matrix: each engine by each launcher, over two hosts, and its tokens beside the same engine's alone."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from medley.host_schema import ENGINE_TABLES
from medley.process import Process
from medley.schema import EngineName
from tests.rack.cluster import READY_LIMIT_S, cluster, medley, token_of, typed
from tests.rack.host import Host
from tests.rack.rack import Rack, up
from tests.rack.tokens import CLEAR_NATS, MODEL, RECORD, Answer, asked, bring, spoil
from tests.waiting import becomes_true, wait_for

# The same for all cells of an engine, but what a pipeline on a CPU needs.
FLAGS: dict[EngineName, tuple[str, ...]] = {
    "vllm": (
        "--dtype=float32",
        "--kv-cache-memory-bytes=268435456",
        "-cc.mode=2",
        "-cc.backend=eager",
    ),
    "sglang": ("--dtype=float32",),
}
ENVIRONMENT: dict[EngineName, dict[str, str]] = {"vllm": {"TORCHDYNAMO_DISABLE": "1"}, "sglang": {}}
# The hosts share the machine's cores: with a thread of each rank on each of them, ranks wait for each other.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Cell:
    engine: EngineName
    launcher: str
    words: tuple[str, ...] = ()
    split: str | None = None
    """Layers of each stage, where they are not the plan's."""
    spoiled: bool = False
    """With another model on the second host: the control."""
    flags: tuple[str, ...] | None = None
    """The engine's own; None: those that all cells of the demo model have."""
    hosts: int = 2

    @property
    def name(self) -> str:
        size = f"{self.words[0].strip('-').upper()}{self.words[1]}" if self.words else ""
        return " ".join(
            filter(None, (self.engine, self.launcher, size, self.split, "spoiled" if self.spoiled else None))
        )


_SIZES: tuple[tuple[tuple[str, ...], str | None], ...] = (
    (("--pp", "2"), "3,3"),
    (("--tp", "2"), None),
    (("--pp", "2"), "5,1"),
)
CELLS: tuple[Cell, ...] = (
    *(
        Cell(engine, launcher, words, split)
        for engine in FLAGS
        for launcher in ("ray", "mp")
        for words, split in _SIZES
    ),
    *(Cell("vllm", launcher, ("--dp", "2")) for launcher in ("ray", "mp")),
)


@dataclass
class Running:
    head: Process
    lines: list[str]
    ready_s: float
    workers: list[Process] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)

    def stop(self) -> None:
        self.head.stop()
        for worker in self.workers:
            assert worker.wait(40) is not None, self.joined[-20:]


@dataclass
class Matrix:
    rack: Rack
    cluster_of: EngineName | None = None
    model: str = MODEL

    def __post_init__(self) -> None:
        self.mend()

    def mend(self) -> None:
        """The model on every host, as it was made."""
        for host in self.rack.hosts:
            bring(host)

    def answer(self, cell: Cell) -> tuple[Answer, float]:
        """Serve it in float32, ask the prompts, and end it; with the seconds until it was ready."""
        with self.running(cell) as run:
            return asked(self.rack.hosts[0]), run.ready_s

    @contextmanager
    def running(self, cell: Cell) -> Iterator[Running]:
        self._prepared(cell)
        run = self._started(cell)
        try:
            yield run
        finally:
            run.stop()
            wait_for(
                "no process of the engine is left",
                lambda: not any(map(of_engine, self.rack.hosts)),
                state=lambda: [of_engine(host) for host in self.rack.hosts],
            )

    def _prepared(self, cell: Cell) -> None:
        """Ray of this engine's environment, or none."""
        wanted = cell.engine if cell.launcher == "ray" else None
        if self.cluster_of == wanted:
            return
        if self.cluster_of:
            assert all(medley(host, "ray-stop").status == 0 for host in self.rack.hosts)
        if wanted:
            cluster(self.rack.hosts, words=("--engine", wanted))
        self.cluster_of = wanted

    def _started(self, cell: Cell) -> Running:
        head = self.rack.hosts[0]
        hosts = (
            ("--launcher", "solo")
            if cell.launcher == "solo"
            else ("--launcher", cell.launcher, "--hosts", str(cell.hosts))
        )
        env = ENVIRONMENT[cell.engine] if cell.flags is None else ONE_THREAD
        env = env | ({ENGINE_TABLES[cell.engine].partition_variable: cell.split} if cell.split else {})
        words = ("--engine", cell.engine, *hosts, *cell.words, "--served-model-name", self.model)
        flags = FLAGS[cell.engine] if cell.flags is None else cell.flags
        lines: list[str] = []
        began = time.monotonic()
        command = typed("serve", "-v", self.model, *words, "--", *flags).add_variables(env)
        run = Running(head.start(command, lines.append), lines, 0.0)
        if cell.launcher == "mp":
            self._join(run, self.rack.hosts[1 : cell.hosts])
        ready = becomes_true(
            lambda: run.head.poll() is not None or any(line.startswith("ready after") for line in lines),
            READY_LIMIT_S,
        )
        if not ready or run.head.poll() is not None:
            run.head.stop()
            raise AssertionError("\n".join((cell.name, *lines[-40:], *run.joined[-20:])))
        run.ready_s = time.monotonic() - began
        return run

    def _join(self, run: Running, workers: Sequence[Host]) -> None:
        head = self.rack.hosts[0]
        wait_for(
            "serve prints the command to join",
            lambda: any("medley join" in line for line in run.lines),
            60,
            state=lambda: run.lines,
        )
        command = typed("join", head.name, "--token-file", "/tmp/home/brought").add_variables(ONE_THREAD)
        for worker in workers:
            worker.path("/tmp/home/brought").write_text(token_of(head))
            run.workers.append(worker.start(command, run.joined.append))


@dataclass(frozen=True)
class Row:
    """What came of one cell."""

    cell: Cell
    answer: Answer | None
    ready_s: float = 0.0
    equal: bool = False
    """Its tokens are those of the engine alone."""
    why_not: str = ""
    """The engine's own reason, where it cannot be."""


def rows(matrix: Matrix, cells: Sequence[Cell]) -> Iterator[Row]:
    """Each engine alone, each of its cells, and one with another model on the second host: it must differ."""
    for engine in FLAGS:
        alone, seconds = matrix.answer(Cell(engine, "solo"))
        yield Row(Cell(engine, "solo"), alone, seconds, equal=True)
        own = [cell for cell in cells if cell.engine == engine]
        for cell in own:
            yield _row(matrix, cell, alone)
        spoil(matrix.rack.hosts[1])
        spread = replace(next(cell for cell in own if "--dp" not in cell.words), spoiled=True)
        yield _row(matrix, spread, alone)
        matrix.mend()


def _row(matrix: Matrix, cell: Cell, alone: Answer) -> Row:
    try:
        answer, seconds = matrix.answer(cell)
    except AssertionError as error:
        return Row(cell, None, why_not=str(error)[-2000:])
    return Row(cell, answer, seconds, answer.tokens == alone.tokens)


def of_engine(host: Host) -> list[str]:
    """What still runs there of a served model: the engine, and its ranks."""
    lines = host.says("ps", "-eo", "args").splitlines() if host.alive else []
    marks = (
        "RayWorkerProc",
        "VLLM::",
        "sglang::",
        "SchedulerActor",
        "bin/vllm",
        "bin/sglang",
        "sglang_ray.py",
        "unix_socket.py",
    )
    return [line for line in lines if any(mark in line for mark in marks)]


def record() -> None:
    """Record what both engines answer alone in float32, with no choice that rounding decides."""
    found = []
    for engine in FLAGS:
        with up(1) as rack:
            answer, _ = Matrix(rack).answer(Cell(engine, "solo"))
        assert answer.margin > CLEAR_NATS, (engine, answer.margin)
        found.append(answer.tokens)
    first, *others = found
    assert all(each == first for each in others), found
    RECORD.write_text(json.dumps(first) + "\n")


if __name__ == "__main__":
    record()
