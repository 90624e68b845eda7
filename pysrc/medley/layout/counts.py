"""Counts say how many stages of each class of hosts make up a pipeline."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod

# Above, not every number of stages of every class is tried: powers of two and all do.
_MOST = 64
_FEW = 8


def counts(units: Sequence[int], stages: int | None) -> Iterator[tuple[int, ...]]:
    """How many units of each class."""
    few = [range(count + 1) if count <= _FEW else sorted({0, *_powers(count), count}) for count in units]
    fewer = [sorted({0, min(1, count), count}) for count in units]
    made: Iterable[tuple[int, ...]] = _prefixes(units)
    if (options := next((each for each in (few, fewer) if prod(map(len, each)) <= _MOST), None)) is not None:
        made = product(*options)
    forced = [_filled(units, stages)] if stages is not None else []
    yield from (chosen for chosen in dict.fromkeys((*made, *forced)) if any(chosen))


def _powers(count: int) -> list[int]:
    return [1 << nth for nth in range(count.bit_length())]


def _prefixes(units: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """One unit of a class, all of a class, and all of the fastest classes."""
    for nth, count in enumerate(units):
        alone = tuple(int(each == nth and count > 0) for each in range(len(units)))
        yield alone
        yield tuple(count * one for one in alone)
        if nth < _FEW or nth + 1 in {*_powers(len(units)), len(units)}:
            yield tuple(many if each <= nth else 0 for each, many in enumerate(units))


def _filled(units: Sequence[int], stages: int) -> tuple[int, ...]:
    """So many units, of the fastest classes first."""
    found, left = [], stages
    for count in units:
        found.append(min(count, left))
        left -= found[-1]
    return tuple(found)
