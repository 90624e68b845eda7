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
from tests.rack.spec import Spec
from tests.rack.ssh_cluster import LINKS, SshCluster, falls_still
from tests.rack.ssh_cluster import process as desk_process
from tests.rack.tmux import Tmux
from tests.waiting import LIMIT_S, wait_for

pytestmark = pytest.mark.rack

MBIT = 40
SENT_S = 120
"""What is sent: so much, for so long at most."""
Look = dict[str, Any]


def looks(lines: list[str]) -> list[dict[str, Look]]:
    return [json.loads(line)["hosts"] for line in list(lines) if line.startswith("{")]


def seen(
    description: str,
    lines: list[str],
    true: Callable[[dict[str, Look]], bool],
    limit_s: float = LIMIT_S,
) -> dict[str, Look]:
    """The first look of which that is true, of those that come from now on."""
    begun = len(lines)
    found = wait_for(
        f"top prints that {description}",
        lambda: [each for each in looks(lines[begun:]) if true(each)],
        limit_s,
        state=lambda: lines[-1:],
    )
    return found[0]


def mbit(look: dict[str, Look], host: str, way: str) -> float:
    """By the fast link."""
    flows = {flow["name"]: flow for flow in look[host]["links"]}
    return float(flows["eth1"][f"{way}_bytes_per_s"]) * 8 / 1e6


def test_what_is_sent_is_seen_and_a_host_that_dies_comes_back(rack: Up) -> None:
    desk = SshCluster.of(rack(Spec(3, LINKS)))
    lines: list[str] = []
    top = desk.head.start(Command((*MEDLEY, "top", "--json", "--every", "1")), lines.append)
    first = seen(
        "every host answers",
        lines,
        lambda look: all(each["answers"] and "links" in each for each in look.values()),
    )
    assert list(first) == ["host1", "host2", "host3"]
    assert all(mbit(first, host, "in") < 2 for host in first)

    begun = {host: (look["cost_s"], time.monotonic()) for host, look in first.items()}
    server = desk.rack["host3"].start(["iperf3", "--server", "--one-off", "--forceflush"])
    wait_for(
        "iperf3 listens",
        lambda: any("listening" in line for line in list(server.last_lines)),
        state=lambda: list(server.last_lines),
    )
    sending = desk.rack["host2"].start(
        ["iperf3", "--client", "host3.fast", "--time", str(SENT_S), "--bitrate", f"{MBIT}M"]
    )
    seen("host2 sends", lines, lambda look: mbit(look, "host2", "out") > MBIT / 2)
    busy = seen("host2 sends all the time", lines, lambda look: look["host2"]["seconds"] > 0.5)
    assert mbit(busy, "host2", "out") == pytest.approx(MBIT, rel=0.4)
    assert mbit(busy, "host3", "in") == pytest.approx(MBIT, rel=0.4)
    assert mbit(busy, "host1", "in") < MBIT / 10
    sending.stop()
    once = json.loads(desk.done("top", "--once", "--json")[-1])["hosts"]
    assert all(look["answers"] and mbit(once, host, "out") < MBIT / 4 for host, look in once.items())
    for host, (cost_s, at) in begun.items():
        assert (looks(lines)[-1][host]["cost_s"] - cost_s) / (time.monotonic() - at) < 0.03

    desk.rack["host3"].kill()
    gone = seen("host3 does not answer", lines, lambda look: not look["host3"]["answers"], 60)
    assert gone["host3"]["problem"]["fix"]
    assert gone["host3"]["memory"]["total_bytes"] > 0, "its last values"
    seen(
        "only host3's values are old",
        lines,
        lambda look: (
            look["host3"]["age_s"] > 5 and all(look[host]["age_s"] < 3 for host in ("host1", "host2"))
        ),
    )
    desk.rack = desk.rack.boot("host3")
    ssh.serve(desk.rack, desk.rack["host3"])
    back = seen(
        "host3 answers", lines, lambda look: look["host3"]["answers"] and look["host3"]["age_s"] < 3, 60
    )
    assert back["host3"]["cpu_busy"] >= 0
    ended(desk, top)


def ended(desk: SshCluster, top: process.Process) -> None:
    """By Ctrl-C, and nothing is left anywhere."""
    desk.head.says("kill", "-INT", str(desk_process(desk.head, "top --json")))
    finished = top.wait(20)
    assert finished is not None
    assert finished.status == 128 + signal.SIGINT
    for host in desk.rack.hosts:
        falls_still(host)


def test_a_real_terminal(rack: Up) -> None:
    desk = SshCluster.of(rack(Spec(3, LINKS)))
    tmux = Tmux(desk.head)
    tmux.types('echo "$(stty -g | cksum)"; echo before')
    told = tmux.shows("a prompt behind it", lambda lines: "before" in lines[:-1])
    settings = told[told.index("before") - 1]
    top = " ".join((*MEDLEY, "top", "--every", "1"))

    tmux.types(top)
    lines = tmux.shows("three hosts", lambda lines: sum("GiB" in line for line in lines) == 3)
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("medley top: 3 hosts; every 1 s")
    assert lines[0].endswith("q ends")
    assert len(lines[0]) == 80
    assert "\x1b[" in tmux.painted()
    desk.rack["host3"].kill()
    lines = tmux.shows(
        "that host3 is silent", lambda lines: any(line.startswith("host3  silent") for line in lines), 60
    )
    assert any(line.startswith("TROUBLE") for line in lines)
    assert lines[0].startswith("medley top: 3 hosts, 1 of them without an answer")

    tmux.resize(200, 60)
    lines = tmux.shows("200 columns", lambda lines: len(lines[0]) == 200)
    assert any(line.startswith("HOST") and line.endswith("SEEN") for line in lines)
    assert sum(line.startswith("host3") for line in lines) >= 2
    tmux.resize(80, 24)
    tmux.shows("80 columns", lambda lines: len(lines[0]) == 80)

    tmux.keys("q")
    tmux.shows("the screen from before", lambda lines: "before" in lines)
    tmux.types('echo "$(stty -g | cksum)"; echo again')
    again = tmux.shows("the settings again", lambda lines: "again" in lines)[3:]
    assert any(line.endswith(settings) for line in again)
    assert tmux.says("#{cursor_flag} #{alternate_on}") == "1 0"

    tmux.types(f"clear; NO_COLOR=1 {top}")
    tmux.shows("two hosts", lambda lines: sum("GiB" in line for line in lines) == 2)
    assert not any(f"\x1b[{colour}m" in tmux.painted() for colour in (31, 32, 33))
    tmux.keys("C-c")
    tmux.types("echo it was $?")
    tmux.shows("its exit status", lambda lines: any(line.endswith("it was 130") for line in lines))
    tmux.resize(80, 60)
    tmux.types(f"clear; TERM=dumb {top}")
    lines = tmux.shows(
        "two tables, one below the other", lambda lines: sum(line.startswith("HOST") for line in lines) >= 2
    )
    assert not any("q ends" in line for line in lines)
    assert tmux.says("#{alternate_on}") == "0"
