"""A scan reads a log once, in blocks: where its known failures stand, and what became of what wrote it.

A hundred megabytes take seconds, because the words of failures are looked for in whole blocks, and
expressions only in the lines that have some.
"""

import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from medley.explain import course
from medley.explain.known import HIGH, Known, Shape
from medley.explain.line import INFO, WARNING, Line, line

BLOCK_BYTES = 1 << 20
_MOST_OF_ONE = 6
_AFTER_BYTES = 16 << 10
_BEFORE_BYTES = 8 << 10
_LONGEST = 6000
_TAIL = 200
# Most words of failures have one of these in them, so most lines need not be looked at for each by itself.
_GATES = (
    b"rror",
    b"ailed",
    b"annot",
    b"xception",
    b"not ",
    b"No ",
    b"nable",
    b"imed out",
    b"refused",
    b"must",
)


@dataclass(frozen=True)
class Log:
    name: str
    blocks: Iterable[bytes]


@dataclass(frozen=True)
class Hit:
    known: Known
    found: Mapping[str, str | None]
    line: Line
    number: int
    log: str
    when: tuple[int, int, float] | None


@dataclass
class Scanned:
    """What a log shows since it last began anew, or was ready."""

    name: str
    hits: list[Hit] = field(default_factory=list)
    ready: tuple[int, int, float] | None = None
    """When it last became ready, where it says so."""
    was_ready: bool = False
    stopped: bool = False
    """It was told to end; what it says after that is no failure."""
    error: tuple[int, str] | None = None
    """The number and text of the first line that looks like a failure."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL))
    lines: int = 0

    def begin(self, *, ready: bool) -> None:
        """What was before is mended, or another story."""
        self.hits = [hit for hit in self.hits if hit.known.stays and ready]
        self.error, self.stopped, self.was_ready = None, False, ready


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
        alone = (needle for needle in self._shapes if not any(gate in needle for gate in _GATES))
        self._gates = (*_GATES, *alone)
        self._seen = Counter[str]()

    def read(self, blocks: Iterable[bytes]) -> Scanned:
        before = b""
        for block, after in _with_next(_whole_lines(blocks)):
            self._block(before, block, after)
            before = block[-_BEFORE_BYTES:]
            self.done.lines += block.count(b"\n")
            self.done.tail.extend(_text(block[-(64 << 10) :]).splitlines()[-_TAIL:])
        return self.done

    def _block(self, before: bytes, block: bytes, after: bytes) -> None:
        starts = sorted(self._gated(block))
        for at, needle in self._needled(block, starts):
            for what, shape in self._shapes[needle]:
                if isinstance(what, Known) and self._seen[what.name] >= _MOST_OF_ONE:
                    continue
                raw = _raw(block, at, needle)
                if isinstance(what, course.Turn):
                    self._turn(what, shape, raw, _number(self.done, block, at))
                else:
                    self._hit(what, shape, raw, (before, block, after), at)

    def _gated(self, block: bytes) -> set[int]:
        """Where lines start that have a gate in them."""
        starts = set()
        for gate in self._gates:
            at = block.find(gate)
            while at >= 0:
                starts.add(block.rfind(b"\n", 0, at) + 1)
                end = block.find(b"\n", at)
                at = block.find(gate, end) if end >= 0 else -1
        return starts

    def _needled(self, block: bytes, starts: list[int]) -> list[tuple[int, bytes]]:
        """The lines that have a needle, in their order, each with the needle."""
        parts = [block[start : block.find(b"\n", start) + 1] for start in starts]
        joined, ends, found = b"".join(parts), [], []
        total = 0
        for part in parts:
            total += len(part)
            ends.append(total)
        for needle in self._shapes:
            at = joined.find(needle)
            while at >= 0:
                which = bisect_right(ends, at)
                found.append((starts[which], needle))
                at = joined.find(needle, ends[which])
        return sorted(found)

    def _turn(self, turn: "course.Turn", shape: Shape, raw: str, number: int) -> None:
        said = line(raw)
        if not shape.pattern.search(said.text) or course.echoed(said.text):
            return
        if turn.kind in (course.READY, course.BEGINS):
            self.done.begin(ready=turn.kind == course.READY)
            self._seen.clear()
            self.done.ready = said.when if turn.kind == course.READY else self.done.ready
        elif turn.kind == course.STOPPED:
            self.done.stopped = True
        elif not self.done.stopped and self.done.error is None and said.level not in (INFO, WARNING):
            self.done.error = (number, said.text)

    def _hit(self, known: Known, shape: Shape, raw: str, around: tuple[bytes, bytes, bytes], at: int) -> None:
        said = line(raw)
        if course.echoed(said.text) and not known.echoes:
            return
        if self.done.stopped and (known.symptom or known.confidence != HIGH):
            return
        if said.level in (INFO, WARNING) and not known.quiet and not (said.nccl and said.level == WARNING):
            return
        before, block, after = around
        rest = _following(block, after, at, known.more) if known.more else []
        text = "\n".join([said.text, *(line(each).text for each in rest)])
        match = shape.pattern.search(text)
        if match is None or (known.unless and known.unless.search(text)):
            return
        self._seen[known.name] += 1
        when = said.when or _time_before(before, block, at)
        number = _number(self.done, block, at)
        self.done.hits.append(Hit(known, match.groupdict(), said, number, self.done.name, when))


def _whole_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The same in blocks that end with a line; one without an end for a whole block is cut."""
    rest = b""
    for block in blocks:
        whole, end, rest_ = (rest + block).rpartition(b"\n")
        if end:
            yield whole + end
            rest = rest_
        elif len(rest_) >= BLOCK_BYTES:
            yield rest_ + b"\n"
            rest = b""
        else:
            rest = rest_
    if rest:
        yield rest + b"\n"


def _with_next(blocks: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Each with the beginning of what follows it."""
    last = next(blocks, None)
    while last is not None:
        coming = next(blocks, None)
        yield last, (coming or b"")[:_AFTER_BYTES]
        last = coming


def _raw(block: bytes, start: int, needle: bytes) -> str:
    """The line; of a very long one what stands around the needle, of one drawn anew the last drawing."""
    whole = block[start : block.find(b"\n", start)]
    part = next((each for each in whole.split(b"\r") if needle in each), whole)
    if len(part) > _LONGEST and not course.echoed(line(_text(part[:400])).text):
        middle = part.find(needle)
        part = part[max(0, middle - _LONGEST // 2) : middle + _LONGEST // 2]
    return _text(part[:_LONGEST])


def _following(block: bytes, after: bytes, start: int, count: int) -> list[str]:
    end = block.find(b"\n", start) + 1
    near = block[end : end + _AFTER_BYTES]
    near = near + after if len(near) < _AFTER_BYTES else near
    return [_text(each[:2000]) for each in near.split(b"\n", count)[:count]]


def _time_before(before: bytes, block: bytes, at: int) -> tuple[int, int, float] | None:
    """Of the last line before it that has a time."""
    near = block[max(0, at - _BEFORE_BYTES) : at]
    near = before + near if at < _BEFORE_BYTES else near
    said = (line(_text(each[:300])).when for each in reversed(near.split(b"\n")[-60:]))
    return next((when for when in said if when), None)


def _number(done: Scanned, block: bytes, at: int) -> int:
    return done.lines + block.count(b"\n", 0, at) + 1


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def shown(text: str) -> str:
    """A line to show: one line, of a length that fits."""
    return re.sub(r"\s+", " ", text).strip()[:400]
