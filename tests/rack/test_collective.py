"""`medley collective-test` over real Ray and Gloo: right sums, and who is slow, cut off or silent is named.

One cluster serves all of it; the last tests take hosts from it.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from medley import process
from medley.command import Command
from tests.rack.cluster import MEDLEY, cluster
from tests.rack.host import Host
from tests.rack.rack import Rack, up
from tests.rack.spec import Link, Spec
from tests.waiting import wait_for

pytestmark = pytest.mark.rack

MBIT = 1000
KEPT = "/tmp/home/.local/state/medley/collective.json"
# Stops who comes to a port that a rank picked, as a firewall does; who goes is let go.
FIREWALL = (
    "add table inet wall; add chain inet wall input { type filter hook input priority 0; }; "
    "add rule inet wall input iifname != lo tcp dport 30000-65535 tcp flags & (syn | ack) == syn drop"
)


@pytest.fixture(scope="module")
def made() -> Iterator[Rack]:
    with up(Spec(4, (Link("lan", mbit=MBIT),), name=f"pytest-{os.getpid()}-collective")) as rack:
        cluster(rack.hosts)
        yield rack


@dataclass
class Outcome:
    table: dict[str, Any]
    finished: process.ProcessResult

    @property
    def said(self) -> str:
        return "\n".join(self.finished.lines)


def outcome(host: Host, *words: str) -> Outcome:
    finished = host.run(Command((*MEDLEY, "collective-test", "--only", "network", "--json", *words)))
    found = next((line for line in finished.lines if line.startswith("{")), None)
    assert found, finished.lines
    assert json.loads(host.path(KEPT).read_text()).items() >= json.loads(found).items()
    return Outcome(json.loads(found), finished)


def ranks(rack: Rack) -> list[str]:
    """Those that are left anywhere; a host that is frozen is not asked."""
    lines = (line for host in rack.hosts for line in host.says("ps", "-eo", "args").splitlines())
    return [line for line in lines if line.startswith("ray::Rank")]


def assert_no_rank_stays(rack: Rack) -> None:
    wait_for("no rank is left", lambda: not ranks(rack), state=lambda: ranks(rack))


@pytest.mark.parametrize("hosts", [2, pytest.param(3, marks=pytest.mark.slow), 4])
def test_right_sums_and_the_speed_of_the_wire(made: Rack, hosts: int) -> None:
    found = outcome(made.hosts[0], "--hosts", str(hosts), "--sizes", "8,1M,4M")
    assert found.finished.status == 0, found.said
    assert (found.table["sums"], found.table["backend"]) == ({}, "gloo")
    assert [each["bytes"] for each in found.table["rates"]] == [8, 1 << 20, 4 << 20]
    assert MBIT / 2 < found.table["rates"][-1]["bus_mbit"] < MBIT * 1.1
    assert len(found.table["pairs"]) == hosts * (hosts - 1) / 2
    for pair in found.table["pairs"]:
        assert all(MBIT / 2 < way < MBIT * 1.1 for way in pair["mbit"]), pair
    addresses = [member["address"] for member in found.table["members"]]
    assert addresses[0] == made.hosts[0].address
    assert set(addresses) <= {host.address for host in made.hosts}
    assert len(set(addresses)) == hosts
    assert {member["mbit"] for member in found.table["members"]} == {None}, "nobody knows what a veth gives"
    assert_no_rank_stays(made)


def test_a_host_whose_link_is_a_tenth_is_named(made: Rack) -> None:
    made.shape("lan", MBIT // 10, "host3")
    try:
        found = outcome(made.hosts[1], "--sizes", "8,1M")
    finally:
        made.shape("lan", MBIT, "host3")
    assert found.finished.status == 1
    assert found.table["sums"] == {}
    assert "medley: host3 (10.78.0.3) is slow" in found.said


def test_a_firewall_is_laid_to_the_host_that_has_it(made: Rack) -> None:
    made["host3"].says("nft", FIREWALL)
    try:
        found = outcome(made["host3"], "--hosts", "3", "--sizes", "8", "--limit", "20")
    finally:
        made["host3"].says("nft", "delete table inet wall")
    assert found.finished.status == 1
    assert "medley: host3 (10.78.0.3) is cut off" in found.said
    assert_no_rank_stays(made)


def test_a_run_that_is_told_to_end_leaves_no_rank(made: Rack) -> None:
    process, lines = started(made.hosts[0], "compare sums")
    assert len(ranks(made)) == 4, "what is looked for below is found while it is there"
    told_to_end(made.hosts[0])
    finished = process.wait(30)
    assert finished is not None
    assert finished.status == 143, lines
    assert_no_rank_stays(made)


@pytest.mark.parametrize("step", ["all-reduce 67108864 bytes", "start the ranks"])
def test_a_host_that_freezes_is_named_in_time(made: Rack, step: str) -> None:
    host = made["host4" if step == "start the ranks" else "host3"]
    process, lines = started(made.hosts[0], step, "--sizes", "64M", "--limit", "20")
    host.pause()
    began = time.monotonic()
    try:
        finished = process.wait(90)
    finally:
        host.resume()
    assert finished is not None
    assert finished.status == 1
    assert time.monotonic() - began < 60, "the step's limit, a question whether it lives, and the end"
    assert f"medley: {host.name} ({host.address}) does not answer" in lines, "\n".join(lines)
    assert_no_rank_stays(made)


def started(host: Host, step: str, *words: str) -> tuple[process.Process, list[str]]:
    """A run that has come to this step."""
    lines: list[str] = []
    process = host.start(Command((*MEDLEY, "collective-test", "--only", "network", *words)), lines.append)
    wait_for(
        f"the test has come to: {step}",
        lambda: any(line.startswith(step) for line in lines),
        60,
        state=lambda: lines,
    )
    return process, lines


def told_to_end(host: Host) -> None:
    lines = [line.split() for line in host.says("ps", "-eo", "pid,args").splitlines()]
    (pid,) = (pid for pid, *args in lines if args[1:4] == ["-m", "medley", "collective-test"])
    host.says("kill", pid)
