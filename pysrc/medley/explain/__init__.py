"""To explain a log is to name the failure in it: what failed first, with its numbers, and what to type."""

from collections.abc import Iterable, Sequence

from medley.explain.chosen import Explained, chosen
from medley.explain.knowledge import KNOWN
from medley.explain.known import Known
from medley.explain.log import Log
from medley.explain.scan import scanned


def explained(logs: Iterable[Log], known: Sequence[Known] = KNOWN) -> Explained:
    """What is wrong in these logs, each of a host or a rank; nothing, where they are healthy."""
    return chosen([scanned(log, known) for log in logs])


__all__ = ["KNOWN", "Explained", "Log", "explained"]
