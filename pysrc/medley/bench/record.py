"""A record is one bench as it is kept: what was asked, what was measured, and all that it hangs on."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from medley import store
from medley.bench.expected import Expected
from medley.bench.figures import Figures, Spread, of_table, spreads
from medley.bench.load import Load, Run
from medley.problem import Problem

Mode = Literal["served", "latency", "throughput"]
_FORMAT = 1
LAST = "last"


@dataclass(frozen=True)
class Done:
    """One run that came to its end."""

    run: Run
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
    load: Load
    about: Mapping[str, Any]
    """What it hangs on: medley, engine, plan, hosts, what was measured of them; redacted."""
    expected: Mapping[int, Expected] = field(default_factory=dict)
    """By concurrency; empty where the plan is not known."""
    done: tuple[Done, ...] = ()
    whole: bool = False
    """Whether all of its runs are here; it may have been stopped before."""

    @property
    def counted(self) -> tuple[Done, ...]:
        """All but the warm-up."""
        return tuple(each for each in self.done if each.run.repeat)

    @property
    def rows(self) -> tuple["tuple[Mode, int]", ...]:
        """What was measured: mode and concurrency, in order."""
        return tuple(dict.fromkeys((each.mode, each.run.concurrency) for each in self.counted))

    def spreads(self, mode: Mode, concurrency: int) -> dict[str, Spread]:
        """Over the repeats."""
        return spreads(each.figures for each in self.runs(mode, concurrency))

    def runs(self, mode: Mode, concurrency: int) -> tuple[Done, ...]:
        return tuple(
            each for each in self.counted if (each.mode, each.run.concurrency) == (mode, concurrency)
        )

    def of_expected(self, mode: Mode, concurrency: int) -> "tuple[Expected, float] | None":
        """What was predicted, and measured/predicted."""
        told, found = self.expected.get(concurrency), self.spreads(mode, concurrency)
        if mode != "served" or told is None or "output_tokens_per_s" not in found:
            return None
        return told, found["output_tokens_per_s"].median / told.output_tokens_per_s

    @property
    def table(self) -> dict[str, Any]:
        """For programs; with the medians and spreads that it comes to."""
        return {
            "format": _FORMAT,
            **{each.name: getattr(self, each.name) for each in fields(self)},
            "load": asdict(self.load),
            "expected": {str(many): asdict(told) for many, told in self.expected.items()},
            "done": [asdict(each) for each in self.done],
            "results": [self._result(mode, many) for mode, many in self.rows],
        }

    def _result(self, mode: Mode, concurrency: int) -> dict[str, Any]:
        told = self.of_expected(mode, concurrency)
        return {
            "mode": mode,
            "concurrency": concurrency,
            **{name: asdict(each) for name, each in self.spreads(mode, concurrency).items()},
            "measured/predicted": told and told[1],
        }


def of_record(table: Mapping[str, Any]) -> Record:
    """What `table` says; KeyError or TypeError where another medley wrote it."""
    load = {**table["load"], "concurrencies": tuple(table["load"]["concurrencies"])}
    done = (
        {**each, "run": Run(**each["run"]), "figures": of_table(each["figures"])} for each in table["done"]
    )
    own = {each.name: table[each.name] for each in fields(Record)}
    expected = {int(many): Expected(**told) for many, told in table["expected"].items()}
    runs = tuple(Done(**{**each, "clocks": tuple(each["clocks"])}) for each in done)
    return Record(**{**own, "load": Load(**load), "expected": expected, "done": runs})


def folder() -> Path:
    return store.state() / "bench"


def save(record: Record) -> Path:
    path = folder() / f"{record.id}.json"
    store.write(path, json.dumps(record.table, indent=1))
    return path


def every() -> Iterator[Record]:
    """All that can be read, the newest first."""
    for path in sorted(folder().glob("*.json"), reverse=True):
        found = read(path)
        if found:
            yield found


def find(word: str) -> Record:
    """The one whose id begins so; `last`, `last-1` …: from the newest on; or a file."""
    if "/" in word or word.endswith(".json"):
        return _file(Path(word).expanduser())
    known = list(every())
    if word == LAST or word.startswith(f"{LAST}-"):
        back = word.removeprefix(LAST).lstrip("-") or "0"
        fitting = known[int(back) :][:1] if back.isdecimal() else []
    else:
        fitting = [each for each in known if each.id == word] or [
            each for each in known if each.id.startswith(word)
        ]
    if len(fitting) == 1:
        return fitting[0]
    raise Problem(
        f"there is no bench {word!r}"
        if not fitting
        else f"{word!r} is the beginning of {len(fitting)} benches",
        cause=f"here are {len(known)}: {', '.join(each.id for each in (fitting or known)[:5])}"
        if known
        else "none is kept here",
        fix="medley bench history" if known else "medley bench",
    )


def _file(path: Path) -> Record:
    found = read(path) if path.is_file() else None
    if found:
        return found
    raise Problem(
        f"{path} is no record of a bench",
        cause="there is no such file" if not path.exists() else "it was not written by this medley's bench",
        fix="medley bench history",
    )


def read(path: Path) -> Record | None:
    table = store.table(path)
    try:
        return of_record(table) if table and table.get("format") == _FORMAT else None
    except (KeyError, TypeError, ValueError):
        return None
