"""Scan a log once for known failures.

A log has millions of lines that differ only in numbers. So each kind of line is searched once for needles,
and expressions are tried only in lines of kinds with a needle.
"""

import json
import re
import sys
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import accumulate
from queue import Empty, Queue
from typing import NamedTuple, Self

from medley import process
from medley.command import Command
from medley.errors import Problem
from medley.explain import events
from medley.explain.context import LINES, Around, Context, Facts, read_context, read_places
from medley.explain.flags import read_flags
from medley.explain.lines import INFO, WARNING, Block, LogLine, blocks, decoded, line
from medley.explain.patterns import VARYING, Failure, Known, Sign
from medley.explain.scanned_log import TAIL, Hit, Log, Scanned

_MOST_OF_ONE = 6
_MOST_UNMET = 8
"""Lines that a failure matches without the group that it needs."""
_MOST_OF_KIND = 40
_PLACEHOLDER = re.compile(r"\{[\w.\[\]()'\"!:]{1,60}\}.{0,20}")
_MOST_SLIPS = 48
_RANKS_AT_ONCE = 16
"""Errors whose tracebacks may be printed line by line at the same time."""
_MOST_TRIES = 20_000
_MOST_S = 0.25
"""Limit of CPU time for all expressions of one failure, because a crafted log may slow them down."""
_SEARCH_LIMIT_S = 1.0
_SEARCHES_LIMIT_S = 5.0
_START_LIMIT_S = 10.0
_MOST_KINDS = 50_000
_MOST_STARTS = 1_000
_MOST_ENABLED = 4
_MOST_OF_ENGINE = 20_000
"""Lines that may show which engine printed the log."""
_LINES_OF_COMMAND = 30
_LONGEST_ARGUMENTS = 30_000
LONGEST = 1600
"""Characters of a line around a needle."""
# The difference between lines of a kind: digits, and letters of hexadecimal numbers.
_VARYING = VARYING.encode()
# A line with INFO and none of these is of level INFO.
_TROUBLE = re.compile(rb"ERR|rror|WARN|CRIT|FATAL| [WEFC] ")
_TOLD = re.compile(r"(?:\S+ )?(?:medley: |medley keeps |\$ )")
# Runs in a Python with only the standard library.
_SEARCH = """
import json, re, sys
print("ready", flush=True)
for asked in sys.stdin:
    pattern, unless, text = json.loads(asked)
    match = re.search(pattern, text)
    if match and unless is not None and re.search(unless, text):
        match = None
    groups = match.groupdict() if match else {}
    answer = match and [groups, match.start("line") if "line" in groups else None]
    print(json.dumps(answer), flush=True)
"""


class Match(NamedTuple):
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

    def search(self, failure: Failure, sign: Sign, text: str) -> Match | None:
        if failure.name in self.slow:
            return None
        began = time.monotonic()
        found = None
        try:
            process = self._process or self._start()
            process.say(json.dumps([sign.expression.pattern, failure.unless, text]))
            found = json.loads(self._answers.get(timeout=_SEARCH_LIMIT_S))
        except (Empty, Problem):
            self.slow.add(failure.name)
            self._stop()
        self._left_s -= time.monotonic() - began
        if self._left_s <= 0:
            self.slow |= self.names
        return Match(*found) if found else None

    def _start(self) -> process.Process:
        self._answers = Queue[str]()
        command = Command((sys.executable, "-I", "-S", "-c", _SEARCH))
        self._process = process.Process(command, self._answers.put, heard=True)
        self._answers.get(timeout=_START_LIMIT_S)
        return self._process

    def _stop(self) -> None:
        if self._process:
            self._process.hang_up()
            self._process.stop(grace_s=0)
        self._process = None


class Needles:
    """All needles with their signs, built once for several logs."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.signs: dict[bytes, list[tuple[Failure | events.Turn, Sign]]] = {}
        every: tuple[Failure | events.Turn, ...] = (*events.TURNS, *known.failures)
        for each in every:
            for sign in each.signs:
                self.signs.setdefault(sign.needle.encode(), []).append((each, sign))
        self.flags = frozenset(flag for each in known.components for flag in each.flags)
        self.bare = {needle: needle.translate(None, _VARYING) for needle in self.signs}
        self.any_level = {
            each for each, whats in self.signs.items() if any(what.any_level for what, _ in whats)
        }


def scanned(log: Log, needles: Needles, user: UserPatterns) -> Scanned:
    return _Scan(log.name, needles, user).read(log.blocks)


class _Scan:
    def __init__(self, name: str, needles: Needles, user: UserPatterns) -> None:
        self.done = Scanned(name)
        self._needles, self._user = needles, user
        self._kinds: dict[bytes, tuple[bytes, ...]] = {}
        self._seen, self._tried, self._unmet = Counter[str](), Counter[str](), Counter[str]()
        self._spent = defaultdict[str, float](float)
        self._slipped = Counter[bytes]()
        self._places: tuple[int, list[str]] = -1, []
        self._wrong = {
            sign.needle.encode() for turn in events.TURNS for sign in turn.signs if turn.kind in events.ERRORS
        }

    def read(self, data: Iterable[bytes]) -> Scanned:
        for block in blocks(data):
            if not self.done.lines:
                self.done.told = [each for each in map(decoded, block.here[:200]) if _TOLD.match(each)]
            self._block(block)
            self.done.lines += len(block.here)
            self.done.tail.extend(decoded(each[:LONGEST]) for each in block.here[-TAIL:])
        return self.done

    def _block(self, lines: Block) -> None:
        kinds = b"\n".join(lines.here).translate(None, _VARYING).split(b"\n")
        self._learn(kinds)
        signs = self._needles.signs
        live = {each for each, whats in signs.items() if not all(self._is_done(what) for what, _ in whats)}
        hot: dict[bytes, list[bytes]] = {}
        for kind in set(kinds):
            worn = self._wrong if self._slipped[kind] >= _MOST_OF_KIND else ()
            if left := [each for each in self._kinds[kind] if each in live and each not in worn]:
                hot[kind] = left
        for at, kind in enumerate(kinds if hot else ()):
            for needle in hot.get(kind, ()):
                if needle in self._wrong:
                    self._slipped[kind] += 1
                    if self._slipped[kind] > _MOST_OF_KIND:
                        continue
                self._needle(lines, at, needle)

    def _learn(self, kinds: Iterable[bytes]) -> None:
        """Find the needles in new kinds of lines, all at one time."""
        distinct = set(kinds)
        new = [kind for kind in distinct if kind not in self._kinds]
        if len(self._kinds) + len(new) > _MOST_KINDS:
            self._kinds, new = {}, list(distinct)
        self._kinds.update(dict.fromkeys(new, ()))
        informing = {kind for kind in new if b"INFO" in kind and not _TROUBLE.search(kind)}
        self._find(list(informing), self._needles.any_level)
        self._find([kind for kind in new if kind not in informing], self._needles.signs)

    def _find(self, kinds: list[bytes], needles: Iterable[bytes]) -> None:
        joined, ends = b"\n".join(kinds), list(accumulate(len(kind) + 1 for kind in kinds))
        for needle in needles:
            at = joined.find(self._needles.bare[needle])
            while at >= 0:
                which = bisect_right(ends, at)
                self._kinds[kinds[which]] += (needle,)
                at = joined.find(self._needles.bare[needle], ends[which])

    def _needle(self, lines: Block, at: int, needle: bytes) -> None:
        if needle not in lines.here[at]:
            return
        said = None
        for what, sign in self._needles.signs[needle]:
            if self._is_done(what):
                continue
            said = said or events.unwrapped(line(_near(lines.here[at], needle)))
            if isinstance(what, events.Turn):
                self._turn(what, sign, said, lines, at)
            else:
                self._hit(what, sign, said, lines, at)

    def _is_done(self, what: Failure | events.Turn) -> bool:
        """Whether it was found or tried often enough, because a log may repeat a line a million times."""
        if isinstance(what, events.Turn):
            if what.kind in events.ENGINES:
                return self.done.engine is not None or self._tried[what.kind] > _MOST_OF_ENGINE
            return what.kind in events.ERRORS and self.done.stopped
        if self._seen[what.name] >= _MOST_OF_ONE or self._unmet[what.name] >= _MOST_UNMET:
            return True
        return self._tried[what.name] >= _MOST_TRIES or self._spent[what.name] > _MOST_S

    def _turn(self, turn: events.Turn, sign: Sign, said: LogLine, lines: Block, at: int) -> None:
        found = sign.expression.search(said.text)
        self._tried[turn.kind] += 1
        if found is None:
            return
        if turn.kind in events.ENGINES:
            self.done.engine = turn.kind
        elif turn.kind == events.ARGUMENTS:
            self._arguments(lines, at)
        elif turn.kind == events.FACT:
            own = {name: value for name, value in found.groupdict().items() if value}
            self.done.facts = own | self.done.facts
        elif not events.echoed(said.text):
            self._turned(turn, found, said, lines, at)

    def _turned(self, turn: events.Turn, found: re.Match[str], said: LogLine, lines: Block, at: int) -> None:
        match turn.kind:
            case events.MENDED:
                self.done.mend(turn.mends)
            case events.STOPPED:
                self.done.stopped = True
            case events.NCCL:
                self.done.nccl = found[1]
            case events.DRIVER:
                self.done.driver = found[1]
            case events.VERSION:
                self.done.version = f"vLLM {found[1]}"
            case events.ENABLED:
                self.done.enabled = [*dict.fromkeys([*self.done.enabled, found[1]])][:_MOST_ENABLED]
            case events.CALL:
                self._traced(said, lines, at)
            case events.WRONG:
                self._slip(said, lines, at)
            case _:
                self.done.begin(ready=turn.kind == events.READY)
                self._seen.clear()
                self._unmet.clear()
                self._slipped.clear()
                self.done.ready = said.when if turn.kind == events.READY else self.done.ready

    def _arguments(self, lines: Block, at: int) -> None:
        """Read the flags of a start, and of a command before it."""
        words = [lines.here[at], *lines.following(at, _LINES_OF_COMMAND)]
        ends = next((nth for nth, each in enumerate(words) if not each.rstrip().endswith(b"\\")), len(words))
        text = " ".join(line(decoded(each[:_LONGEST_ARGUMENTS])).text for each in words[: ends + 1])
        self.done.flags |= read_flags(text, self._needles.flags)
        self.done.arguments = text
        self.done.starts.append(self.done.lines + at + 1)
        del self.done.starts[_MOST_STARTS:]

    def _context(self, said: LogLine, lines: Block, at: int) -> Context:
        done = self.done
        log = Facts(
            done.engine,
            done.flags,
            done.nccl,
            done.version,
            tuple(done.enabled),
            done.arguments,
            done.driver,
            done.facts,
        )
        return read_context(_around(lines, at), said, self._needles.known, log)

    def _traced(self, call: LogLine, lines: Block, at: int) -> None:
        """Keep the error below the last call of a traceback, whatever its class is named."""
        if below := events.below_calls(call, lines.following(at, events.BELOW)):
            self._slip(below.line, lines, at + below.down)

    def _slip(self, said: LogLine, lines: Block, at: int) -> None:
        number = self.done.lines + at + 1
        if any(each.number == number for each in self.done.slips[-_RANKS_AT_ONCE:]):
            return
        when = said.when or lines.when(at)
        new = events.slip(said, number, when, lines.preceding(at, 8), lines.following(at, 12))
        if new and (self.done.death is None or number - self.done.death <= events.NEAR):
            # Keep the first and the last ones.
            self.done.slips.append(replace(new, context=self._context(said, lines, at)))
            del self.done.slips[_MOST_SLIPS // 2 : len(self.done.slips) - _MOST_SLIPS // 2]

    def _hit(self, failure: Failure, sign: Sign, said: LogLine, lines: Block, at: int) -> None:
        self._tried[failure.name] += 1
        if not self._counts(failure, said):
            return
        # The lines of this rank after it, each with its distance.
        after = lines.following(at, failure.lines_after * 2)
        more = [(down, line(decoded(each[:LONGEST]))) for down, each in enumerate(after, 1)]
        more = [(down, each) for down, each in more if each.rank in (None, said.rank)][: failure.lines_after]
        text = "\n".join([said.text, *(each.text for _, each in more)])
        match = self._searched(failure, sign, text)
        if match is None or not self._is_within(failure, said, lines, at):
            return
        if any(_PLACEHOLDER.fullmatch(value) for value in match.groups.values() if value):
            return  # the traceback prints the line that raises, and its f-string has no values yet
        number = self.done.lines + at + 1
        if match.line_at is not None:
            down = text.count("\n", 0, match.line_at)
            said, number = (more[down - 1][1], number + more[down - 1][0]) if down else (said, number)
        given = vars(self._context(said, lines, at)) if failure.given or failure.reworded else {}
        groups = {**given, **match.groups}
        if failure.needs and not groups.get(failure.needs):
            self._unmet[failure.name] += 1
            return
        self._seen[failure.name] += 1
        when = said.when or lines.when(at)
        if failure.ends and self.done.death is None:
            self.done.death = self.done.lines + at + 1
        self.done.hits.append(Hit(failure, groups, said, number, self.done.name, when, self.done.engine))

    def _counts(self, failure: Failure, said: LogLine) -> bool:
        """Whether a line can show the failure, by its level and the lines before it."""
        if events.echoed(said.text) or (events.source(said.text) and not failure.in_source):
            return False
        if failure.during_shutdown:
            if self.done.was_ready:
                return False
        elif self.done.stopped and (failure.symptom or failure.confidence != "high"):
            return False
        return failure.any_level or said.level not in (INFO, WARNING) or (said.nccl and said.level == WARNING)

    def _is_within(self, failure: Failure, said: LogLine, lines: Block, at: int) -> bool:
        if failure.within is None:
            return True
        began, number = time.thread_time(), self.done.lines + at
        if self._places[0] != number:
            # Several failures ask for the same line.
            self._places = number, read_places(_around(lines, at), said, self._needles.known.phases)
        self._spent[failure.name] += time.thread_time() - began
        return any(re.search(failure.within, each) for each in self._places[1])

    def _searched(self, failure: Failure, sign: Sign, text: str) -> Match | None:
        if failure.name in self._user.names:
            return self._user.search(failure, sign, text)
        began = time.thread_time()
        match = sign.expression.search(text)
        if match and failure.harmless and failure.harmless.search(text):
            match = None
        self._spent[failure.name] += time.thread_time() - began
        groups = match.groupdict() if match else {}
        return match and Match(groups, match.start("line") if "line" in groups else None)


def _around(lines: Block, at: int) -> Around:
    return Around(lines.preceding(at, LINES), lines.following(at, LINES // 2))


def _near(whole: bytes, needle: bytes) -> str:
    """Return the line: of a long one the part around the needle, of a redrawn one the matching drawing."""
    part = next((each for each in whole.split(b"\r") if needle in each), whole)
    if len(part) > LONGEST and not events.echoed(line(decoded(part[:400])).text):
        start = max(0, part.find(needle) - LONGEST // 2)
        part = part[start : start + LONGEST]
    return decoded(part[:LONGEST])
