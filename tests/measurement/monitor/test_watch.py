"""Watching real agents on this host: rates come, one that is silent holds up nobody, one comes back."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from medley.cluster.remote import Remote
from medley.command import Command
from medley.measurement.monitor.watch import FleetWatch, HostStatus
from medley.process_identity import list_descendants
from tests.waiting import wait_for

AGENT = Command((sys.executable, "-m", "medley", "agent"))


def agent() -> Remote:
    return Remote("here", "here", AGENT)


def silent() -> Remote:
    """It neither answers nor ends."""
    return Remote("silent", "silent", Command(("sleep", "60")))


def wait_until(
    description: str, watching: FleetWatch, true: Callable[[dict[str, HostStatus]], bool]
) -> dict[str, HostStatus]:
    def seen() -> dict[str, HostStatus] | None:
        return statuses if true(statuses := watching.read_statuses()) else None

    return wait_for(description, seen, state=watching.read_statuses)


def test_one_that_is_silent_holds_up_nobody_and_all_end_at_once() -> None:
    old_processes = list_descendants(os.getpid())
    with FleetWatch({"here": agent, "silent": silent}, 0.5) as watching:
        statuses = wait_until("rates come", watching, lambda seen: seen["here"].rates is not None)
        assert statuses["here"].table["answers"]
        assert not statuses["silent"].table["answers"]
        assert statuses["silent"].rates is None
        status = watching.sample_now(0.3)["here"]
        assert status.age_s is not None
        assert status.age_s < 10
        start = time.monotonic()
    assert time.monotonic() - start < 40, "and not the minute that one of them takes"
    assert list_descendants(os.getpid()) <= old_processes


def test_one_that_is_lost_is_shown_with_its_last_values_and_comes_back(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.touch()
    gate = Command(("sh", "-c", f'test -e {allowed} || exit 1; exec "$0" "$@"', *AGENT.argv))
    with FleetWatch({"here": lambda: Remote("here", "here", gate)}, 0.5) as watching:
        wait_until("rates come", watching, lambda seen: seen["here"].rates is not None)
        allowed.unlink()
        for child in list_descendants(os.getpid()):
            child.signal(signal.SIGKILL)
        lost = wait_until("it is lost", watching, lambda seen: seen["here"].problem is not None)["here"]
        assert lost.rates is not None
        assert lost.age_s is not None
        assert lost.table["problem"]["fix"]
        allowed.touch()
        back = wait_until("it is back", watching, lambda seen: seen["here"].problem is None)["here"]
        assert back.age_s is not None
        assert back.age_s < lost.age_s + 10
