"""A change is made whole or not at all, and is taken back."""

import json
from pathlib import Path

import pytest

from medley import machine, store
from medley.command import Command
from medley.link import applying
from medley.link.change import Change, File
from medley.problem import Problem


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    return tmp_path


def written(folder: Path, text: str, *, commands: tuple[str, ...] = (), undo: tuple[str, ...] = ()) -> Change:
    path = folder / "net.yaml"
    old = path.read_text() if path.exists() else None
    return Change(
        "netplan",
        tuple(Command(("sh", "-c", each)) for each in commands),
        tuple(Command(("sh", "-c", each)) for each in undo),
        File(path, text, old),
    )


def test_changes_are_taken_back_newest_first(state: Path) -> None:
    path = state / "net.yaml"
    applying.apply(written(state, "one\n", undo=(f"echo first >>{state}/log",)))
    applying.apply(written(state, "two\n", undo=(f"echo second >>{state}/log",)))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "two\n"
    applying.undo()
    assert path.read_text() == "one\n"
    applying.undo()
    assert not path.exists()
    assert (state / "log").read_text() == "second\nfirst\n"
    with pytest.raises(Problem, match="there is nothing to undo"):
        applying.undo()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param("echo no such link; exit 2", "no such link", id="with a word"),
        pytest.param("exit 3", "it ended with 3", id="without"),
    ],
)
def test_a_step_that_fails_leaves_all_as_it_was(state: Path, command: str, said: str) -> None:
    path = state / "net.yaml"
    path.write_text("by hand\n")
    with pytest.raises(Problem, match="the links are as they were") as raised:
        applying.apply(written(state, "ours\n", commands=(command,), undo=(f"touch {state}/undone",)))
    assert said in raised.value.cause
    assert path.read_text() == "by hand\n"
    assert (state / "undone").exists()
    assert json.loads((store.state() / "links.json").read_text()) == []


def test_a_file_that_somebody_changed_is_not_overwritten(state: Path) -> None:
    applying.apply(written(state, "ours\n"))
    (state / "net.yaml").write_text("theirs\n")
    with pytest.raises(Problem, match="is not as medley wrote it"):
        applying.undo()
    assert (state / "net.yaml").read_text() == "theirs\n"
    applying.undo(force=True)
    assert not (state / "net.yaml").exists()


def test_what_cannot_be_taken_back_is_said(state: Path) -> None:
    applying.apply(written(state, "ours\n", undo=("exit 2",)))
    with pytest.raises(Problem, match="not everything") as raised:
        applying.undo()
    assert "sh -c 'exit 2'" in raised.value.fix


def test_who_is_logged_in_is_found_by_any_process() -> None:
    """As sudo would start it: our own environment has nothing of it."""
    process = machine.Process(
        Command(("sleep", "30"), env={"SSH_CONNECTION": "fe80::1%eth7 5000 10.9.8.7 22"}), lambda _: None
    )
    try:
        found = applying.sessions()
    finally:
        process.stop()
    assert found["10.9.8.7"] == found["eth7"] == "fe80::1%eth7"
