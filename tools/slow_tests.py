"""List the slow tests with their last run, and run those that are due.

    python -m tools.slow_tests                  print each test, its last run, and the command that runs it
    python -m tools.slow_tests --run            run the tests that are due, and record those that pass
    python -m tools.slow_tests --run WORD       run the tests with WORD in their names
    python -m tools.slow_tests --write          update tests/slow_runs.toml after a change of code or of tests

A test is due if it has no recorded run, if HEAD does not contain the commit of its last run, or if a file
that it covers differs between that commit and the working tree. It covers the paths of its entry, its own
module, and the modules of tests, tools and benchmarks that this module imports.
"""

import argparse
import datetime as dt
import json
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree as ET

from tools.slow_marks import Modules

ROOT = Path(__file__).parents[1]
TABLE = Path("tests", "slow_runs.toml")
_LOCKS = ("locks/sglang-cpu.txt", "locks/vllm-cpu.txt")
_SERVE = ("pysrc/medley/engine", "pysrc/medley/serving")
_CLUSTER = ("pysrc/medley/cluster", *_SERVE, "pysrc/medley/network")
DEFAULTS = {
    "tests/engine": (*_LOCKS, "pysrc/medley/environment", *_SERVE),
    "tests/nix": ("flake.lock", "flake.nix", "nix"),
    "tests/rack": (*_LOCKS, *_CLUSTER),
    "tests/tutorials": ("docs/tutorials", "pysrc/medley/cli", *_CLUSTER),
}
"""What new tests of a folder cover, where that is not the area of the same name alone."""
INTERRUPTED = 128 + signal.SIGINT
_HEAD = """\
# The last passing run of each slow test, and the paths whose change makes it due again. Its own module and
# the helpers that this module imports count, too. `python -m tools.slow_tests --run` and `--write` write this
# file. Edit only `covers` by hand.
"""


@dataclass(frozen=True)
class Entry:
    """A row of the table."""

    covers: tuple[str, ...]
    """Files and folders, relative to the root."""
    due: bool = True
    commit: str | None = None
    """Short hash of HEAD in the last passing run; None if no run was recorded."""
    date: dt.date | None = None


Table = Mapping[str, Entry]
"""Entries by the node ID of a test function, without parameters."""


def read(root: Path = ROOT) -> dict[str, Entry]:
    """Return the entries of the table in their order."""
    rows = tomllib.loads((root / TABLE).read_text(encoding="utf-8"))
    return {test: Entry(**row | {"covers": tuple(row["covers"])}) for test, row in rows.items()}


def write(table: Table, root: Path = ROOT) -> None:
    """Write the entries, sorted by their tests."""
    (root / TABLE).write_text(
        _HEAD + "".join(_toml(*each) for each in sorted(table.items())), encoding="utf-8"
    )


def _toml(test: str, entry: Entry) -> str:
    run = f'commit = "{entry.commit}"\ndate = {entry.date}\n' if entry.commit else ""
    covers = "".join(f"    {json.dumps(each)},\n" for each in entry.covers)
    return f"\n[{json.dumps(test)}]\n{run}due = {json.dumps(entry.due)}\ncovers = [\n{covers}]\n"


def default_covers(test: str, root: Path) -> tuple[str, ...]:
    """Return the paths that a new entry covers: those of the test's folder or module in the program."""
    module = Path(test.partition("::")[0])
    for folder in module.parents:
        if folder.as_posix() in DEFAULTS:
            return DEFAULTS[folder.as_posix()]
    program = Path("pysrc", "medley")
    named = program / module.relative_to("tests").with_name(module.name.removeprefix("test_"))
    candidates = (named, *(program / each for each in module.relative_to("tests").parents), program)
    return (next(each for each in candidates if (root / each).exists() or each == program).as_posix(),)


# Which tests are due


@dataclass(frozen=True)
class History:
    """The git history of a tree, compared with its working tree."""

    root: Path
    _changed: dict[str, frozenset[str] | None] = field(default_factory=dict)

    def git(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run git in the tree; a failure is in the result."""
        command = ["git", "--no-optional-locks", *words]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)

    @cached_property
    def missing(self) -> str | None:
        """Why there is no history to compare with; None where there is one."""
        try:
            found = self.git("rev-parse", "--show-toplevel", "--is-shallow-repository")
        except FileNotFoundError:
            return "git is not installed"
        top, _, shallow = found.stdout.strip().rpartition("\n")
        if found.returncode or Path(top).resolve() != self.root.resolve():
            return f"{self.root} is not the top of a git repository"
        return "the clone is shallow: git fetch --unshallow" if shallow == "true" else None

    @property
    def head(self) -> str:
        """The short hash of HEAD."""
        return self.git("rev-parse", "--short", "HEAD").stdout.strip()

    def uncommitted(self, paths: Iterable[str]) -> list[str]:
        """Return the files under these paths that differ from HEAD or that git does not track."""
        return sorted(each for each in self.changed("HEAD") or () if _under(each, paths))

    def changed(self, commit: str) -> frozenset[str] | None:
        """Return the files that differ from a commit in the working tree; None if HEAD lacks the commit."""
        if self.git("merge-base", "--is-ancestor", commit, "HEAD").returncode:
            return None
        differ = self.git("diff", "--name-only", "--no-renames", "-z", commit, "--").stdout
        new = self.git("ls-files", "--others", "--exclude-standard", "-z").stdout
        return frozenset((differ + new).split("\0")) - {""}

    def is_due(self, entry: Entry, helpers: Iterable[str]) -> bool:
        """Return whether an entry has no run, or something that it covers has changed since."""
        if entry.commit is None:
            return True
        if entry.commit not in self._changed:
            self._changed[entry.commit] = self.changed(entry.commit)
        changed = self._changed[entry.commit]
        return changed is None or any(_under(each, (*entry.covers, *helpers)) for each in changed)


def _under(file: str, paths: Iterable[str]) -> bool:
    return any(file == each or file.startswith(f"{each}/") for each in paths)


def refreshed(table: Table, root: Path = ROOT) -> dict[str, Entry]:
    """Return an entry for each slow test, with `due` by the working tree.

    The nearest folder replaces a path that is gone, so that its removal still counts as a change.
    """
    modules, history, found = Modules(root), History(root), {}
    for test in modules.slow_tests():
        entry = table.get(test) or Entry(default_covers(test, root))
        entry = replace(entry, covers=tuple(dict.fromkeys(_existing(each, root) for each in entry.covers)))
        found[test] = replace(entry, due=history.is_due(entry, modules.helpers(test)))
    return found


def _existing(path: str, root: Path) -> str:
    candidates = (path, *(each.as_posix() for each in Path(path).parents if each.name))
    return next((each for each in candidates if (root / each).exists()), path)


# Running them


def run(word: str | None, root: Path = ROOT) -> int:
    """Run the due tests, or those with a word in their names; return the exit status."""
    table = refreshed(read(root), root)
    if word is None:
        chosen = [test for test, entry in table.items() if entry.due]
    else:
        chosen = [word] if word in table else [test for test in table if word in test]
        if not chosen:
            print(f"no slow test has {word!r} in its name")
            return 1
    recorded = 0
    try:
        for number, test in enumerate(chosen, 1):
            print(f"[{number}/{len(chosen)}] {test}", flush=True)
            entry, result = _attempt(test, table[test], root)
            print(f"[{number}/{len(chosen)}] {result}", flush=True)
            if entry is not None:
                write({**refreshed(read(root), root), test: entry}, root)
                recorded += 1
    except KeyboardInterrupt:
        print(f"\ninterrupted; recorded {recorded} of {len(chosen)}")
        return INTERRUPTED
    print(f"recorded {recorded} of {len(chosen)}")
    return 0 if recorded == len(chosen) else 1


def _attempt(test: str, entry: Entry, root: Path) -> tuple[Entry | None, str]:
    """Run a test; return its new entry if it passed at a commit, and one line about it."""
    history, paths = History(root), (*entry.covers, *Modules(root).helpers(test))
    if changed := history.uncommitted(paths):
        return None, f"not run: commit {', '.join(changed)} first"
    head, began = history.head, time.monotonic()
    fault = _fault(test, root)
    took = f"{time.monotonic() - began:.0f} s"
    if fault:
        return None, f"not recorded: {fault}, {took}"
    if changed := history.uncommitted(paths):
        return None, f"not recorded: {', '.join(changed)} changed during the run, {took}"
    if history.head != head:
        return None, f"not recorded: HEAD moved from {head} during the run, {took}"
    today = dt.datetime.now(dt.UTC).date()
    return replace(entry, due=False, commit=head, date=today), f"passed at {head}, {took}"


def command(test: str) -> list[str]:
    """Return the words after `python -m` that run the slow cases of a test."""
    return ["pytest", "-m", "slow", test]


def _fault(test: str, root: Path) -> str | None:
    """Run the slow cases of a test; return why the run does not count, None if all of them passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", *command(test), "-q", f"--junitxml={report}"]
        status = _status(words, root)
        cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    skipped = [each.get("message", "") for case in cases for each in case.iter("skipped")]
    if skipped:
        return f"{len(skipped)} of {len(cases)} skipped ({skipped[0]})"
    if status or not cases:
        return "failed" if cases else "no test ran"
    return None


def _status(words: list[str], root: Path) -> int:
    """Run a program to its end. Ctrl-C is passed on, so that fixtures end what they started."""
    interrupted = False
    # In a process group of its own, because the terminal would send it each Ctrl-C a second time.
    with subprocess.Popen(words, cwd=root, stdin=subprocess.DEVNULL, process_group=0) as program:
        while True:
            try:
                status = program.wait()
            except KeyboardInterrupt:
                interrupted = True
                program.send_signal(signal.SIGINT)
            else:
                break
    if interrupted:
        raise KeyboardInterrupt
    return status


# The command line


def lines(table: Table) -> Iterator[str]:
    """The table as text, with the command of each test."""
    yield f"{'due':4} {'last run':11} {'commit':10} command"
    for test, entry in table.items():
        when = str(entry.date) if entry.date else "none"
        words = " ".join(command(test))
        yield f"{'due' if entry.due else '-':4} {when:11} {entry.commit or '-':10} .venv/bin/{words}"
    yield f"{len(table)} slow tests, {sum(entry.due for entry in table.values())} due"
    yield "run and record those with WORD in their names: .venv/bin/python -m tools.slow_tests --run WORD"


def differences(old: Table, new: Table) -> Iterator[str]:
    """What `--write` changes, a line each."""
    yield from (f"removed {test}" for test in old if test not in new)
    for test, entry in new.items():
        if test not in old:
            yield f"added {test}, which covers {', '.join(entry.covers)}"
            continue
        if old[test].due != entry.due:
            yield f"{'due' if entry.due else 'no longer due'}: {test}"
        if gone := set(old[test].covers) - set(entry.covers):
            yield f"{', '.join(sorted(gone))} is gone: check what {test} covers"


def main(words: list[str] | None = None, root: Path = ROOT) -> int:
    """Return the exit status of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    due = object()
    which.add_argument(
        "--run",
        nargs="?",
        const=due,
        metavar="WORD",
        help="run the due tests, or those with WORD in their names",
    )
    which.add_argument("--write", action="store_true", help="update tests/slow_runs.toml")
    options = parser.parse_args(words)
    missing = History(root).missing
    if missing and (options.run is not None or options.write):
        parser.error(f"no history to compare with: {missing}")
    if options.run is not None:
        return run(None if options.run is due else options.run, root)
    old = read(root) if (root / TABLE).exists() else {}
    new = old if missing else refreshed(old, root)
    if options.write:
        write(new, root)
        print("".join(f"{each}\n" for each in differences(old, new)), end="")
    else:
        print("\n".join(lines(new)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
