"""tests/slow_runs.toml has an entry for each slow test, and names those that are due."""

import datetime as dt
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import slow_tests
from tools.slow_marks import Modules
from tools.slow_tests import ROOT, Entry, History, default_covers, read, refreshed

AGAIN = "python -m tools.slow_tests --write"
TABLE = read()
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def test_each_slow_test_has_one_entry() -> None:
    assert list(TABLE) == Modules(ROOT).slow_tests(), AGAIN


def test_each_path_exists() -> None:
    assert [(test, each) for test in TABLE for each in TABLE[test].covers if not (ROOT / each).exists()] == []
    assert all(entry.covers for entry in TABLE.values())


def test_a_run_has_its_commit_and_its_date() -> None:
    assert [test for test, entry in TABLE.items() if (entry.commit is None) != (entry.date is None)] == []
    assert [test for test, entry in TABLE.items() if not entry.due and entry.commit is None] == []


def test_what_is_due_is_named() -> None:
    if missing := History(ROOT).missing:
        pytest.skip(missing)
    now = refreshed(TABLE)
    assert {test: entry.due for test, entry in TABLE.items()} == {test: now[test].due for test in now}, AGAIN


# Which tests are slow


def slow(root: Path, **texts: str) -> list[str]:
    """The slow tests of modules; a name with two underscores is in a folder."""
    for name, text in texts.items():
        path = root / "tests" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import pytest\n{text}")
    return Modules(root).slow_tests()


CASE = "pytest.param(2, marks=pytest.mark.slow)"
ONE = f"@pytest.fixture(params=[{CASE}])\ndef one(request): pass"


@pytest.mark.parametrize(
    "text",
    [
        "@pytest.mark.slow\ndef test_a(): pass",
        "@pytest.mark.slow\n@pytest.mark.parametrize('x', [1])\ndef test_a(x): pass\ndef test_b(): pass",
        "pytestmark = pytest.mark.slow\ndef test_a(): pass",
        "pytestmark = [pytest.mark.rack, pytest.mark.slow]\ndef test_a(): pass",
        f"@pytest.mark.parametrize('x', [1, {CASE}])\ndef test_a(x): pass",
        "@pytest.mark.parametrize('x', [pytest.param(2, marks=[pytest.mark.slow])])\ndef test_a(x): pass",
        f"X = (1, {CASE})\nY: tuple = (*X, 3)\n@pytest.mark.parametrize('x', Y)\ndef test_a(x): pass",
        f"X = (1, {CASE})\n@pytest.mark.slow\ndef test_a(x): pass\ndef test_b(x): return X",
        f"def cases(): return [{CASE}]\n@pytest.mark.parametrize('x', cases())\ndef test_a(x): pass",
        f"{ONE}\ndef test_a(one): pass\ndef test_b(): pass",
        f"@pytest.fixture\ndef two(one): pass\n{ONE}\ndef test_a(two): pass",
    ],
)
def test_a_mark_is_found(text: str, tmp_path: Path) -> None:
    assert slow(tmp_path, test_x=text) == ["tests/test_x.py::test_a"]


def test_a_mark_of_a_class_is_found(tmp_path: Path) -> None:
    text = "class TestA:\n    @pytest.mark.slow\n    def test_a(self): pass\n    def test_b(self): pass"
    assert slow(tmp_path, test_x=text) == ["tests/test_x.py::TestA::test_a"]


def test_a_mark_comes_with_an_import_and_with_a_fixture_of_the_folder(tmp_path: Path) -> None:
    found = slow(
        tmp_path,
        counts=f"COUNTS = [1, {CASE}]\nOTHER = [1]",
        more="from tests.counts import COUNTS\nMORE = [*COUNTS, 3]",
        a__conftest=ONE,
        a__test_x="def test_a(one): pass",
        b__test_x="def test_a(one): pass",
        b__test_y="from tests.counts import COUNTS as C, OTHER\n@pytest.mark.parametrize('x', C)\n"
        "def test_a(x): pass\n@pytest.mark.parametrize('x', OTHER)\ndef test_b(x): pass",
        b__test_z="from tests.more import MORE\n@pytest.mark.parametrize('x', MORE)\ndef test_a(x): pass",
    )
    assert found == ["tests/a/test_x.py::test_a", "tests/b/test_y.py::test_a", "tests/b/test_z.py::test_a"]
    assert Modules(tmp_path).helpers("tests/b/test_y.py::test_a") == ["tests/b/test_y.py", "tests/counts.py"]


@pytest.mark.parametrize(
    ("module", "covers"),
    [
        ("tests/explain/test_hostile_logs.py", "pysrc/medley/explain"),
        ("tests/measurement/monitor/test_web.py", "pysrc/medley/measurement/monitor/web.py"),
        ("tests/test_storage.py", "pysrc/medley/storage.py"),
        ("tests/test_parsers.py", "pysrc/medley"),
    ],
)
def test_a_new_test_covers_its_area(module: str, covers: str) -> None:
    assert default_covers(f"{module}::test_x", ROOT) == (covers,)


def test_default_paths_exist() -> None:
    paths = {each for covers in slow_tests.DEFAULTS.values() for each in covers}
    assert [each for each in sorted(paths) if not (ROOT / each).exists()] == []


# Which tests are due, in a repository with one slow test

TEST = "tests/test_x.py::test_x"
PASSES = "import pytest\n\n@pytest.mark.slow\ndef test_x(): pass\n"
SKIPS = "import pytest\n\n@pytest.mark.slow\ndef test_x(): pytest.skip('no GPU')\n"
FAILS = "import pytest\n\n@pytest.mark.slow\ndef test_x(): assert False\n"


def git(root: Path, *words: str) -> str:
    name = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    return subprocess.run(["git", *name, *words], cwd=root, check=True, capture_output=True, text=True).stdout


def commit(root: Path) -> str:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "change")
    return git(root, "rev-parse", "--short", "HEAD").strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository whose slow test ran at its first commit, and covers a folder and a file."""
    root = tmp_path / "tree"
    for name, text in {"code/a.py": "1", "one.py": "1", "other.py": "1", "tests/test_x.py": PASSES}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n")
    markers = "[pytest]\nmarkers =\n    slow\naddopts = -m 'not slow' --import-mode=importlib\n"
    (root / "pytest.ini").write_text(markers)
    git(tmp_path, "init", "--quiet", "tree")
    entry = Entry(("code", "one.py"), due=False, commit=commit(root), date=dt.date(2026, 11, 26))
    slow_tests.write({TEST: entry}, root)
    commit(root)
    return root


def due(root: Path) -> bool:
    return refreshed(read(root), root)[TEST].due


@needs_git
def test_a_change_makes_it_due_until_it_is_undone(tree: Path) -> None:
    assert not due(tree)
    (tree / "other.py").write_text("2")
    assert not due(tree)
    for name in ("code/a.py", "one.py", "tests/test_x.py"):
        (tree / name).write_text("# 2\n" + (tree / name).read_text())
        assert due(tree), name
        assert slow_tests.main(["--write"], tree) == 0
        commit(tree)
        assert read(tree)[TEST].due
        git(tree, "checkout", "--quiet", "HEAD~1", "--", name)
        assert not due(tree), name


@needs_git
def test_a_new_file_makes_it_due(tree: Path) -> None:
    (tree / "code" / "new.py").touch()
    assert due(tree)


@needs_git
def test_a_file_that_is_gone_makes_it_due_for_good(tree: Path) -> None:
    (tree / "tests" / "slow_runs.toml").write_text(
        (tree / "tests" / "slow_runs.toml").read_text().replace('"code"', '"code/a.py"')
    )
    (tree / "code" / "a.py").rename(tree / "code" / "b.py")
    slow_tests.main(["--write"], tree)
    commit(tree)
    assert read(tree)[TEST].covers == ("code", "one.py")
    assert due(tree)


@needs_git
def test_a_commit_that_head_does_not_contain_makes_it_due(tree: Path) -> None:
    assert History(tree).changed("0123456") is None
    elsewhere = commit(tree)
    git(tree, "reset", "--quiet", "--hard", "HEAD~1")
    assert History(tree).changed(elsewhere) is None
    assert History(tree).is_due(Entry(("one.py",), commit=elsewhere), ())


@needs_git
def test_entries_follow_the_tests(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "tests" / "test_x.py").rename(tree / "tests" / "test_y.py")
    slow_tests.main(["--write"], tree)
    assert read(tree) == {"tests/test_y.py::test_x": Entry(("pysrc/medley",))}
    assert capsys.readouterr().out.splitlines() == [
        "removed tests/test_x.py::test_x",
        "added tests/test_y.py::test_x, which covers pysrc/medley",
    ]


@needs_git
def test_without_history_nothing_is_compared(tree: Path, tmp_path: Path) -> None:
    assert History(tree).missing is None
    assert History(tmp_path).missing == f"{tmp_path} is not the top of a git repository"
    assert History(tree / "code").missing == f"{tree / 'code'} is not the top of a git repository"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{tree}", "shallow")
    assert History(tmp_path / "shallow").missing == "the clone is shallow: git fetch --unshallow"
    with pytest.raises(SystemExit):
        slow_tests.main(["--write"], tmp_path / "shallow")


# Runs


@needs_git
def test_a_run_that_passes_is_recorded(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tree / "one.py").write_text("2")
    assert slow_tests.main(["--run"], tree) == 1
    assert "not run: commit one.py first" in capfd.readouterr().out
    head = commit(tree)
    assert slow_tests.main(["--run"], tree) == 0
    entry = read(tree)[TEST]
    assert (entry.commit, entry.due) == (head, False)
    assert entry.date
    assert entry.date > dt.date(2026, 11, 1)
    assert "1 passed" in capfd.readouterr().out
    commit(tree)
    assert not due(tree)
    assert slow_tests.main(["--run"], tree) == 0
    assert capfd.readouterr().out == "recorded 0 of 0\n"
    assert slow_tests.main(["--run", "test_y"], tree) == 1


@needs_git
@pytest.mark.parametrize(("text", "result"), [(SKIPS, "1 of 1 skipped (no GPU)"), (FAILS, "failed")])
def test_a_run_that_fails_or_skips_is_not(
    text: str, result: str, tree: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tree / "tests" / "test_x.py").write_text(text)
    commit(tree)
    before = read(tree)
    assert slow_tests.main(["--run", "test_x"], tree) == 1
    assert f"not recorded: {result}" in capfd.readouterr().out
    assert read(tree) == before


@needs_git
def test_ctrl_c_lets_fixtures_end(tree: Path) -> None:
    text = (
        "import os, pathlib, signal, time\nimport pytest\n\n@pytest.fixture\ndef one():\n    yield\n"
        "    time.sleep(0.5)\n    pathlib.Path('ended').touch()\n\n@pytest.mark.slow\ndef test_x(one):\n"
        "    os.kill(os.getppid(), signal.SIGINT)\n    time.sleep(30)\n"
    )
    (tree / "tests" / "test_x.py").write_text(text)
    commit(tree)
    program = (
        "import sys; from pathlib import Path; from tools.slow_tests import main\n"
        f"sys.exit(main(['--run'], Path({str(tree)!r})))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert finished.returncode == 130, finished.stderr
    assert finished.stdout.endswith("interrupted; recorded 0 of 1\n")
    assert finished.stderr == ""
    assert (tree / "ended").exists()
