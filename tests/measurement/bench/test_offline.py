"""A bench without a server: each start of the engine, and what is kept of it."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from medley import config
from medley.command import Command
from medley.engine import Serving
from medley.engine.launch import Order, launch
from medley.host.kind import answers
from medley.measurement.bench import BenchLoad, BenchRun, record
from medley.measurement.bench.clients import Offline
from medley.measurement.bench.report import lines
from medley.measurement.bench.run import measure_offline
from medley.measurement.bench.target import OfflineTarget
from medley.model.resolve import Weights
from medley.planner.plan import Plan
from medley.progress import SILENT
from medley.schema import EngineName
from medley.serving import description
from tests.measurement.bench.benches import FOLDER
from tests.problems import raises_problem

HOSTS = Path(__file__).parents[2] / "host" / "recorded"

LOAD = BenchLoad((2,), repeats=3, input_tokens=32, output_tokens=16, seed=7, requests=8)


@dataclass(frozen=True)
class Recorded(OfflineTarget):
    """What the engine's own modes wrote here is written again."""

    fails: Offline | None = None

    def command(self, mode: Offline, run: BenchRun, result: Path) -> Command:
        del run
        (file,) = FOLDER.glob(f"vllm-{mode}.*")
        program = f"import shutil; shutil.copy({str(file)!r}, {str(result)!r})"
        return Command((sys.executable, "-c", program if mode != self.fails else "raise SystemExit(3)"))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def order(engine: EngineName = "vllm") -> Order:
    from dataclasses import replace

    made = Order(
        Weights("demo", "/models/demo", None), Serving("/models/demo", "demo"), extra=("--dtype", "x")
    )
    return replace(made, wanted=replace(made.wanted, engine=engine))


def alone(engine: EngineName = "vllm", *, vocabulary: int = 10_240, fails: Offline | None = None) -> Recorded:
    found = order(engine)
    host = config.hosts()["cpu"]
    made = launch(found, Plan(), host)
    return Recorded(
        description(found, made, None), made, vocabulary, {"vm": answers(str(HOSTS / "cpu-rack.txt"))}, fails
    )


def test_all_of_it_is_kept_and_shown() -> None:
    made = measure_offline(alone(), LOAD, 60, SILENT)
    assert record.find("last") == made
    assert made.rows == (("latency", 2), ("throughput", 2))
    assert [len(made.runs(*row)) for row in made.rows] == [3, 3]
    assert made.spreads("latency", 2)["latency_ms"].median == pytest.approx(106.25, abs=0.01)
    text = "\n".join(lines(made))
    assert "latency, 2  throughput, 2" in text
    assert "predicted" not in text


def test_what_came_before_a_failure_is_kept() -> None:
    with raises_problem(cause="code 3:"):
        measure_offline(alone(fails="throughput"), LOAD, 60, SILENT)
    kept = record.find("last")
    assert (kept.whole, kept.rows) == (False, (("latency", 2),))


def test_a_mode_that_cannot_be_is_left_out() -> None:
    modes = [mode for mode, _ in alone(vocabulary=324).runs(LOAD, SILENT)]
    assert modes == ["throughput", "throughput", "throughput"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_plans_flags_and_the_users_are_there_and_a_servers_are_not(engine: EngineName) -> None:
    found = alone(engine)
    for mode, run in found.runs(LOAD, SILENT):
        argv = OfflineTarget.command(found, mode, run, Path("result.json")).argv
        assert argv[-2:] == ("--dtype", "x")
        assert "--served-model-name" in argv
        assert not {"--host", "--port"} & set(argv)
