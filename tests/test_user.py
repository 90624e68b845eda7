"""The user and home of medley, also where the system knows neither."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from medley import storage, user
from medley.errors import Problem

NOBODYS = 54_321
"""A user id without an entry in /etc/passwd, as of `docker run --user`."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user that nobody knows")
def test_a_user_without_a_name_has_a_number_and_no_home() -> None:
    assert answered_as(NOBODYS, "user.read_user_name()", "str(user.find_home())") == [
        str(NOBODYS),
        "/nonexistent",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user that nobody knows")
def test_what_is_kept_without_a_home_is_a_problem_that_names_the_variable() -> None:
    make = "storage.make_folder(storage.find_state_folder())"
    (said,) = answered_as(NOBODYS, f"[each for each in [{make}] if each]")
    assert "export HOME=/path/of/your/own" in said
    assert f"uid {NOBODYS} has no home in /etc/passwd" in said


def answered_as(uid: int, *expressions: str) -> list[str]:
    """Evaluate these in a fork that has become this user, without variables; return texts, also of errors."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        os.environ.clear()
        with os.fdopen(theirs, "w") as out:
            for each in expressions:
                out.write(f"{evaluated(each)!r}\n")
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(ours) as said:
        return [str(eval(line)) for line in said]


def evaluated(expression: str) -> str:
    try:
        return str(eval(expression, {"user": user, "storage": storage}))
    except Problem as problem:
        return str(problem)


def test_a_home_of_the_variable_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user.find_home() == tmp_path
    assert user.expand_home("~/a") == tmp_path / "a"


def test_the_home_of_nobody_stays_as_it_is_written() -> None:
    """Path.expanduser raises RuntimeError for it."""
    assert user.expand_home("~no-such-user/a") == Path("~no-such-user/a")


def test_owners_have_their_number_and_a_name_where_there_is_one() -> None:
    assert user.describe_owner(0) == "root (uid 0)"
    assert user.describe_owner(NOBODYS) == f"uid {NOBODYS}"


def test_help_needs_no_home() -> None:
    """As in a container of a user id without a name."""
    command = (sys.executable, "-m", "medley", "help")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
