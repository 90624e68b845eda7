"""Keep benchmarks as JSON files, and find them again."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from medley import storage
from medley.errors import Problem
from medley.measurement.bench import BenchLoad, BenchRun, Figures, Spread, spreads
from medley.measurement.bench.context import Expected

Mode = Literal["served", "latency", "throughput"]
_FORMAT = 1
_LAST = "last"


@dataclass(frozen=True)
class Done:
    run: BenchRun
    figures: Figures
    raw: Mapping[str, Any]
    """What the engine's own benchmark wrote, but for lists."""
    clocks: tuple[str, ...] = ()
    """Of this host's GPUs meanwhile."""
    mode: Mode = "served"


@dataclass(frozen=True)
class Record:
    id: str
    when: str
    """UTC, ISO 8601."""
    model: str
    engine: str
    load: BenchLoad
    about: Mapping[str, Any]
    """Its conditions: medley, engine, plan, hosts, what was measured of them; redacted."""
    expected: Mapping[int, Expected] = field(default_factory=dict)
    """By concurrency; empty where the plan is not known."""
    done: tuple[Done, ...] = ()
    whole: bool = False
    """Whether all of its runs are here; it may have been stopped before."""

    @property
    def counted(self) -> tuple[Done, ...]:
        return tuple(each for each in self.done if each.run.repeat)

    @property
    def rows(self) -> "tuple[tuple[Mode, int], ...]":
        return tuple(dict.fromkeys((each.mode, each.run.concurrency) for each in self.counted))

    def spreads(self, mode: Mode, concurrency: int) -> dict[str, Spread]:
        return spreads(each.figures for each in self.runs(mode, concurrency))

    def runs(self, mode: Mode, concurrency: int) -> tuple[Done, ...]:
        return tuple(
            each for each in self.counted if (each.mode, each.run.concurrency) == (mode, concurrency)
        )

    def predicted(self, mode: Mode, concurrency: int) -> "tuple[Expected, float] | None":
        """Return the prediction, and measured/predicted."""
        expected, found = self.expected.get(concurrency), self.spreads(mode, concurrency)
        if mode != "served" or expected is None or "output_tokens_per_s" not in found:
            return None
        return expected, found["output_tokens_per_s"].median / expected.output_tokens_per_s

    @property
    def table(self) -> dict[str, Any]:
        """For programs; with the medians and spreads that it comes to."""
        own = asdict(self)
        expected = {str(many): each for many, each in own["expected"].items()}
        return {
            "format": _FORMAT,
            **own,
            "expected": expected,
            "results": [self._result(*row) for row in self.rows],
        }

    def _result(self, mode: Mode, many: int) -> dict[str, Any]:
        spreads = {name: asdict(each) for name, each in self.spreads(mode, many).items()}
        predicted = self.predicted(mode, many)
        ratio = predicted and predicted[1]
        return {"mode": mode, "concurrency": many, **spreads, "measured/predicted": ratio}


def save(record: Record) -> Path:
    path = _folder() / f"{record.id}.json"
    storage.write(path, json.dumps(record.table, indent=1))
    return path


def every() -> Iterator[Record]:
    """Yield all readable records, newest first."""
    return filter(None, map(read, sorted(_folder().glob("*.json"), reverse=True)))


def find(word: str) -> Record:
    """The one whose id begins so; `last`, `last-1` …: from the newest on; or a file."""
    if "/" in word or word.endswith(".json"):
        return _file(Path(word).expanduser())
    known = list(every())
    if word == _LAST or word.startswith(f"{_LAST}-"):
        back = word.removeprefix(_LAST).lstrip("-") or "0"
        fitting = known[int(back) :][:1] if back.isdecimal() else []
    else:
        fitting = [each for each in known if each.id == word] or [
            each for each in known if each.id.startswith(word)
        ]
    if len(fitting) == 1:
        return fitting[0]
    ids = ", ".join(each.id for each in (fitting or known)[:5])
    raise Problem(
        f"{word!r} is the beginning of {len(fitting)} benches" if fitting else f"there is no bench {word!r}",
        cause=f"here are {len(known)}: {ids}" if known else "none is kept here",
        fix="medley bench history" if known else "medley bench",
    )


def _file(path: Path) -> Record:
    found = read(path) if path.is_file() else None
    if found:
        return found
    raise Problem(
        f"{path} is not a benchmark record",
        cause="there is no such file" if not path.exists() else "it was not written by this medley's bench",
        fix="medley bench history",
    )


def _folder() -> Path:
    return storage.state() / "bench"


def read(path: Path) -> Record | None:
    table = storage.table(path)
    try:
        return _adapter().validate_python(table) if table and table.get("format") == _FORMAT else None
    except ValueError:
        return None


@cache
def _adapter() -> TypeAdapter[Record]:
    return TypeAdapter(Record)
