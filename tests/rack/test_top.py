"""`medley top` over three hosts by real ssh: what they really carry, one that dies, and a real terminal."""

import json
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from medley import process
from medley.command import Command
from tests.rack import ssh
from tests.rack.cluster import MEDLEY
from tests.rack.conftest import Up
from tests.rack.desk import LINKS, Desk, still
from tests.rack.desk import process as desk_process
from tests.rack.patience import within
from tests.rack.spec import Spec
from tests.rack.tmux import Tmux

pytestmark = pytest.mark.rack

MBIT = 40
"""What is sent: so much, for so long."""
SENT_S = 8
Look = dict[str, Any]


def looks(lines: list[str]) -> list[dict[str, Look]]:
    return [json.loads(line)["hosts"] for line in list(lines) if line.startswith("{")]


def seen(lines: list[str], true: Callable[[dict[str, Look]], bool], limit_s: float = 30) -> dict[str, Look]:
    """The first look of which that is true, of those that come from now on."""
    begun, deadline = len(looks(lines)), time.monotonic() + limit_s
    while not (found := [each for each in looks(lines)[begun:] if true(each)]):
        assert time.monotonic() < deadline, lines[-1]
        time.sleep(0.1)
    return found[0]


def mbit(look: dict[str, Look], host: str, way: str) -> float:
    """By the fast link."""
    flows = {flow["name"]: flow for flow in look[host]["links"]}
    return float(flows["eth1"][f"{way}_bytes_per_s"]) * 8 / 1e6


def test_what_is_sent_is_seen_and_a_host_that_dies_comes_back(rack: Up) -> None:
    desk = Desk.of(rack(Spec(3, LINKS)))
    lines: list[str] = []
    top = desk.head.start(Command((*MEDLEY, "top", "--json", "--every", "1")), lines.append)
    first = seen(lines, lambda look: all(each["answers"] and "links" in each for each in look.values()))
    assert list(first) == ["host1", "host2", "host3"]
    assert all(mbit(first, host, "in") < 2 for host in first)

    begun = {host: (look["cost_s"], time.monotonic()) for host, look in first.items()}
    server = desk.rack["host3"].start(["iperf3", "--server", "--one-off", "--forceflush"])
    assert within(10, lambda: any("listening" in line for line in server.last))
    sending = desk.rack["host2"].start(
        ["iperf3", "--client", "host3.fast", "--time", str(SENT_S), "--bitrate", f"{MBIT}M"]
    )
    busy = seen(lines, lambda look: mbit(look, "host2", "out") > MBIT / 2, SENT_S)
    busy = seen(lines, lambda look: look["host2"]["seconds"] > 0.5, SENT_S)
    assert mbit(busy, "host2", "out") == pytest.approx(MBIT, rel=0.4)
    assert mbit(busy, "host3", "in") == pytest.approx(MBIT, rel=0.4)
    assert mbit(busy, "host1", "in") < MBIT / 10
    assert sending.wait(SENT_S + 10) is not None
    once = json.loads(desk.done("top", "--once", "--json")[-1])["hosts"]
    assert all(look["answers"] and mbit(once, host, "out") < MBIT / 4 for host, look in once.items())
    for host, (cost_s, at) in begun.items():
        assert (looks(lines)[-1][host]["cost_s"] - cost_s) / (time.monotonic() - at) < 0.03

    desk.rack["host3"].kill()
    gone = seen(lines, lambda look: not look["host3"]["answers"], 40)
    assert gone["host3"]["problem"]["fix"]
    assert gone["host3"]["memory"]["total_bytes"] > 0, "its last values"
    later = seen(lines, lambda look: look["host3"]["age_s"] > 5)
    assert all(later[host]["age_s"] < 3 for host in ("host1", "host2"))
    desk.rack = desk.rack.boot("host3")
    ssh.serve(desk.rack, desk.rack["host3"])
    back = seen(lines, lambda look: look["host3"]["answers"] and look["host3"]["age_s"] < 3, 40)
    assert back["host3"]["cpu_busy"] >= 0
    ended(desk, top)


def ended(desk: Desk, top: process.Process) -> None:
    """By Ctrl-C, at once, and nothing is left anywhere."""
    began = time.monotonic()
    desk.head.says("kill", "-INT", str(desk_process(desk.head, "top --json")))
    finished = top.wait(10)
    assert finished is not None
    assert finished.status == 128 + signal.SIGINT
    assert time.monotonic() - began < 3
    assert all(still(host) for host in desk.rack.hosts)


def test_a_real_terminal(rack: Up) -> None:
    desk = Desk.of(rack(Spec(3, LINKS)))
    tmux = Tmux(desk.head)
    tmux.types('echo "$(stty -g | cksum)"; echo before')
    settings = tmux.shows(lambda lines: "before" in lines)[-3].removeprefix("> ")
    top = " ".join((*MEDLEY, "top", "--every", "1"))

    tmux.types(top)
    lines = tmux.shows(lambda lines: sum("GiB" in line for line in lines) == 3)
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("medley top: 3 hosts; every 1 s")
    assert lines[0].endswith("q ends")
    assert len(lines[0]) == 80
    assert "\x1b[" in tmux.painted()
    desk.rack["host3"].kill()
    lines = tmux.shows(lambda lines: any(line.startswith("host3  silent") for line in lines), 40)
    assert any(line.startswith("TROUBLE") for line in lines)
    assert lines[0].startswith("medley top: 3 hosts, 1 of them without an answer")

    tmux.resize(200, 60)
    lines = tmux.shows(lambda lines: len(lines[0]) == 200)
    assert any(line.startswith("HOST") and line.endswith("SEEN") for line in lines)
    assert sum(line.startswith("host3") for line in lines) >= 2
    tmux.resize(80, 24)
    tmux.shows(lambda lines: len(lines[0]) == 80)

    began = time.monotonic()
    tmux.keys("q")
    tmux.shows(lambda lines: "before" in lines, 3)
    assert time.monotonic() - began < 3
    tmux.types('echo "$(stty -g | cksum)"; echo again')
    again = tmux.shows(lambda lines: "again" in lines)[3:]
    assert any(line.endswith(settings) for line in again)
    assert tmux.says("#{cursor_flag} #{alternate_on}") == "1 0"

    tmux.types(f"clear; NO_COLOR=1 {top}")
    tmux.shows(lambda lines: sum("GiB" in line for line in lines) == 2)
    assert not any(f"\x1b[{colour}m" in tmux.painted() for colour in (31, 32, 33))
    tmux.keys("C-c")
    tmux.types("echo it was $?")
    tmux.shows(lambda lines: any(line.endswith("it was 130") for line in lines), 5)
    tmux.resize(80, 60)
    tmux.types(f"clear; TERM=dumb {top}")
    lines = tmux.shows(lambda lines: sum(line.startswith("HOST") for line in lines) >= 2)
    assert not any("q ends" in line for line in lines)
    assert tmux.says("#{alternate_on}") == "0"
