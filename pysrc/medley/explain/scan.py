"""A scan reads a log once, in blocks: where its known failures stand, and what became of what wrote it.

A log says the same in millions of lines that differ in numbers alone. So each kind of line is looked at once
for words of failures; expressions are tried only in lines of the kinds that have some.
"""

import re
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

from medley.explain import course, uncaught
from medley.explain.blocks import Block, blocks, decoded
from medley.explain.known import HIGH, Known, Shape
from medley.explain.line import INFO, WARNING, Line, line
from medley.explain.log import TAIL, Hit, Log, Scanned

_MOST_OF_ONE = 6
_MOST_OF_KIND = 40
_MOST_TRIES = 20_000
_MOST_S = 0.25
"""Of processor time for all expressions of one failure: a log may be made to take them long."""
_MOST_KINDS = 50_000
LONGEST = 1600
"""Characters of a line around the words that are looked for."""
# What makes a line of one kind differ from the next: numbers, and the letters of hexadecimal names.
_VARYING = b"0123456789abcdef"
# A line with INFO and none of these has the level that its words say.
_TROUBLE = re.compile(rb"ERR|rror|WARN|CRIT|FATAL| [WEFC] ")
_TOLD = re.compile(r"(?:\S+ )?(?:medley: |medley keeps |\$ )")


def scanned(log: Log, known: Sequence[Known]) -> Scanned:
    return _Scan(log.name, known).read(log.blocks)


class _Scan:
    def __init__(self, name: str, known: Sequence[Known]) -> None:
        self.done = Scanned(name)
        self._shapes: dict[bytes, list[tuple[Known | course.Turn, Shape]]] = {}
        every: tuple[Known | course.Turn, ...] = (*course.TURNS, *known)
        for each in every:
            for shape in each.shapes:
                self._shapes.setdefault(shape.needle.encode(), []).append((each, shape))
        self._bare = {needle: needle.translate(None, _VARYING) for needle in self._shapes}
        self._quiet = {
            each for each, whats in self._shapes.items() if any(_is_quiet(what) for what, _ in whats)
        }
        self._kinds: dict[bytes, tuple[bytes, ...]] = {}
        self._seen, self._tried = Counter[str](), Counter[str]()
        self._spent: dict[str, float] = {}
        self._slipped = Counter[bytes]()
        self._wrong = {
            shape.needle.encode()
            for turn in course.TURNS
            for shape in turn.shapes
            if turn.kind == course.WRONG
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
        live = {
            needle for needle, whats in self._shapes.items() if not all(self._is_done(x) for x, _ in whats)
        }
        hot = {kind: left for kind in set(kinds) if (left := self._left(kind, live))}
        if not hot:
            return
        for at, kind in enumerate(kinds):
            for needle in hot.get(kind, ()):
                if needle not in self._wrong or self._is_new(kind):
                    self._needle(lines, at, needle)

    def _left(self, kind: bytes, live: set[bytes]) -> tuple[bytes, ...]:
        """The needles that lines of this kind are still looked at for."""
        worn = self._slipped[kind] >= _MOST_OF_KIND
        return tuple(
            each for each in self._kinds[kind] if each in live and not (worn and each in self._wrong)
        )

    def _is_new(self, kind: bytes) -> bool:
        """Whether lines of this kind were looked at seldom."""
        self._slipped[kind] += 1
        return self._slipped[kind] <= _MOST_OF_KIND

    def _learn(self, kinds: Iterable[bytes]) -> None:
        """Which needles may be in lines of these kinds, found in all new ones together."""
        distinct = set(kinds)
        new = [kind for kind in distinct if kind not in self._kinds]
        if len(self._kinds) + len(new) > _MOST_KINDS:
            self._kinds, new = {}, list(distinct)
        self._kinds.update(dict.fromkeys(new, ()))
        informing = {kind for kind in new if b"INFO" in kind and not _TROUBLE.search(kind)}
        self._find(list(informing), self._quiet)
        self._find([kind for kind in new if kind not in informing], self._shapes)

    def _find(self, kinds: list[bytes], needles: Iterable[bytes]) -> None:
        joined, ends = b"\n".join(kinds), list(accumulate(len(kind) + 1 for kind in kinds))
        for needle in needles:
            at = joined.find(self._bare[needle])
            while at >= 0:
                which = bisect_right(ends, at)
                self._kinds[kinds[which]] += (needle,)
                at = joined.find(self._bare[needle], ends[which])

    def _needle(self, lines: Block, at: int, needle: bytes) -> None:
        if needle not in lines.here[at]:
            return
        said = None
        for what, shape in self._shapes[needle]:
            if self._is_done(what):
                continue
            said = said or line(_near(lines.here[at], needle))
            if isinstance(what, course.Turn):
                self._turn(what, shape, said, lines, at)
            else:
                self._hit(what, shape, said, lines, at)

    def _is_done(self, what: "Known | course.Turn") -> bool:
        """Enough is known of it; a log may say one thing a million times."""
        if isinstance(what, course.Turn):
            return what.kind == course.WRONG and self.done.stopped
        if self._seen[what.name] >= _MOST_OF_ONE or self._tried[what.name] >= _MOST_TRIES:
            return True
        return self._spent.get(what.name, 0) > _MOST_S

    def _turn(self, turn: "course.Turn", shape: Shape, said: Line, lines: Block, at: int) -> None:
        if not shape.pattern.search(said.text) or course.echoed(said.text):
            return
        match turn.kind:
            case course.MENDED:
                self.done.mend(turn.mends)
            case course.STOPPED:
                self.done.stopped = True
            case course.WRONG:
                self._slip(said, lines, at)
            case _:
                self.done.begin(ready=turn.kind == course.READY)
                self._seen.clear()
                self._slipped.clear()
                self.done.ready = said.when if turn.kind == course.READY else self.done.ready

    def _slip(self, said: Line, lines: Block, at: int) -> None:
        number = self.done.lines + at + 1
        if self.done.slips and self.done.slips[-1].number == number:
            return
        when = said.when or lines.when(at)
        new = uncaught.slip(said, number, when, lines.preceding(at, 8), lines.following(at, 12))
        if new and (self.done.death is None or number - self.done.death <= uncaught.NEAR):
            uncaught.kept(self.done.slips, new)

    def _hit(self, known: Known, shape: Shape, said: Line, lines: Block, at: int) -> None:
        self._tried[known.name] += 1
        if course.echoed(said.text) or (course.source(said.text) and not known.echoes):
            return
        if self.done.stopped and not known.stops and (known.symptom or known.confidence != HIGH):
            return
        if known.stops and self.done.was_ready:
            return
        if said.level in (INFO, WARNING) and not known.quiet and not (said.nccl and said.level == WARNING):
            return
        more = _of_one(said, lines.following(at, known.more * 2))[: known.more]
        text = "\n".join([said.text, *(each.text for _, each in more)])
        match = self._searched(known, shape, text)
        if match is None:
            return
        self._seen[known.name] += 1
        when = said.when or lines.when(at)
        number = self.done.lines + at + 1
        if known.last and self.done.death is None:
            self.done.death = number
        if "line" in match.groupdict():
            down = text.count("\n", 0, match.start("line"))
            said, number = (more[down - 1][1], number + more[down - 1][0]) if down else (said, number)
        self.done.hits.append(Hit(known, match.groupdict(), said, number, self.done.name, when))

    def _searched(self, known: Known, shape: Shape, text: str) -> re.Match[str] | None:
        began = time.thread_time()
        match = shape.pattern.search(text)
        if match and known.unless and known.unless.search(text):
            match = None
        self._spent[known.name] = self._spent.get(known.name, 0) + time.thread_time() - began
        return match


def _of_one(said: Line, after: Iterable[bytes]) -> list[tuple[int, Line]]:
    """The lines after it that are not another rank's, and how many lines down each is."""
    lines = ((down, line(decoded(each[:LONGEST]))) for down, each in enumerate(after, 1))
    return [(down, each) for down, each in lines if each.rank in (None, said.rank)]


def _is_quiet(what: Known | course.Turn) -> bool:
    return isinstance(what, course.Turn) or what.quiet


def _near(whole: bytes, needle: bytes) -> str:
    """The line; of a very long one what stands around the needle, of one drawn anew the last drawing."""
    part = next((each for each in whole.split(b"\r") if needle in each), whole)
    if len(part) > LONGEST and not course.echoed(line(decoded(part[:400])).text):
        middle = part.find(needle)
        part = part[max(0, middle - LONGEST // 2) : middle + LONGEST // 2]
    return decoded(part[:LONGEST])
