"""Units really kept: small commands, real keepers, in a state of their own."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from medley import process_identity, storage
from medley.cluster import events, units
from medley.cluster.restart_rule import Restart
from medley.cluster.unit_file import Unit
from medley.command import Command
from tests.problems import raises_problem
from tests.servers import alive
from tests.waiting import wait_for
from tests.wall_clock import WallClock

SLEEPS = ("sh", "-c", "echo begun; exec sleep 600")
HALF = '{"name": "medl'


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    yield
    for file in units.get_units_folder().glob("*.json"):
        units.stop_unit(file.stem)


def unit(*argv: str, restart: Restart | None = None, after: Command | None = None) -> Unit:
    return Unit("medley-x", "a test", Command(argv, {"WHO": "é x"}), restart, after)


def running(name: str = "medley-x") -> int | None:
    """The process that the keeper started."""
    found = units.read_state(name)
    children = process_identity.list_descendants(found.keeper) if found and found.running else set()
    return min((each.pid for each in children), default=None)


def runs(description: str = "the unit runs") -> int:
    """Wait until the keeper has started a process; return its number."""
    return wait_for(description, running, state=units.list_states)


def becomes(description: str, true: Callable[[units.UnitState], object]) -> None:
    """Wait until that is true of the unit's state; a unit that is not there has an empty one."""
    wait_for(description, lambda: true(units.read_state("medley-x") or none()), state=units.list_states)


def test_it_outlives_who_started_it_and_ends_when_told() -> None:
    units.start_unit(unit(*SLEEPS))
    pid = runs()
    found = units.read_state("medley-x")
    assert found
    assert os.getsid(found.keeper) == found.keeper
    wait_for(
        "it prints",
        lambda: units.read_last_log_lines("medley-x") == ["begun"],
        state=lambda: units.read_last_log_lines("medley-x"),
    )
    assert units.stop_unit("medley-x")
    assert not alive(pid)
    assert not alive(found.keeper)
    assert units.read_state("medley-x") is None
    assert not list(units.get_units_folder().iterdir())
    assert not units.stop_unit("medley-x")


def test_started_again_it_takes_the_place_of_the_first() -> None:
    units.start_unit(unit(*SLEEPS))
    first = runs()
    units.start_unit(unit(*SLEEPS))
    runs("the second runs")
    assert not alive(first)
    assert [state.name for state in units.list_states()] == ["medley-x"]


def test_killed_it_starts_anew_later_each_time() -> None:
    units.start_unit(unit(*SLEEPS, restart=Restart(first_s=0.1, longest_s=0.2, limit=2)))
    for restarts in (1, 2, 2):
        pid = runs()
        os.kill(pid, signal.SIGKILL)
        wait_for("it has ended", lambda: not alive(pid))  # noqa: B023 - used before the next one
        becomes(f"it has restarted {restarts} times", lambda state: state.restarts == restarts)  # noqa: B023 - the same
    becomes("it is given up", lambda state: not state.running)
    found = units.read_state("medley-x")
    assert found
    assert (found.running, found.next_s, found.status) == (False, None, 137)
    assert found.said == "begun"
    noted = [(each.kind, each.text) for each in events.read_events()]
    assert noted[0] == ("restart", "restart 1 in 0 s: it ended with 137: begun")
    assert noted[-1] == ("fault", "given up after restart 2: it ended with 137: begun")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, to set a clock")
def test_a_clock_that_is_set_back_delays_no_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WallClock(tmp_path)
    for name, value in clock.variables.items():
        monkeypatch.setenv(name, value)
    units.start_unit(unit(*SLEEPS, restart=Restart(first_s=5)))
    pid = runs()
    os.kill(pid, signal.SIGKILL)
    becomes("it waits for its restart", lambda state: state.next_s)
    clock.set_ahead(-3600)
    wait_for("it runs again", lambda: running() not in {None, pid}, state=units.list_states)
    assert (units.read_state("medley-x") or none()).since_s < time.time() - 3000, "its clock was not set"


def none() -> units.UnitState:
    return units.UnitState("none", 0, running=False, since_s=0)


def test_one_that_runs_once_says_how_it_ended() -> None:
    units.start_unit(unit("sh", "-c", "echo out of luck; exit 7"))
    becomes("it has ended", lambda state: state.status == 7)
    becomes("its keeper has ended", lambda state: not state.kept)
    found = units.read_state("medley-x")
    assert found
    assert (found.running, found.said, found.next_s) == (False, "out of luck", None)


def test_a_keeper_that_is_killed_takes_it_along_and_a_boot_brings_it_back() -> None:
    units.start_unit(unit(*SLEEPS, restart=Restart()))
    pid = runs()
    found = units.read_state("medley-x")
    assert found
    os.kill(found.keeper, signal.SIGKILL)
    wait_for("it has ended", lambda: not alive(pid))
    assert (units.read_state("medley-x") or none()).kept is False
    assert units.resume_units() == ["medley-x"]
    runs("it runs again")
    assert units.resume_units() == []


def test_it_has_its_variables_and_after_it_has_started_something_is_run() -> None:
    says = ("sh", "-c", 'echo "$WHO"; exec sleep 600')
    units.start_unit(unit(*says, after=Command(("sh", "-c", "sleep 0.1; echo after"))))
    wait_for(
        "both have printed",
        lambda: units.read_last_log_lines("medley-x") == ["é x", "after"],
        state=lambda: units.read_last_log_lines("medley-x"),
    )


@pytest.mark.parametrize(("suffix", "texts"), [("state", (HALF, "")), ("json", ("", HALF))])
def test_a_file_that_lost_a_part_keeps_nothing_from_ending(suffix: str, texts: tuple[str, str]) -> None:
    units.start_unit(unit(*SLEEPS))
    pid = runs()
    for text in texts:
        (units.get_units_folder() / f"medley-x.{suffix}").write_text(text)
        assert (units.read_state("medley-x") or none()).running
    assert units.stop_unit("medley-x")
    assert not alive(pid)


@pytest.mark.parametrize("done", range(8))
def test_it_waits_twice_as_long_each_time(done: int) -> None:
    assert Restart(first_s=2, longest_s=60).compute_next(done, 0) == (done + 1, min(60, 2 * 2**done))


@pytest.mark.parametrize(
    ("lasted_s", "due"),
    [
        pytest.param(None, None, id="never ready"),
        pytest.param(119, None, id="not long enough"),
        pytest.param(120, (1, 2), id="long enough for the row to begin anew"),
    ],
)
def test_it_is_given_up_after_so_many_in_a_row(lasted_s: float | None, due: object) -> None:
    rule = Restart(first_s=2, limit=3, lasting_s=120)
    assert rule.compute_next(2, lasted_s) == ((3, 8) if due is None else due)
    assert rule.compute_next(3, lasted_s) == due


def test_a_unit_is_read_as_it_was_written() -> None:
    made = Unit("a", "b", Command(("x", "$(y)\n"), {"A": "'"}, ("B",)), Restart(limit=3), Command(("z",)), 4)
    assert Unit.from_json(made.to_json()) == made


def test_a_unit_ends_with_its_vital_part_and_starts_anew() -> None:
    """As `ray start --block`, which stays when its raylet is gone: nothing saw that the host was out."""
    named = "import time; open('/proc/self/comm', 'w').write('vitalpart'); time.sleep(600)"
    words = ("sh", "-c", f'{sys.executable} -c "{named}" & while :; do sleep 0.2; done')
    units.start_unit(Unit("medley-x", "x", Command(words), Restart(first_s=0.2), vital=("vitalpart",)))

    def vital() -> int | None:
        state = units.read_state("medley-x")
        below = process_identity.list_descendants(state.keeper) if state else set()
        return next((each.pid for each in below if each.name == "vitalpart"), None)

    first = wait_for("the vital part runs", vital)
    time.sleep(3)  # its keeper looks every second, and nothing tells of a look
    os.kill(first, signal.SIGKILL)
    wait_for("another vital part runs", lambda: vital() not in {None, first}, state=units.list_states)
    assert any(
        "vitalpart is gone" in line for line in units.get_log_file("medley-x").read_text().splitlines()
    )
    state = units.read_state("medley-x")
    assert state
    assert state.restarts == 1
    assert units.stop_unit("medley-x")


def test_what_is_started_already_is_not_replaced_unseen() -> None:
    """A second `serve --detach` took the place of the first while that one began, and both said that all
    was well."""
    with units.claim_start("medley-x"):
        with (
            raises_problem("medley-x", fix=("medley stop", "--port 8001")),
            units.claim_start("medley-x"),
        ):
            pass
        units.start_unit(unit(*SLEEPS))
    pid = runs()
    with (
        raises_problem("medley-x", fix=("medley stop", "--port 8001")),
        units.claim_start("medley-x"),
    ):
        pass
    assert running() == pid
    units.stop_unit("medley-x")
    with units.claim_start("medley-x"):
        pass


def test_one_of_the_same_name_in_another_state_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "other"))
    units.start_unit(unit(*SLEEPS))
    other = runs()
    try:
        monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
        units.start_unit(unit(*SLEEPS))
        assert runs() != other
        assert units.stop_unit("medley-x")
        assert alive(other)
    finally:
        monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "other"))
        units.stop_unit("medley-x")
    assert not alive(other)


NAME = "medley-x"
Keep = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def keep() -> Iterator[Keep]:
    """Starts the keeper of a unit that runs this shell script."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, restart: Restart | None = None, **more: object) -> "subprocess.Popen[str]":
        command = Command(("sh", "-c", script), **more)  # type: ignore[arg-type] # a table's values
        storage.write_text(
            units.get_units_folder() / f"{NAME}.json",
            Unit(NAME, "x", command, restart, stop_limit_s=0.5).to_json(),
        )
        return again()

    def again() -> "subprocess.Popen[str]":
        words = (sys.executable, "-m", "medley", "kept", NAME)
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    start.again = again  # type: ignore[attr-defined] # the same unit once more
    yield start
    for each in started:
        each.terminate()
        each.communicate(timeout=20)


def lines() -> list[str]:
    log = units.get_log_file(NAME)
    return log.read_text().splitlines() if log.exists() else []


def test_each_line_has_its_time_and_the_status_is_the_keepers(keep: Keep) -> None:
    keeper = keep("echo one; echo two >&2; exit 7")
    assert keeper.wait(20) == 7
    assert [line.partition(" ")[2] for line in lines()][1:] == ["one", "two"]
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ", line) for line in lines())
    assert lines()[0].partition(" ")[2].startswith(f"{units.STARTED_PREFIX}{NAME}: ")


def test_a_second_keeper_of_a_unit_leaves_the_first_alone(keep: Keep) -> None:
    first = keep("echo up; exec sleep 600")
    wait_for("it has begun and printed", lambda: len(lines()) == 2, state=lines)
    assert keep.again().wait(20) == 1  # type: ignore[attr-defined] # as above
    assert first.poll() is None
    found = units.read_state(NAME)
    assert found
    assert (found.keeper, found.running) == (first.pid, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_told_to_end_it_leaves_nothing_behind(keep: Keep, number: signal.Signals) -> None:
    keeper = keep("trap '' TERM; setsid sleep 600 & echo $!; wait")
    wait_for("it has begun and printed", lambda: len(lines()) == 2, state=lines)
    grandchild = process_identity.find_identity(int(lines()[1].partition(" ")[2]))
    assert grandchild
    keeper.send_signal(number)
    assert keeper.wait(60) != 0
    wait_for("the grandchild ends", lambda: not grandchild.is_alive)


def test_what_a_killed_keeper_may_have_left_is_undone_before_each_start(keep: Keep, tmp_path: Path) -> None:
    undone = tmp_path / "undone"
    keeper = keep(f"cat {undone}; exit 1", undo=("sh", "-c", f"echo cleared >> {undone}"))
    assert keeper.wait(20) == 1
    assert [line.partition(" ")[2] for line in lines()][1:] == ["cleared"]


def test_a_log_that_is_too_long_is_put_aside(keep: Keep) -> None:
    log = units.get_log_file(NAME)
    storage.make_folder(log.parent)
    with log.open("wb") as file:
        file.truncate((64 << 20) + 1)
    keep("echo anew").wait(20)
    assert [line.partition(" ")[2] for line in lines()][1:] == ["anew"]
    assert log.with_name(f"{log.name}.1").stat().st_size > 64 << 20


def test_it_waits_longer_each_time_and_then_gives_up(keep: Keep) -> None:
    keeper = keep("echo out of luck; exit 3", Restart(first_s=0.1, longest_s=0.2, limit=2, lasting_s=60))
    wait_for(
        "it has run three times",
        lambda: sum(line.endswith(" out of luck") and "keeps" not in line for line in lines()) == 3,
        state=lines,
    )
    wait_for(
        "it is given up",
        lambda: (found := units.read_state(NAME)) and not found.running and found.next_s is None,
        state=units.list_states,
    )
    found = units.read_state(NAME)
    assert found
    assert (found.restarts, found.next_s, found.kept) == (2, None, True)
    assert (found.status, found.said) == (3, "out of luck")
    assert keeper.poll() is None


def test_a_unit_that_lost_a_part_is_not_kept(keep: Keep) -> None:
    keep("true").wait(20)
    storage.write_text(units.get_units_folder() / f"{NAME}.json", '{"name": "medley-x"')
    keeper = keep.again()  # type: ignore[attr-defined] # as above
    said, _ = keeper.communicate(timeout=20)
    assert keeper.returncode == 1
    assert "cannot be restarted" in said
