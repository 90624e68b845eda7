"""Find the first known failure in logs; check the files of known failures."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import BinaryIO

from medley import storage
from medley.errors import Problem, in_words
from medley.explain import patterns
from medley.explain.findings import Explained, chosen
from medley.explain.lines import BLOCK_BYTES
from medley.explain.patterns import Failure, Known, Phase
from medley.explain.scan import Needles, UserPatterns, scanned
from medley.explain.scanned_log import Log
from medley.unusable_file import optional

STANDARD_INPUT = "/dev/stdin"
_SLOW = "its search takes too long"
_TOGETHER_S = 120
_SAMPLE_BYTES = 4096


def explained(logs: Iterable[Log]) -> Explained:
    """Find the failures in these logs, each of a host or a rank."""
    known = patterns.load()
    return _explained(logs, known, Needles(known))


def _explained(logs: Iterable[Log], known: Known, needles: Needles) -> Explained:
    with UserPatterns(known.user) as user:
        found = chosen([scanned(log, needles, user) for log in logs], known)
    warnings = [f"known failures left out: {each.what}: {each.cause}" for each in known.problems]
    warnings += [f"known failure {name} left out: {_SLOW}" for name in sorted(user.slow)]
    return replace(found, warnings=tuple(warnings))


def named_logs(names: Sequence[str]) -> list[Log]:
    return [_log(Path(name)) for name in names]


def newest_logs() -> list[Log]:
    """Return the newest log, and those of the same time, because one start may have several units."""
    folder = storage.state() / "logs"
    written = sorted((storage.modified_s(file), file) for file in storage.listed(folder, "*.log"))
    if not written:
        raise Problem(
            "there is no log of medley on this host",
            cause=f"{folder} is empty; serve, run and the units of medley up write there",
            fix="name a file: medley explain FILE, or pipe a log: docker logs NAME 2>&1 | medley explain -",
        )
    newest = [file for at, file in written if written[-1][0] - at <= _TOGETHER_S]
    found: list[Log] = []
    for file in newest[1:]:
        with optional():
            found += _opened(file)
    return [*_opened(newest[0]), *found]


def _opened(path: Path) -> Iterator[Log]:
    if file := storage.open_file(path):
        yield Log(str(path), _blocks(file, str(path)))


def _log(path: Path) -> Log:
    if str(path) == STANDARD_INPUT:
        return Log("standard input", _blocks(sys.stdin.buffer, "standard input"))
    try:
        return Log(str(path), _blocks(path.open("rb"), str(path)))
    except FileNotFoundError as error:
        raise Problem(
            f"{path} cannot be read",
            cause=in_words(error),
            fix="name another file: medley explain FILE",
        ) from error
    except OSError as error:
        raise storage.problem_of(path, error, "read") from error


def _blocks(file: BinaryIO, name: str) -> Iterator[bytes]:
    with file:
        block = file.read(BLOCK_BYTES)
        if _is_binary(block[:_SAMPLE_BYTES].lstrip(b"\0")):
            raise Problem(
                f"{name} is not a log",
                cause="it holds binary data, not text",
                fix=f"zcat {name} | medley explain -   # if it is compressed; else name a text file",
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
    own, shipped = patterns.files()
    return _checked(own, patterns.load()) | _shipped_checked(tuple(shipped))


@cache
def _shipped_checked(shipped: tuple[Path, ...]) -> dict[Path, Problem | None]:
    """Check medley's own files once per process, because they do not change."""
    return _checked(shipped, patterns.load(user=False))


def _checked(paths: Iterable[Path], known: Known) -> dict[Path, Problem | None]:
    seen: dict[str, Path] = {}
    needles = Needles(known)
    return {path: _mistake(path, known, needles, seen) for path in paths}


def _mistake(path: Path, known: Known, needles: Needles, seen: dict[str, Path]) -> Problem | None:
    try:
        file = patterns.read(path)
    except Problem as problem:
        return problem
    if mistake := next(patterns.mistakes(path), None):
        return mistake
    for at, failure in file.checked:
        if failure.name in seen:
            return patterns.wrong(path, at, failure.name, "name", f"{seen[failure.name]} has the same name")
        seen[failure.name] = path
        if found := _unfit(failure, known, needles):
            return patterns.wrong(path, at, failure.name, *found)
    return None


def _unfit(failure: Failure, known: Known, needles: Needles) -> tuple[str, str] | None:
    """Return the key that contradicts the known failures or the examples, and the reason."""
    names = {each.name for each in known.failures}
    if unknown := [name for name in failure.over if name not in names]:
        return "over", f"there is no known failure {unknown[0]}"
    if isinstance(failure, Phase) and failure.complete:
        return None
    if not failure.examples:
        return "examples", "a known failure needs an example: a log that shows it"
    for number, log in enumerate(failure.examples, 1):
        found = _explained([Log("example", [log.encode()])], known, needles)
        first = found.first.hit.failure.name if found.first else "no failure"
        if first != failure.name:
            slow = [each for each in found.warnings if each.endswith(_SLOW)]
            return "examples", ", ".join([f"number {number} shows {first}", *slow])
    for number, log in enumerate(failure.look_alikes, 1):
        found = _explained([Log("look-alike", [log.encode()])], known, needles)
        if any(each.hit.failure.name == failure.name for each in found.problems):
            return "look_alikes", f"number {number} shows {failure.name}"
    return None
