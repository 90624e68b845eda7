"""Hold what surrounds an error: the lines near it, and what the whole log shows before it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import field

from medley.explain.skipped_imports import SkippedImport
from medley.values import Value


class NearbyLines(NamedTuple):
    """Lines before and after an error, as the log has them."""

    before: Sequence[bytes]
    after: Sequence[bytes] = ()


class LogFacts(Value):
    """What the whole log shows: `flags`: those that select a component, with what to type for each."""

    engine: str | None = None
    flags: Mapping[str, str] = field(default_factory=dict)
    nccl: str | None = None
    version: str | None = None
    enabled: tuple[str, ...] = ()
    arguments: str = ""
    """The text in which the engine printed its arguments."""
    driver: str | None = None
    figures: Mapping[str, str] = field(default_factory=dict)
    """Figures of memory, releases of L4T and addresses, by the groups of events.TRANSITIONS."""
    remedies: tuple[str, ...] = ()
    """Warnings that name a remedy."""
    skipped: tuple[SkippedImport, ...] = ()
    """Imports that failed at the start."""
