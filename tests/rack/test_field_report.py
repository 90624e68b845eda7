"""A field report of two hosts, made as its owner makes it, is taken in as a maintainer does."""

import csv
import shutil
import signal
from pathlib import Path

import pytest

from benchmarks import field_report, published, support
from medley.host import facts
from medley.host.kind import load_answers
from tests.rack.conftest import Up
from tests.rack.spec import Spec
from tests.rack.ssh_cluster import LINKS, SshCluster, falls_still, process

# CI has its parts without a cluster: tests/measurement/field_report, tests/cli/test_field_report.py.
pytestmark = [pytest.mark.rack, pytest.mark.slow]

LOAD = ("--concurrency", "1", "--repeats", "1", "--requests", "2", "--input-len", "16", "--output-len", "8")


def test_a_report_of_two_hosts_becomes_recordings_and_rows(rack: Up, tmp_path: Path) -> None:
    desk = SshCluster.of(rack(Spec(2, LINKS)))
    sent = tmp_path / "report.json"
    there = desk.head.path("/tmp/home/report.json")
    stopped = desk.begin("bench", "--field-report", "report.json", *LOAD, until="TCP, there")
    desk.head.says("kill", "-INT", str(process(desk.head, "--field-report")))
    finished = stopped.wait(30)
    assert finished
    assert finished.status == 128 + signal.SIGINT, finished.lines
    for host in desk.rack.hosts:
        falls_still(host)
    assert not field_report.read(Path(shutil.copy(there, sent))).whole

    said = desk.done("bench", "--field-report", "report.json", *LOAD, limit_s=600)
    for host in desk.rack.hosts:
        falls_still(host)
    found = field_report.read(Path(shutil.copy(there, sent)))
    assert found.whole, said
    assert found.skipped == (), said
    assert "host1" not in sent.read_text()
    assert [host.name for host in found.hosts] == ["host-1", "host-2"]
    (link,), (model,) = found.links, found.models
    assert min(link.measured.there.mbit, link.measured.back.mbit) > 100
    assert found.collective
    assert found.collective["sums"] == {}
    assert {each.found for each in model.backends} >= {"gloo", "Inductor compilation was disabled"}

    taken = field_report.intake(sent)
    assert [(each.name, differ) for each, differ in taken.replayed()] == [("demo", [])]
    tree = tmp_path / "tree"
    for file in (field_report.PUBLISHED, field_report.SUPPORT, field_report.PAGE):
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(support.ROOT / file, tree / file)
    written = list(field_report.write(taken, tree))

    one, two = (file for file in written if file.suffix == ".txt")
    assert one.read_text().startswith(
        "# Recorded by medley bench --field-report on hosts made of network names"
    )
    assert [facts.read_facts(load_answers(str(each))) for each in (one, two)] == list(taken.known.values())
    *_, row = csv.DictReader((tree / field_report.PUBLISHED).read_text().splitlines())
    assert (row["nodes"], row["engine"], row["model"]) == ("2", "vllm 0.32.0+cpu", "demo")
    *_, case = published.read(tree / field_report.PUBLISHED)
    assert isinstance(case, published.Case)
    assert not case.scored
    rows = [each for each in support.read(tree / field_report.SUPPORT) if taken.name in each.evidence]
    assert [(each.host, each.hosts, each.badge) for each in rows] == [("cpu", "2", "simulated")]
    assert (tree / field_report.PAGE).read_text() == support.page(support.read(tree / field_report.SUPPORT))
