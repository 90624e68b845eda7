"""Search with the patterns of a user's own failures, in a separate process."""

import json
import sys
import time
from collections.abc import Mapping
from queue import Empty, Queue
from typing import NamedTuple, Self

from medley import process
from medley.command import Command
from medley.errors import Problem
from medley.explain.patterns import Failure, Sign

_SEARCH_LIMIT_S = 1.0
_SEARCHES_LIMIT_S = 5.0
_START_LIMIT_S = 10.0
# Runs in a Python with only the standard library.
_SEARCH_PROGRAM = """
import json, re, sys
print("ready", flush=True)
for request in sys.stdin:
    pattern, unless, text = json.loads(request)
    match = re.search(pattern, text)
    if match and unless is not None and re.search(unless, text):
        match = None
    groups = match.groupdict() if match else {}
    answer = match and [groups, match.start("line") if "line" in groups else None]
    print(json.dumps(answer), flush=True)
"""


class PatternMatch(NamedTuple):
    """Groups by name, and the start of the group `line`, if any."""

    groups: Mapping[str, str | None]
    line_at: int | None


class UserPatterns:
    """Search with the patterns of a user's own failures, in a separate process.

    A regular expression can take years for one line, and a thread in Python's `re` cannot be interrupted. A
    process can be ended. Medley's own patterns are searched here, because tests limit their time.
    """

    def __init__(self, names: frozenset[str], limit_s: float = _SEARCHES_LIMIT_S) -> None:
        """`limit_s`: the limit of all searches in all logs together."""
        self.names = names
        self.slow: set[str] = set()
        """Failures that reached a limit, and are not searched again."""
        self._left_s = limit_s
        self._process: process.Process | None = None
        self._answers = Queue[str]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def search(self, failure: Failure, sign: Sign, text: str) -> PatternMatch | None:
        if failure.name in self.slow:
            return None
        start_s = time.monotonic()
        answer = None
        try:
            process = self._process or self._start()
            process.write_line(json.dumps([sign.expression.pattern, failure.unless, text]))
            answer = json.loads(self._answers.get(timeout=_SEARCH_LIMIT_S))
        except (Empty, Problem):
            self.slow.add(failure.name)
            self._stop()
        self._left_s -= time.monotonic() - start_s
        if self._left_s <= 0:
            self.slow |= self.names
        return PatternMatch(*answer) if answer else None

    def _start(self) -> process.Process:
        self._answers = Queue[str]()
        command = Command((sys.executable, "-I", "-S", "-c", _SEARCH_PROGRAM))
        self._process = process.Process(command, self._answers.put, has_stdin=True)
        self._answers.get(timeout=_START_LIMIT_S)
        return self._process

    def _stop(self) -> None:
        if self._process:
            self._process.close_stdin()
            self._process.stop(grace_s=0)
        self._process = None
