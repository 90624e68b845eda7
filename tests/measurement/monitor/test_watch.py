"""Watching real agents on this host: rates come, one that is silent holds up nobody, one comes back."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from medley.cluster.remote import Remote
from medley.command import Command
from medley.measurement.monitor.watch import Seen, Watching
from medley.process_identity import descendants
from tests.waiting import wait_for

AGENT = Command((sys.executable, "-m", "medley", "agent"))


def agent() -> Remote:
    return Remote("here", "here", AGENT)


def silent() -> Remote:
    """It neither answers nor ends."""
    return Remote("silent", "silent", Command(("sleep", "60")))


def until(description: str, watching: Watching, true: Callable[[dict[str, Seen]], bool]) -> dict[str, Seen]:
    def seen() -> dict[str, Seen] | None:
        return found if true(found := watching.seen()) else None

    return wait_for(description, seen, state=watching.seen)


def test_one_that_is_silent_holds_up_nobody_and_all_end_at_once() -> None:
    before = descendants(os.getpid())
    with Watching({"here": agent, "silent": silent}, 0.5) as watching:
        found = until("rates come", watching, lambda seen: seen["here"].rates is not None)
        assert found["here"].table["answers"]
        assert not found["silent"].table["answers"]
        assert found["silent"].rates is None
        fresh = watching.fresh(0.3)["here"]
        assert fresh.age_s is not None
        assert fresh.age_s < 10
        began = time.monotonic()
    assert time.monotonic() - began < 40, "and not the minute that one of them takes"
    assert descendants(os.getpid()) <= before


def test_one_that_is_lost_is_shown_with_its_last_values_and_comes_back(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.touch()
    gate = Command(("sh", "-c", f'test -e {allowed} || exit 1; exec "$0" "$@"', *AGENT.argv))
    with Watching({"here": lambda: Remote("here", "here", gate)}, 0.5) as watching:
        until("rates come", watching, lambda seen: seen["here"].rates is not None)
        allowed.unlink()
        for each in descendants(os.getpid()):
            each.signal(signal.SIGKILL)
        lost = until("it is lost", watching, lambda seen: seen["here"].problem is not None)["here"]
        assert lost.rates is not None
        assert lost.age_s is not None
        assert lost.table["problem"]["fix"]
        allowed.touch()
        back = until("it is back", watching, lambda seen: seen["here"].problem is None)["here"]
        assert back.age_s is not None
        assert back.age_s < lost.age_s + 10
