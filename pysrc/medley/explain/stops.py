"""Find the stop by a user, a script or a supervisor that ended a process with SIGKILL."""

import re
from collections.abc import Sequence

from medley.explain.lines import cut_at_blank, parse_line

# A wait that ended, a command that stops a container, or a supervisor's probe; all end in code 137.
_STOP = re.compile(
    r"(?i)\bwait(?:ing|ed)?\b.{0,80}\b(?:timed? ?out|time is up|gave up|giving up|aborted)|"
    r"\b(?:timed out|gave up|giving up) (?:after .{0,30})?(?:while )?waiting\b|"
    r"\bnot (?:ready|healthy|reachable|up) (?:after|within) \d|"
    r"\b(?:container|process) (?:is )?still running\b|"
    r"\b(?:docker|podman|nerdctl)(?: compose)? (?:stop|kill|down|restart)\b|\bkubectl delete\b|"
    r"\b(?:startup|liveness) probe failed|\bstopped by (?:the )?(?:user|script|SIGKILL|launcher)|"
    r"stop-sigterm' timed out|start operation timed out|\bOOMKilled\W{1,4}false\b|"
    r"\btimeout: sending signal|^\s*\$ ?timeout \d"
)
_MAX_CHARS = 120
_NEAR_LINES = 25
"""Lines before the end that may show it."""


def find_stop(lines: Sequence[str]) -> str | None:
    """Return a sentence with the line near the end that shows the stop."""
    stop_line = next(
        (
            text
            for text in lines[-_NEAR_LINES:]
            # A rank reports its own timeouts, and a script has no rank.
            if _STOP.search(text[:400]) and parse_line(text[:400]).rank is None
        ),
        None,
    )
    if stop_line is None:
        return None
    return (
        f"It was stopped from outside ({cut_at_blank(stop_line.strip(), _MAX_CHARS)}): a SIGKILL, exit code "
        "137, is then only that stop, not a lack of memory"
    )
