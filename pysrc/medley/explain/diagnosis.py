"""Scan logs for known failures, of which root_cause.py chooses; open logs; check files of known failures."""

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO

from medley import storage
from medley.errors import Problem, describe_error
from medley.explain import patterns
from medley.explain.lines import BLOCK_BYTES
from medley.explain.patterns import Failure, KnownFailures, Phase
from medley.explain.root_cause import Explanation, choose_failures
from medley.explain.scan import Needles, scan_log
from medley.explain.scanned_log import Log
from medley.explain.user_patterns import UserPatterns
from medley.unusable_file import skip_unusable_file

STANDARD_INPUT = "/dev/stdin"
_SLOW_REASON = "its search takes too long"
_SAME_START_S = 120
_SAMPLE_BYTES = 4096


def explain_logs(logs: Iterable[Log]) -> Explanation:
    """Find the failures in these logs, each of a host or a rank."""
    known = patterns.load()
    return _explain_logs(logs, known, Needles(known))


def _explain_logs(logs: Iterable[Log], known: KnownFailures, needles: Needles) -> Explanation:
    with UserPatterns(known.user) as user:
        explanation = choose_failures([scan_log(log, needles, user) for log in logs], known)
    warnings = [f"known failures left out: {problem.what}: {problem.cause}" for problem in known.problems]
    warnings += [f"known failure {name} left out: {_SLOW_REASON}" for name in sorted(user.slow)]
    return explanation.replace(warnings=tuple(warnings))


def open_named_logs(names: Sequence[str]) -> list[Log]:
    return [_open_log(Path(name)) for name in names]


def open_newest_logs() -> list[Log]:
    """Return the newest log, and those of the same time, because one start may have several units."""
    folder = storage.find_state_folder() / "logs"
    logs_by_time = sorted(
        (storage.read_modified_s(file), file) for file in storage.list_folder(folder, "*.log")
    )
    if not logs_by_time:
        raise Problem(
            "there is no log of medley on this host",
            cause=f"{folder} is empty; serve, run and the units of medley up write there",
            fix="name a file: medley explain FILE, or pipe a log: docker logs NAME 2>&1 | medley explain -",
        )
    newest = [file for time_s, file in logs_by_time if logs_by_time[-1][0] - time_s <= _SAME_START_S]
    later_logs: list[Log] = []
    for file in newest[1:]:
        with skip_unusable_file():
            later_logs += _open_log_file(file)
    return [*_open_log_file(newest[0]), *later_logs]


def _open_log_file(path: Path) -> Iterator[Log]:
    if file := storage.open_file(path):
        yield Log(str(path), _read_blocks(file, str(path)))


def _open_log(path: Path) -> Log:
    if str(path) == STANDARD_INPUT:
        return Log("standard input", _read_blocks(sys.stdin.buffer, "standard input"))
    try:
        return Log(str(path), _read_blocks(path.open("rb"), str(path)))
    except FileNotFoundError as error:
        raise Problem(
            f"{path} cannot be read",
            cause=describe_error(error),
            fix="name another file: medley explain FILE",
        ) from error
    except OSError as error:
        raise storage.build_file_problem(path, error, "read") from error


def _read_blocks(file: BinaryIO, name: str) -> Iterator[bytes]:
    with file:
        block = file.read(BLOCK_BYTES)
        if _is_binary(block[:_SAMPLE_BYTES].lstrip(b"\0")):
            raise Problem(
                f"{name} is not a log",
                cause="it holds binary data, not text",
                fix=f"zcat {shlex.quote(name)} | medley explain -   # if compressed; else name a text file",
            )
        while block:
            yield block
            block = file.read(BLOCK_BYTES)


def _is_binary(sample: bytes) -> bool:
    """Whether a tenth of it is not text; a log may begin with zeros, where it was cut while open."""
    text = sample.decode("utf-8", "replace")
    return (text.count("\ufffd") + text.count("\0")) * 10 > len(sample)


def check() -> dict[Path, Problem | None]:
    """Return every file of known failures, with its Problem, if any."""
    own, shipped = patterns.list_files()
    return _check_files(own, patterns.load()) | _check_shipped(tuple(shipped))


@cache
def _check_shipped(shipped: tuple[Path, ...]) -> dict[Path, Problem | None]:
    """Check medley's own files once per process, because they do not change."""
    return _check_files(shipped, patterns.load(user=False))


def _check_files(paths: Iterable[Path], known: KnownFailures) -> dict[Path, Problem | None]:
    seen: dict[str, Path] = {}
    needles = Needles(known)
    return {path: _find_mistake(path, known, needles, seen) for path in paths}


def _find_mistake(
    path: Path, known: KnownFailures, needles: Needles, seen: dict[str, Path]
) -> Problem | None:
    try:
        file = patterns.read(path)
    except Problem as problem:
        return problem
    if mistake := next(patterns.list_mistakes(path), None):
        return mistake
    for place, failure in file.rows:
        if failure.name in seen:
            return patterns.build_key_problem(
                path, place, failure.name, "name", f"{seen[failure.name]} has the same name"
            )
        seen[failure.name] = path
        if contradiction := _find_contradiction(failure, known, needles):
            return patterns.build_key_problem(path, place, failure.name, *contradiction)
    return None


def _find_contradiction(failure: Failure, known: KnownFailures, needles: Needles) -> tuple[str, str] | None:
    """Return the key that contradicts the known failures or the examples, and the reason."""
    names = {known_failure.name for known_failure in known.failures}
    if unknown := [name for name in failure.over if name not in names]:
        return "over", f"there is no known failure {unknown[0]}"
    if isinstance(failure, Phase) and failure.complete:
        return None
    if not failure.examples:
        return "examples", "a known failure needs an example: a log that shows it"
    for number, log in enumerate(failure.examples, 1):
        explanation = _explain_logs([Log("example", [log.encode()])], known, needles)
        first = explanation.first.match.failure.name if explanation.first else "no failure"
        if first != failure.name:
            slow = [warning for warning in explanation.warnings if warning.endswith(_SLOW_REASON)]
            return "examples", ", ".join([f"number {number} shows {first}", *slow])
    for number, log in enumerate(failure.look_alikes, 1):
        explanation = _explain_logs([Log("look-alike", [log.encode()])], known, needles)
        if any(report.match.failure.name == failure.name for report in explanation.problems):
            return "look_alikes", f"number {number} shows {failure.name}"
    return None
