"""Find the last error in an engine's output."""

import re
from collections.abc import Iterable


def find_last_error_line(
    lines: Iterable[str],
    prefix_pattern: re.Pattern[str],
    error_pattern: re.Pattern[str],
    generic_phrases: Iterable[str],
) -> str | None:
    """Return the last error without its prefix, if possible one without any of the generic phrases."""
    messages = (prefix_pattern.sub("", line).strip() for line in lines)
    errors = [line for line in messages if error_pattern.match(line)]
    reasons = [line for line in errors if not any(phrase in line for phrase in generic_phrases)]
    return next(reversed(reasons or errors), None)
