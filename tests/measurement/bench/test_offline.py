"""A bench without a server: each start of the engine, and what is kept of it."""

import sys
from pathlib import Path

import pytest

from medley import config
from medley.command import Command
from medley.engine.launch import LaunchOrder, build_launch
from medley.engine.server_spec import ServerSpec
from medley.host.kind import load_answers
from medley.measurement.bench import record
from medley.measurement.bench.clients import OfflineMode
from medley.measurement.bench.load import BenchLoad, BenchRun
from medley.measurement.bench.report import format_record
from medley.measurement.bench.run import measure_offline
from medley.measurement.bench.target import OfflineTarget
from medley.model.resolve import Weights
from medley.planner.plan import Plan
from medley.progress import SILENT
from medley.schema import EngineName
from medley.serving.server_description import build_description
from tests.measurement.bench.benches import FOLDER
from tests.problems import raises_problem

HOSTS = Path(__file__).parents[2] / "host" / "recorded"

LOAD = BenchLoad((2,), repeats=3, input_tokens=32, output_tokens=16, seed=7, requests=8)


class RecordedTarget(OfflineTarget):
    """A target whose client writes the recorded results of the engine's own modes."""

    fails: OfflineMode | None = None

    def build_command(self, mode: OfflineMode, run: BenchRun, result: Path) -> Command:
        del run
        (file,) = FOLDER.glob(f"vllm-{mode}.*")
        program = f"import shutil; shutil.copy({str(file)!r}, {str(result)!r})"
        return Command((sys.executable, "-c", program if mode != self.fails else "raise SystemExit(3)"))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def order(engine: EngineName = "vllm") -> LaunchOrder:

    default = LaunchOrder(
        Weights("demo", "/models/demo", None),
        ServerSpec("/models/demo", "demo"),
        engine_flags=("--dtype", "x"),
    )
    return default.replace(placement=default.placement.replace(engine=engine))


def build_target(
    engine: EngineName = "vllm", *, vocabulary: int = 10_240, fails: OfflineMode | None = None
) -> RecordedTarget:
    server_order = order(engine)
    host = config.load_hosts()["cpu"]
    prepared = build_launch(server_order, Plan(), host)
    return RecordedTarget(
        build_description(server_order, prepared, None),
        prepared,
        vocabulary,
        {"vm": load_answers(str(HOSTS / "cpu-rack.txt"))},
        fails,
    )


def test_all_of_it_is_kept_and_shown() -> None:
    saved = measure_offline(build_target(), LOAD, 60, SILENT)
    assert record.find_record("last") == saved
    assert saved.rows == (("latency", 2), ("throughput", 2))
    assert [len(saved.find_results(*row)) for row in saved.rows] == [3, 3]
    assert saved.compute_spreads("latency", 2)["latency_ms"].median == pytest.approx(106.25, abs=0.01)
    text = "\n".join(format_record(saved))
    assert "latency, 2  throughput, 2" in text
    assert "predicted" not in text


def test_what_came_before_a_failure_is_kept() -> None:
    with raises_problem(cause="code 3:"):
        measure_offline(build_target(fails="throughput"), LOAD, 60, SILENT)
    saved = record.find_record("last")
    assert (saved.whole, saved.rows) == (False, (("latency", 2),))


def test_a_mode_that_cannot_be_is_left_out() -> None:
    modes = [mode for mode, _ in build_target(vocabulary=324).list_runs(LOAD, SILENT)]
    assert modes == ["throughput", "throughput", "throughput"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_plans_flags_and_the_users_are_there_and_a_servers_are_not(engine: EngineName) -> None:
    target = build_target(engine)
    for mode, run in target.list_runs(LOAD, SILENT):
        argv = OfflineTarget.build_command(target, mode, run, Path("result.json")).argv
        assert argv[-2:] == ("--dtype", "x")
        assert "--served-model-name" in argv
        assert not {"--host", "--port"} & set(argv)
