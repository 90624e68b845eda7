"""The lines of a log, block by block, each block with some lines before and after it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from medley.explain.line import line

BLOCK_BYTES = 1 << 20
_BEFORE, _AFTER = 60, 32


@dataclass(frozen=True)
class Block:
    """A block's, with some of those before and after it."""

    before: list[bytes]
    here: list[bytes]
    after: list[bytes]

    def preceding(self, at: int, count: int) -> list[bytes]:
        found = self.here[max(0, at - count) : at]
        return (
            [*self.before[len(self.before) - count + len(found) :], *found] if len(found) < count else found
        )

    def following(self, at: int, count: int) -> list[bytes]:
        found = self.here[at + 1 : at + 1 + count]
        return [*found, *self.after[: count - len(found)]]

    def when(self, at: int) -> tuple[int, int, float] | None:
        """Of the last line before it that has a time."""
        near = [*self.before, *self.here[max(0, at - _BEFORE) : at]][-_BEFORE:]
        said = (line(decoded(each[:300])).when for each in reversed(near))
        return next((when for when in said if when), None)


def blocks(data: Iterable[bytes]) -> Iterator[Block]:
    before: list[bytes] = []
    for here, after in _with_next(_lines(data)):
        yield Block(before, here, after[:_AFTER])
        before = here[-_BEFORE:]


def decoded(data: bytes) -> str:
    return data.decode(errors="replace")


def _lines(blocks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Whole ones, block by block; one without an end for a whole block is cut."""
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        if len(rest) >= BLOCK_BYTES:
            whole, rest = [*whole, rest], b""
        if whole:
            yield whole
    if rest:
        yield [rest]


def _with_next(blocks: Iterator[list[bytes]]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    last = next(blocks, None)
    while last is not None:
        coming = next(blocks, None)
        yield last, coming or []
        last = coming
