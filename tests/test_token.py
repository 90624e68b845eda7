import stat
from pathlib import Path

import pytest

from medley import token
from medley.problem import Problem


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_made_once_and_for_its_owner_alone() -> None:
    file = token.made()
    text = file.read_text()
    assert len(text) == 64
    assert mode(file) == 0o600
    assert token.made().read_text() == text


def test_one_that_was_left_open_is_closed() -> None:
    token.made().chmod(0o644)
    assert mode(token.present()) == 0o600


def test_a_brought_one_takes_its_place_only_when_it_is_kept() -> None:
    mine = token.made().read_text()
    brought = token.brought("  another-token-of-a-cluster-of-mine\n", "x")
    assert mode(brought) == 0o600
    assert token.present().read_text() == mine
    assert (
        token.keep(brought).read_text() == token.present().read_text() == "another-token-of-a-cluster-of-mine"
    )


@pytest.mark.parametrize("text", ["", "short", "two words of a sentence", "x" * 300])
def test_what_is_no_token_is_a_problem(text: str) -> None:
    with pytest.raises(Problem, match="holds no token"):
        token.brought(text, "standard input")


def test_none_is_a_problem() -> None:
    with pytest.raises(Problem, match="has no token") as caught:
        token.present()
    assert "--token-file" in caught.value.fix
