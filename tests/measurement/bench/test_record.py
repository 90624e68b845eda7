"""A bench goes into its file and comes back as it was."""

import json
from pathlib import Path

import pytest

from medley.errors import Problem
from medley.measurement.bench import record
from medley.schema import EngineName
from tests.measurement.bench.benches import bench


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    return tmp_path


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_it_comes_back_as_it_was(engine: EngineName) -> None:
    saved = bench(engine=engine)
    record.save_record(saved)
    assert record.find_record("last") == saved


def test_the_warm_up_is_kept_and_not_counted() -> None:
    bench_record = bench()
    assert len(bench_record.done) == 7
    assert len(bench_record.counted) == 6
    assert bench_record.compute_spreads("served", 4)["output_tokens_per_s"].median == pytest.approx(
        387.02, abs=0.01
    )
    assert bench_record.rows == (("served", 1), ("served", 4))


def test_measured_over_predicted() -> None:
    prediction = bench().find_prediction("served", 4)
    assert prediction
    assert prediction[1] == pytest.approx(387.02 / 1200, abs=0.001)
    assert bench().replace(expected={}).find_prediction("served", 4) is None


def test_programs_read_medians_and_ratios(tmp_path: Path) -> None:
    del tmp_path
    table = json.loads(record.save_record(bench()).read_text())
    assert table["results"][1]["concurrency"] == 4
    assert table["results"][1]["output_tokens_per_s"]["high"] == pytest.approx(398.63, abs=0.01)
    assert table["results"][1]["measured/predicted"] == pytest.approx(0.3225, abs=0.001)


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("last", "20261122-3"),
        ("last-0", "20261122-3"),
        ("last-2", "20261121-1"),
        ("20261121", "20261121-1"),
        ("20261122-2", "20261122-2"),
    ],
)
def test_a_bench_by_its_name(text: str, id_: str) -> None:
    for name in ("20261121-1", "20261122-2", "20261122-3"):
        record.save_record(bench(name))
    assert record.find_record(text).id == id_


@pytest.mark.parametrize("text", ["2026112", "20261122", "x", "last-3", "last-x", "./absent.json"])
def test_no_bench_by_that_name(text: str) -> None:
    for name in ("20261121-1", "20261122-2", "20261122-3"):
        record.save_record(bench(name))
    with pytest.raises(Problem) as raised:
        record.find_record(text)
    assert raised.value.fix == "medley bench history"


def test_a_file_by_its_path(tmp_path: Path) -> None:
    saved = record.save_record(bench())
    copy = tmp_path / "sent.json"
    copy.write_bytes(saved.read_bytes())
    assert record.find_record(str(copy)) == bench()


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}', '{"format": 99}', "[]"])
def test_what_another_wrote_is_passed_over(text: str) -> None:
    saved = record.save_record(bench())
    saved.with_name("0.json").write_text(text)
    assert [listed.id for listed in record.list_records()] == [bench().id]
