from dataclasses import replace
from pathlib import Path

import pytest

from medley import fingerprint, pin
from medley.problem import Problem
from medley.remote_code import Code
from medley.tables import RemoteCode

ONE, TWO = fingerprint.of_bytes(b"1"), fingerprint.of_bytes(b"2")
FOLDER = Code("/models/x", {"a.py": ONE, "b.py": TWO})
COMMIT = "1" * 40
HUB = Code("org/x", {"a.py": ONE}, COMMIT)


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def require(code: Code, asked: str | None = None, listed: RemoteCode | None = None) -> None:
    pin.require(code, asked, pin.read(code.where), listed)


def test_first_use_is_trusted_and_kept() -> None:
    assert pin.read(FOLDER.where) is None
    require(FOLDER)
    pin.keep(FOLDER)
    pin.keep(HUB)
    kept = pin.read(FOLDER.where)
    assert kept is not None
    assert (kept.fingerprint, kept.commit) == (FOLDER.fingerprint, None)
    assert getattr(pin.read("org/x"), "commit", None) == COMMIT
    require(FOLDER)


def test_what_has_changed_is_a_problem_that_names_both() -> None:
    pin.keep(FOLDER)
    now = replace(FOLDER, files={"a.py": ONE, "c.py": TWO})
    with pytest.raises(Problem, match="has changed since you trusted it") as caught:
        require(now)
    assert FOLDER.fingerprint in caught.value.cause
    assert now.fingerprint in caught.value.cause
    assert "what differs: b.py, c.py" in caught.value.cause
    assert caught.value.fix.endswith(f"--trust-remote-code --code-revision {now.fingerprint}")


def test_naming_the_new_one_trusts_it() -> None:
    pin.keep(FOLDER)
    now = replace(FOLDER, files={"a.py": TWO})
    require(now, asked=now.fingerprint[:12])
    pin.keep(now)
    require(now)
    with pytest.raises(Problem):
        require(FOLDER)


def test_another_than_the_named_one_is_a_problem() -> None:
    with pytest.raises(Problem, match="not the one that you named") as caught:
        require(FOLDER, asked="0" * 64)
    assert FOLDER.fingerprint in caught.value.cause


def test_one_commit_has_one_content() -> None:
    """Asked for by its name or not: else a hub could answer with anything."""
    pin.keep(HUB)
    spoiled = replace(HUB, files={"a.py": TWO})
    for asked in (None, COMMIT):
        with pytest.raises(Problem, match="has changed"):
            require(spoiled, asked=asked)
    require(replace(spoiled, commit="2" * 40), asked="2" * 40)


def test_what_a_table_lists_must_be_so() -> None:
    require(HUB, listed=RemoteCode(needed=True, files={"a.py": ONE}))
    for files, said in (({"a.py": TWO}, ONE), ({"z.py": TWO}, "missing")):
        with pytest.raises(Problem, match="not the file that the model's table knows") as caught:
            require(HUB, asked=COMMIT, listed=RemoteCode(needed=True, files=files))
        assert TWO in caught.value.cause
        assert said in caught.value.cause
