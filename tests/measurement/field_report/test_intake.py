"""`python -m benchmarks.field_report`: recordings and rows out of a report; the page of the matrix."""

import csv
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import field_report, published, support
from benchmarks.support import Row
from medley.host.facts import Facts
from medley.host.facts.gpu import Gpu
from medley.host.kind import load_answers
from tests.measurement.field_report.reports import report, save


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    return report()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for file in (field_report.PUBLISHED, field_report.SUPPORT, field_report.PAGE):
        (tmp_path / "tree" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(support.ROOT / file, tmp_path / "tree" / file)
    return tmp_path / "tree"


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["field_report", *map(str, words)])
    return field_report.main()


def test_it_says_what_it_would_add_and_adds_nothing(
    table: dict[str, Any],
    tmp_path: Path,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    contents = {file: file.read_bytes() for file in tree.rglob("*") if file.is_file()}
    assert run(monkeypatch, save(tmp_path, table), "--into", tree) == 0
    output = capsys.readouterr().out
    assert "plan of gpt-oss-120b: the same now" in output
    assert "matrix row: spark, 2, vllm, TP 2, RDMA, gpt-oss-120b, hardware" in output
    assert {file: file.read_bytes() for file in tree.rglob("*") if file.is_file()} == contents


def test_it_is_taken_in_once(
    table: dict[str, Any],
    tmp_path: Path,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = save(tmp_path, table)
    assert run(monkeypatch, file, "--write", "--into", tree) == 0
    first, second = sorted((tree / field_report.RECORDED).glob("*.txt"))
    assert first.name.startswith("spark-2-")
    assert first.read_text().startswith(
        "# Recorded by medley bench --field-report on its owner's hosts: host-1 of 2."
    )
    assert len(load_answers(str(second))) > 20
    rows = list(csv.DictReader((tree / field_report.PUBLISHED).read_text().splitlines()))
    assert [row["concurrency"] for row in rows[-2:]] == ["1", "4"]
    *_, case = published.read(tree / field_report.PUBLISHED)
    assert isinstance(case, published.Case)
    assert case.scored
    assert (case.kind, case.what, case.load.prompt_tokens, case.output_tokens) == ("spark", "decode", 32, 16)
    assert case.site.startswith("field-spark-2-")
    rows_of_matrix = support.read(tree / field_report.SUPPORT)
    assert [each.badge for each in rows_of_matrix if each.model == "gpt-oss-120b"] == ["hardware"]
    assert (tree / field_report.PAGE).read_text() == support.page(rows_of_matrix)

    assert run(monkeypatch, file, "--write", "--into", tree) == 1
    assert "was taken in before" in capsys.readouterr().err


def test_a_plan_that_comes_out_otherwise_is_shown(
    table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = json.loads(json.dumps(table))
    changed["models"][0]["plan"]["tokens_per_s"] *= 2
    assert run(monkeypatch, save(tmp_path, changed)) == 1
    assert "otherwise now:\n    tokens_per_s: " in capsys.readouterr().out


def test_hosts_made_of_namespaces_are_no_hardware(table: dict[str, Any], tmp_path: Path) -> None:
    real = field_report.intake(save(tmp_path, table))

    def virtual(host: Facts, gpus: tuple[Gpu, ...] = ()) -> Facts:
        links = tuple(link.replace(driver="veth") for link in host.net.links)
        return host.replace(gpus=gpus, net=host.net.replace(links=links))

    rack = replace(real, known={name: virtual(host) for name, host in real.known.items()})
    assert {row.badge for row in rack.support_rows()} == {"simulated"}
    container = replace(real, known={name: virtual(host, host.gpus) for name, host in real.known.items()})
    assert {row.badge for row in container.support_rows()} == {"hardware"}


def test_a_kind_without_a_table_gets_no_row(
    table: dict[str, Any],
    tmp_path: Path,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed = json.loads(json.dumps(table))
    for host in changed["hosts"]:
        host["kind"] = "toaster"
    assert run(monkeypatch, save(tmp_path, changed), "--write", "--into", tree) == 0
    assert "no matrix row: toaster, 2, vllm" in capsys.readouterr().out
    assert (tree / field_report.SUPPORT).read_text() == support.DATA.read_text()


def test_a_hostile_file_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, save(tmp_path, {"format": "medley field report 1", "hosts": "x"})) == 1
    error = capsys.readouterr().err
    assert "fix:   ask its sender" in error
    assert "Traceback" not in error


def test_the_page_is_made_of_the_data() -> None:
    rows = support.read()
    assert support.wrong(rows) == []
    assert support.PAGE.read_text() == support.page(rows), "python -m benchmarks.support writes it again"


@pytest.mark.parametrize(
    ("old", "new", "badge", "evidence"),
    [
        ("untested", "hardware", "hardware", "b"),
        ("hardware", "simulated", "hardware", "a"),
        ("simulated", "simulated", "simulated", "a; b"),
    ],
)
def test_a_better_badge_takes_the_place(
    old: support.Badge, new: support.Badge, badge: str, evidence: str
) -> None:
    def row(badge: support.Badge, evidence: str) -> Row:
        return Row("spark", "1", "vllm", "one rank", "any", badge, evidence)

    (merged,) = support.with_row([row(old, "a")], row(new, "b"))
    assert (merged.badge, merged.evidence) == (badge, evidence)


def test_wrong_rows_are_named() -> None:
    errors = support.wrong([Row("toaster", "1", "vllm", "TP 2", "no-model", "hardware", "")] * 2)
    assert [each.partition(": ")[2] for each in errors] == [
        *("there is no kind toaster", "no table has this model", "hardware needs evidence"),
        *(
            "there is no kind toaster",
            "it stands twice",
            "no table has this model",
            "hardware needs evidence",
        ),
    ]
