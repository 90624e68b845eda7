"""Find in an engine's log which kernels and backends it runs, with the line of each."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from medley.measurement.field_report.report import Backend
from medley.schema import EngineName

_MAX_TEXT_CHARS, _MAX_NAME_CHARS = 300, 80
_CONTEXT_CHARS = 80
"""The number of characters of a line to show in front of a match."""
_FILE = Path(__file__).with_suffix(".toml")


@cache
def _read_patterns(engine: EngineName) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the patterns of backends.toml, with the part of the engine that each is about."""
    table: Mapping[str, Mapping[str, list[str]]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    rows = (*table[engine].items(), *table["nccl"].items())
    return tuple((part, re.compile(pattern)) for part, patterns in rows for pattern in patterns)


def find_backends(
    engine: EngineName, lines: Iterable[str], redact: Callable[[str], str]
) -> Iterator[Backend]:
    """Yield each backend once, with the first line that names it."""
    reported = set()
    for number, line in enumerate(lines, 1):
        for part, pattern in _read_patterns(engine):
            for match in pattern.finditer(line):
                name = next(filter(None, match.groups()))
                if (part, name) not in reported:
                    reported.add((part, name))
                    # Half of a secret is not recognized, so the cut comes last.
                    redacted_line = redact(line)
                    start = (pattern.search(redacted_line) or match).start()
                    text = redacted_line[max(0, start - _CONTEXT_CHARS) :].strip()[:_MAX_TEXT_CHARS]
                    yield Backend(what=part, found=redact(name)[:_MAX_NAME_CHARS], line=number, text=text)
