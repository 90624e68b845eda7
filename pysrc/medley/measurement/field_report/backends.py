"""Read from an engine's log which kernels and backends it really runs, each with its line."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from medley.measurement.field_report import Backend
from medley.schema import EngineName

_LONGEST = 300
_FILE = Path(__file__).with_suffix(".toml")


@cache
def _patterns(engine: EngineName) -> tuple[tuple[str, re.Pattern[str]], ...]:
    table: Mapping[str, Mapping[str, list[str]]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    rows = (*table[engine].items(), *table["nccl"].items())
    return tuple((what, re.compile(pattern)) for what, patterns in rows for pattern in patterns)


def backends(engine: EngineName, lines: Iterable[str], redacted: Callable[[str], str]) -> Iterator[Backend]:
    """Yield each once, where it stands first."""
    seen = set()
    for nth, line in enumerate(lines, 1):
        for what, pattern in _patterns(engine):
            for match in pattern.finditer(line):
                found = next(filter(None, match.groups()))
                if (what, found) not in seen:
                    seen.add((what, found))
                    text = redacted(line[max(0, match.start() - 80) :].strip()[:_LONGEST])
                    yield Backend(what=what, found=redacted(found)[:80], line=nth, text=text)
