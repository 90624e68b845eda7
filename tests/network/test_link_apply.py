"""A change is made whole or not at all, and is taken back."""

import json
from pathlib import Path

import pytest

from medley import storage
from medley.command import Command
from medley.network import link_apply
from medley.network.link_backends import Change, FileChange
from medley.process import Process
from medley.transcript import Answer
from tests.problems import raises_problem


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    return tmp_path


def written(folder: Path, text: str, *, commands: tuple[str, ...] = (), undo: tuple[str, ...] = ()) -> Change:
    path = folder / "net.yaml"
    old = path.read_text() if path.exists() else None
    return Change(
        tuple(Command(("sh", "-c", each)) for each in commands),
        tuple(Command(("sh", "-c", each)) for each in undo),
        FileChange(path, text, old),
    )


def test_changes_are_taken_back_newest_first(state: Path) -> None:
    path = state / "net.yaml"
    link_apply.apply_change(written(state, "one\n", undo=(f"echo first >>{state}/log",)))
    link_apply.apply_change(written(state, "two\n", undo=(f"echo second >>{state}/log",)))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "two\n"
    link_apply.undo_change()
    assert path.read_text() == "one\n"
    link_apply.undo_change()
    assert not path.exists()
    assert (state / "log").read_text() == "second\nfirst\n"
    with raises_problem(cause="/links.json", fix="ip -brief address"):
        link_apply.undo_change()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param("echo no such link; exit 2", "no such link", id="with a word"),
        pytest.param("exit 3", "it exited with 3", id="without"),
    ],
)
def test_a_step_that_fails_leaves_all_as_it_was(state: Path, command: str, said: str) -> None:
    path = state / "net.yaml"
    path.write_text("by hand\n")
    with raises_problem(cause="sh -c ", fix="--with ip") as raised:
        link_apply.apply_change(
            written(state, "ours\n", commands=(command,), undo=(f"touch {state}/undone",))
        )
    assert said in raised.value.cause
    assert path.read_text() == "by hand\n"
    assert (state / "undone").exists()
    assert json.loads((storage.find_state_folder() / "links.json").read_text()) == []


def test_a_failed_step_names_what_was_not_taken_back(state: Path) -> None:
    """It once said that the change was undone, although a command that undoes it had failed."""
    change = written(state, "ours\n", commands=("exit 3",), undo=("exit 2", "true"))
    with raises_problem("1 of the commands", cause="exited with 3", fix="sh -c 'exit 2'") as raised:
        link_apply.apply_change(change)
    assert "true" not in raised.value.fix
    assert link_apply.load_records() == []


def test_a_file_that_somebody_changed_is_not_overwritten(state: Path) -> None:
    link_apply.apply_change(written(state, "ours\n"))
    (state / "net.yaml").write_text("theirs\n")
    with raises_problem("net.yaml", fix="medley link setup --undo --force"):
        link_apply.undo_change()
    assert (state / "net.yaml").read_text() == "theirs\n"
    link_apply.undo_change(force=True)
    assert not (state / "net.yaml").exists()


def test_what_cannot_be_taken_back_is_said(state: Path) -> None:
    link_apply.apply_change(written(state, "ours\n", undo=("exit 2",)))
    with raises_problem(cause="1 command", fix="sh -c 'exit 2'"):
        link_apply.undo_change()


def test_who_is_logged_in_is_found_by_any_process() -> None:
    """As sudo would start it: our own environment has nothing of it."""
    process = Process(
        Command(("sleep", "30"), env={"SSH_CONNECTION": "fe80::1%eth7 5000 10.9.8.7 22"}), lambda _: None
    )
    try:
        found = link_apply.map_ssh_sessions()
    finally:
        process.stop()
    assert found["10.9.8.7"] == found["eth7"] == "fe80::1%eth7"


OURS = "network:\n  version: 2\n"


def asked(**said: str) -> dict[str, Answer]:
    """Answers to the questions that `managers` names so; all others fail."""
    known = {getattr(link_apply, f"{name}_QUESTION"): Answer(text) for name, text in said.items()}
    return {question: known.get(question, Answer("", 1)) for question in link_apply.MANAGER_QUESTIONS}


PROGRAMS = "/usr/sbin/netplan\n/usr/bin/nmcli\n"


@pytest.mark.parametrize(
    ("said", "named", "chosen"),
    [
        pytest.param({}, None, "ip", id="nobody"),
        pytest.param({"PROGRAMS": PROGRAMS}, None, "ip", id="programs that keep nothing"),
        pytest.param(
            {"PROGRAMS": PROGRAMS, "NETPLANS": "/etc/netplan/01.yaml\n", "NETWORK_MANAGER": "running\n"},
            None,
            "netplan",
            id="netplan before NetworkManager, which it may drive",
        ),
        pytest.param(
            {"PROGRAMS": PROGRAMS, "NETWORK_MANAGER": "running\n"}, None, "networkmanager", id="a Jetson"
        ),
        pytest.param({"PROGRAMS": PROGRAMS, "NETWORK_MANAGER": "running\n"}, "ip", "ip", id="named"),
        pytest.param({"MARKS": "/etc/NIXOS\n", "NETWORK_MANAGER": "running\n"}, None, "nixos", id="NixOS"),
    ],
)
def test_who_keeps_addresses(
    said: dict[str, str], named: link_apply.AddressProgram | None, chosen: str
) -> None:
    assert link_apply.find_address_manager(asked(**said), named).program == chosen


def test_a_manager_that_is_not_there_is_a_problem() -> None:
    with raises_problem("netplan", cause="ip", fix="--with ip"):
        link_apply.find_address_manager(asked(), "netplan")


def test_what_is_there_of_ours_is_read() -> None:
    found = link_apply.find_address_manager(
        asked(
            NETPLANS="/etc/netplan/60-medley.yaml\n",
            MEDLEY_NETPLAN=OURS,
            MEDLEY_PROFILES="medley-eth1 10.9.0.1/24 4000 \n",
            ACTIVE_CONNECTIONS="11112222-aaaa:eth1\n",
            UP_LINKS="lo UNKNOWN 00:00\neth1@if4 UP 02:00\n",
        )
    )
    assert (found.medley_netplan, found.is_netplan_readable) == (OURS, True)
    assert found.profiles == {"eth1": ("10.9.0.1/24", "4000")}
    assert found.active == {"eth1": "11112222-aaaa"}
    assert found.up == {"lo", "eth1"}
    assert not link_apply.find_address_manager(
        asked(NETPLANS="/etc/netplan/60-medley.yaml\n")
    ).is_netplan_readable
