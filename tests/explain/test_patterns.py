"""A user's own failures: beside ours or instead of them, wrong ones, and patterns that take too long."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from medley import explain
from medley.cli.explain import ExplainVerb
from medley.cli.info import CheckVerb
from medley.errors import Problem
from medley.explain import diagnosis, patterns
from medley.explain.patterns import Failure, Sign
from medley.explain.user_patterns import PatternMatch, UserPatterns
from medley.process import Process
from tests.explain.test_explain import example, names, of

MINE = r"""
[[failure]]
name = 'coffee-cold'
what = 'the coffee of {who} is cold'
cause = '[it waited {minutes} minutes]'
fix = 'brew again'
signs = [
  { needle = 'offee is cold', pattern = '\b(?P<who>\w+).s coffee is cold(?: for (?P<minutes>\d+))?' },
]
examples = ["RuntimeError: Ada's coffee is cold for 7 minutes\n"]
look_alikes = ["my coffee is colder\n"]
"""
LOG = "RuntimeError: Ada's coffee is cold for 7 minutes\n"
# Each more letter doubles the time of one search.
CATASTROPHE = MINE.replace(r"(?P<who>\w+).s", r"(?P<who>(?:\w|\w\w)+)!.s")
LONG = "RuntimeError: " + "a" * 1000 + "'s coffee is cold for 7 minutes\n"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "config" / "failures"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(MINE)
    return folder / "mine.toml"


@pytest.fixture
def tenfold(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The processes that searched, by a clock that goes ten times as fast as the limits of searches."""
    searchers: list[object] = []
    start = UserPatterns._start  # noqa: SLF001 - each search that is given up costs one

    def started(self: UserPatterns) -> Process:
        searchers.append(found := start(self))
        return found

    def monotonic() -> float:
        return 10 * time.monotonic()

    monkeypatch.setattr(
        "medley.explain.user_patterns.time",
        SimpleNamespace(monotonic=monotonic, thread_time=time.thread_time),
    )
    monkeypatch.setattr("medley.explain.user_patterns._SEARCH_LIMIT_S", 0.1)
    monkeypatch.setattr(UserPatterns, "_start", started)
    return searchers


def test_a_failure_of_ones_own(mine: Path) -> None:
    found = of(LOG)
    assert names(found) == ["coffee-cold"]
    assert found.problems[0].table["what"] == "the coffee of Ada is cold"
    assert found.problems[0].table["cause"] == "it waited 7 minutes"
    assert names(of(example("disk-full"))) == ["disk-full"]
    assert diagnosis.check()[mine] is None


def test_it_replaces_ours_of_the_same_name(mine: Path) -> None:
    mine.write_text(MINE.replace("coffee-cold", "disk-full"))
    assert names(of(LOG)) == ["disk-full"]
    assert names(of(example("disk-full"))) != ["disk-full"]
    checked = diagnosis.check()
    assert checked[mine] is None
    assert [path for path, problem in checked.items() if problem] == []


def test_the_xdg_folder(tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEDLEY_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert names(of(LOG)) == ["unknown-error"]
    (tmp_path / "xdg" / "medley").mkdir(parents=True)
    mine.parent.rename(tmp_path / "xdg" / "medley" / "failures")
    assert names(of(LOG)) == ["coffee-cold"]


@pytest.mark.parametrize(
    ("old", "new", "what", "cause"),
    [
        pytest.param("fix =", "fixx =", "'failure.0.fixx' is wrong", "unknown key", id="a key nobody knows"),
        pytest.param(
            "fix = 'brew again'\n", "", "'failure.0.fix' is missing", "is required", id="a key missing"
        ),
        pytest.param("'offee is cold'", "'deaf'", "needle' is wrong", "3 characters", id="too general"),
        pytest.param("needle =", "neddle =", "neddle' is wrong", "keys are needle", id="a key of a sign"),
        pytest.param(r"(?P<who>\w+)", r"(?P<who>\w+", ":7: 'signs'", "regular expression", id="a pattern"),
        pytest.param("fix =", "unless = '['\nfix =", ":6: 'unless'", "regular", id="an exception"),
        pytest.param(
            "{minutes}", "{hours}", ":5: 'cause'", "a group hours; the groups are minutes, who", id="text"
        ),
        pytest.param(
            "fix =", "over = ['disk-fool']\nfix =", ":6: 'over'", "known failure disk-fool", id="over"
        ),
        pytest.param(
            "Ada's coffee", "Ada's tea", ":10: 'examples'", "1 shows unknown-error", id="an example"
        ),
        pytest.param("examples =", "# examples =", "'examples' of", "needs an example", id="no example"),
        pytest.param("my coffee", "Bob's coffee", ":11: 'look_alikes'", "1 shows coffee-cold", id="alike"),
        pytest.param("what =", "what", "is not TOML", "line 4", id="no TOML"),
    ],
)
def test_check_says_what_is_wrong(mine: Path, old: str, new: str, what: str, cause: str) -> None:
    assert old in MINE
    mine.write_text(MINE.replace(old, new))
    problem = diagnosis.check()[mine]
    assert problem
    assert problem.what.startswith(str(mine))
    assert what in problem.what
    assert cause in problem.cause


def test_check_says_which_name_stands_twice(mine: Path) -> None:
    mine.with_name("more.toml").write_text("\n\n" + MINE)
    wrong = {path: problem for path, problem in diagnosis.check().items() if problem}
    assert [f"{path}:5: 'name' of coffee-cold is wrong" for path in wrong] == [
        problem.what for problem in wrong.values()
    ]
    assert list(wrong) == [mine.with_name("more.toml")]


@pytest.mark.parametrize(("old", "new"), [("fix =", "fixx ="), (r"\w+).s", r"\w+.s")])
def test_a_broken_file_is_a_warning(
    mine: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    mine.write_text(MINE.replace(old, new))
    log = mine.with_name("serve.log")
    log.write_text(example("disk-full"))
    _, status = ExplainVerb.run(["medley explain", str(log)], exit=False)
    said = capsys.readouterr()
    assert status == 1
    assert said.out.startswith("a disk is full")
    assert said.err.startswith(f"medley: known failures left out: {mine}:")
    problem = explain.explain_problem(Problem("it ended", cause="x", fix="y"), log)
    assert problem.cause.startswith("a disk is full")
    assert problem.fix.splitlines()[-1].startswith(f"known failures left out: {mine}:")
    _, status = CheckVerb.run(["medley check"], exit=False)
    assert status == 1
    assert str(mine) in capsys.readouterr().err


def test_a_file_that_is_no_text_harms_no_other(mine: Path) -> None:
    mine.write_bytes(b"\xff\xfe")
    assert names(of(example("disk-full"))) == ["disk-full"]


def test_a_pattern_that_takes_years_is_given_up(mine: Path, tenfold: list[object]) -> None:
    """One search would take 2 to the power of 1000 steps."""
    mine.write_text(CATASTROPHE)
    found = of(LONG + example("disk-full"), LONG * 10)
    assert len(tenfold) == 1, "it is not searched again"
    assert names(found)[0] == "disk-full"
    assert found.warnings == ("known failure coffee-cold left out: its search takes too long",)


def test_so_it_is_in_a_thread_and_when_a_server_dies(mine: Path) -> None:
    """Signals, which could end a search, reach only the main thread."""
    mine.write_text(CATASTROPHE)
    log = mine.with_name("serve.log")
    log.write_text(LONG + example("disk-full"))
    told: list[Problem] = []
    own = Problem("it ended", cause="x", fix="y", status=3)
    thread = threading.Thread(target=lambda: told.append(explain.explain_problem(own, log)), daemon=True)
    thread.start()
    thread.join(60)
    assert told[0].status == 3
    assert told[0].cause.startswith("a disk is full")
    assert "coffee-cold left out" in told[0].fix


def test_many_such_patterns_take_no_longer(mine: Path, tenfold: list[object]) -> None:
    mine.write_text("\n".join(CATASTROPHE.replace("coffee-cold", f"coffee-{at}") for at in range(40)))
    found = of(LONG + example("disk-full"))
    assert 1 <= len(tenfold) <= 6, "each of them took a second of five"
    assert names(found) == ["disk-full"]
    assert len(found.warnings) == 40


def test_all_searches_together_have_a_limit() -> None:
    user = frozenset({"a", "b"})
    one, other = (
        patterns.Failure(name=name, what="w", cause="c", fix="f", signs=(patterns.sign("cold cup"),))
        for name in sorted(user)
    )
    with UserPatterns(user, limit_s=0) as searched:
        assert searched.search(one, one.signs[0], "a cold cup")
        assert searched.slow == user
        assert searched.search(other, other.signs[0], "a cold cup") is None


@pytest.mark.usefixtures("tenfold")
def test_check_says_that_a_pattern_takes_too_long(mine: Path) -> None:
    mine.write_text(CATASTROPHE.replace("Ada", "a" * 1000))
    problem = diagnosis.check()[mine]
    assert problem
    assert "'examples' of coffee-cold" in problem.what
    assert "its search takes too long" in problem.cause


def test_a_pattern_of_ones_own_is_quick_in_a_long_log(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    search = UserPatterns.search

    def noted(self: UserPatterns, failure: Failure, sign: Sign, text: str) -> PatternMatch | None:
        searched.append(text)
        return search(self, failure, sign, text)

    monkeypatch.setattr(UserPatterns, "search", noted)
    found = of("nobody thinks that this coffee is cold\n" * 5_000 + LOG)
    assert 1 <= len(searched) < 50, "equal lines are searched a few times"
    assert mine.is_file()
    assert found.warnings == ()


def test_no_file_is_read_before_a_log_is_explained() -> None:
    program = """
import io, sys
read = []
sys.addaudithook(lambda event, args: event == "open" and read.append(str(args[0])))
from medley.__main__ import main
sys.argv = ["medley", *sys.argv[1:]]
sys.stdout = io.StringIO()
try:
    main()
except SystemExit:
    pass
assert read
assert not [path for path in read if path.endswith("failures/cuda.toml")], read
assert "medley.explain.patterns" not in sys.modules
"""
    for words in (["--help"], ["plan", "demo", "--hosts", "cpu:1"]):
        subprocess.run([sys.executable, "-c", program, *words], check=True, capture_output=True, timeout=60)


def test_all_of_ours_are_read_once() -> None:
    first, again = patterns.load(user=False), patterns.load(user=False)
    assert len(first.failures) > 200
    assert all(one is other for one, other in zip(first.failures, again.failures, strict=True))
    assert not first.problems
