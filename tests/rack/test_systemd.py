"""Units of a real systemd: it hands on every word, starts them again, and leaves nothing of them."""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from medley.cluster.restart_rule import Restart
from medley.cluster.unit_file import Unit
from medley.command import Command
from tests.rack.conftest import Up
from tests.rack.host import Host
from tests.rack.systemd_manager import manager
from tests.waiting import wait_for

pytestmark = pytest.mark.rack

NAME = "medley-x"
TELL = (
    "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open('/tmp/told.new', 'w'));"
    " os.rename('/tmp/told.new', '/tmp/told')"
)
ODD = (
    "a \"b\" 'c'",
    "%h 100%",
    "$HOME ${HOME} $$",
    "\\n \\",
    "line\nline\tx",
    ";",
    "",
    "é ✓",
    "-",
    "@x",
    "#",
)
CALL = """\
import json, sys
from medley.cluster import systemd
from medley.cluster.unit_file import Unit
verb, word = sys.argv[1:]
words = [Unit.from_json(word) if verb == "start_unit" else word] if word else []
found = getattr(systemd, verb)(*words)
print(json.dumps(found.to_table() if verb == "read_state" and found else found))
"""


@pytest.fixture
def host(rack: Up) -> Iterator[Host]:
    (one,) = rack(1).hosts
    with manager(one):
        yield one


def call(host: Host, verb: str, word: str = "") -> Any:
    """What medley.systemd answers on the host."""
    return json.loads(host.says(sys.executable, "-c", CALL, verb, word).splitlines()[-1])


def start(host: Host, unit: Unit) -> None:
    call(host, "start_unit", unit.to_json())


def python(code: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *words)


def test_every_argument_and_variable_arrives_as_it_was(host: Host) -> None:
    env = {f"ODD_{number}": word for number, word in enumerate(ODD)}
    stays = f"{TELL}; import time; time.sleep(600)"
    start(host, Unit(NAME, "odd", Command(python(stays, *ODD), env)))
    told = host.path("/tmp/told")
    wait_for("the unit has written what it was given", told.exists, 60)
    words, seen = json.loads(told.read_text())
    assert tuple(words) == ODD
    assert {name: seen.get(name) for name in env} == env


def test_it_runs_and_is_ended_with_all_it_started(host: Host) -> None:
    assert call(host, "is_available") is True
    assert call(host, "read_state", NAME) is None
    start(host, Unit(NAME, "x", Command(("/bin/sh", "-c", "sleep 601 & sleep 602; :")), Restart()))
    found = call(host, "read_state", NAME)
    assert (found["active_state"], found["restart_count"]) == ("active", 0)
    wait_for("its child runs", lambda: host.run(["pgrep", "-f", "sleep 601"]).status == 0)
    for _ in range(2):
        call(host, "stop_unit", NAME)
    assert call(host, "read_state", NAME) is None
    assert host.run(["pgrep", "-f", "sleep 60[12]"]).status == 1
    assert not host.path(f"/tmp/home/.config/systemd/user/{NAME}.service").exists()


def test_it_starts_anew_and_again_when_it_is_started_again(host: Host) -> None:
    rule = Restart(first_s=0.5, longest_s=0.5)
    start(host, Unit(NAME, "x", Command(("/bin/sh", "-c", "exit 3")), rule))

    def failed_often() -> bool:
        found = call(host, "read_state", NAME)  # between two starts: while it runs there is no status yet
        return bool(found["exit_status"] == 3 and found["restart_count"] > 3)

    wait_for("it was started four times", failed_often, 60, state=lambda: call(host, "read_state", NAME))
    start(host, Unit(NAME, "x", Command(("/bin/sleep", "600")), rule))
    assert call(host, "read_state", NAME)["active_state"] == "active"


def test_a_program_that_is_not_there_is_a_problem(host: Host) -> None:
    unit = Unit(NAME, "x", Command(("/bin/no-such-program",)), None)
    finished = host.run(Command(python(CALL, "start_unit", unit.to_json())))
    assert finished.status == 1
    assert any("Problem: systemd refused: systemctl --user" in line for line in finished.lines), (
        finished.lines
    )


def test_nobody_lingers_where_no_logind_is(host: Host) -> None:
    assert call(host, "is_lingering") is False


def test_without_a_manager_there_is_none(rack: Up) -> None:
    (one,) = rack(1).hosts
    assert call(one, "is_available") is False


def test_a_keeper_of_medleys_is_kept_by_it(host: Host) -> None:
    """As `up` starts Ray where the user lingers: the same states and logs as elsewhere."""
    unit = Unit("medley-x", "a test", Command(("sh", "-c", "echo begun; exec sleep 600"), path()), Restart())
    do = "import sys; from medley.cluster import units; from medley.cluster.unit_file import Unit; "
    env = {"MEDLEY_UNITS": "systemd"}

    def python(text: str) -> str:
        said = host.run(Command((sys.executable, "-c", do + text, unit.to_json()), env))
        assert said.status == 0, said.lines
        return said.lines[-1] if said.lines else ""

    python("units.start_unit(Unit.from_json(sys.argv[1]))")
    assert host.says("systemctl", "--user", "is-active", "medley-x") == "active"
    wait_for("the unit has begun", lambda: "begun" in python("print(units.read_last_log_lines('medley-x'))"))
    keeper = python("print(units.read_state('medley-x').keeper)")
    host.says("kill", "-KILL", keeper)
    asked = "s = units.read_state('medley-x'); print(s.kept and s.keeper)"
    wait_for(
        "another supervisor keeps it",
        lambda: python(asked) not in {keeper, "False"},
        60,
        state=lambda: python(asked),
    )
    assert python("print(units.stop_unit('medley-x'))") == "True"
    assert "sleep 600" not in host.says("ps", "-eo", "args")
    assert python("print(units.read_state('medley-x'))") == "None"


def path() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/tmp/home", "MEDLEY_STATE": "/tmp/home/.local/state/medley"}
