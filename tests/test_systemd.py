"""What systemd is told, and how its answers are read; in tests/rack units of a real one run."""

import pytest

from medley.systemd import Shown, lingering, logged, shown, started, stopped, systemctl

RUNS = """\
MainPID=41
Result=success
NRestarts=2
ExecMainStatus=0
LoadState=loaded
ActiveState=active
SubState=running"""
WAITS = """\
MainPID=0
Result=exit-code
NRestarts=3
ExecMainStatus=1
LoadState=loaded
ActiveState=activating
SubState=auto-restart"""
GIVEN_UP = """\
MainPID=0
Result=start-limit-hit
NRestarts=4
ExecMainStatus=1
LoadState=loaded
ActiveState=failed
SubState=failed"""


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(RUNS, Shown("active", "running", "success", 2, 41, 0), id="it runs"),
        pytest.param(WAITS, Shown("activating", "auto-restart", "exit-code", 3, None, 1), id="it waits"),
        pytest.param(GIVEN_UP, Shown("failed", "failed", "start-limit-hit", 4, None, 1), id="given up"),
        pytest.param("LoadState=not-found\nActiveState=inactive\nNRestarts=0", None, id="none of the name"),
        pytest.param("Failed to connect to bus: No medium found", None, id="no manager"),
        pytest.param(
            "LoadState=loaded\nNRestarts=[not set]",
            Shown("inactive", "dead", "success", 0, None, 0),
            id="an older one that says less",
        ),
    ],
)
def test_a_state(said: str, expected: Shown | None) -> None:
    assert shown(said) == expected


@pytest.mark.parametrize(
    ("said", "running", "given_up"), [(RUNS, True, False), (WAITS, False, False), (GIVEN_UP, False, True)]
)
def test_what_a_state_means(said: str, *, running: bool, given_up: bool) -> None:
    found = shown(said)
    assert found
    assert (found.running, found.given_up) == (running, given_up)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(("Linger=yes",), True, id="yes"),
        pytest.param(("Linger=no",), False, id="no"),
        pytest.param(
            ("Failed to get user: User ID 1000 is not logged in or lingering",), False, id="not here"
        ),
    ],
)
def test_lingering(said: tuple[str, ...], *, expected: bool) -> None:
    assert lingering(said) is expected


def words(*commands: object) -> list[str]:
    """Without the variable that a test's own login may lack."""
    return [str(each).partition("systemctl --user --no-pager ")[2] for each in commands]


def test_the_commands_of_a_start() -> None:
    assert words(*started("medley-x", waits=True)) == [
        "daemon-reload",
        "enable --quiet medley-x.service",
        "restart medley-x.service",
    ]
    assert words(started("medley-x", waits=False)[-1]) == ["restart --no-block medley-x.service"]


def test_the_commands_of_a_stop() -> None:
    assert words(*stopped("medley-x")) == ["disable --quiet --now medley-x.service", "daemon-reload"]


def test_the_systems_own_manager() -> None:
    assert systemctl("start", "x", system=True).argv == ("systemctl", "--no-pager", "start", "x")


def test_the_log() -> None:
    assert str(logged("medley-x", 50, follow=True)) == (
        "journalctl --user --no-pager --output=short-iso --unit=medley-x.service --lines=50 --follow"
    )
