"""Save benchmarks as JSON files, and find them again."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from medley import storage, user
from medley.errors import Problem
from medley.measurement.bench.context import ExpectedFigures
from medley.measurement.bench.figures import Figures, Spread, compute_spreads
from medley.measurement.bench.load import BenchLoad, BenchRun
from medley.unusable_file import skip_unusable_file
from medley.values import Value

Mode = Literal["served", "latency", "throughput"]
_FORMAT = 1
_MAX_IDS_SHOWN = 5
_NEWEST = "last"


class RunResult(Value):
    """The result of one run."""

    run: BenchRun
    figures: Figures
    raw: Mapping[str, Any]
    """The result file of the engine's own benchmark, without lists."""
    clocks: tuple[str, ...] = ()
    """The clocks of this host's GPUs during the run, as nvidia-smi prints them."""
    mode: Mode = "served"


class Record(Value):
    """A benchmark with its conditions, predictions and runs; its fields are the keys of the JSON file."""

    id: str
    when: str
    """The time in UTC, ISO 8601."""
    model: str
    engine: str
    load: BenchLoad
    about: Mapping[str, Any]
    """The conditions, redacted: medley, engine, plan, hosts, and their measured speeds."""
    expected: Mapping[int, ExpectedFigures] = {}
    """The predicted figures by concurrency; empty if the plan is unknown."""
    done: tuple[RunResult, ...] = ()
    whole: bool = False
    """Whether all runs are here; False if the benchmark was stopped."""

    @property
    def counted(self) -> tuple[RunResult, ...]:
        """The results without that of the warm-up."""
        return tuple(result for result in self.done if result.run.repeat)

    @property
    def rows(self) -> "tuple[tuple[Mode, int], ...]":
        """The pairs of mode and concurrency that have results."""
        return tuple(dict.fromkeys((result.mode, result.run.concurrency) for result in self.counted))

    def compute_spreads(self, mode: Mode, concurrency: int) -> dict[str, Spread]:
        return compute_spreads(result.figures for result in self.find_results(mode, concurrency))

    def find_results(self, mode: Mode, concurrency: int) -> tuple[RunResult, ...]:
        return tuple(
            result for result in self.counted if (result.mode, result.run.concurrency) == (mode, concurrency)
        )

    def find_prediction(self, mode: Mode, concurrency: int) -> "tuple[ExpectedFigures, float] | None":
        """Return the prediction, and measured/predicted."""
        expected, spreads = self.expected.get(concurrency), self.compute_spreads(mode, concurrency)
        if mode != "served" or expected is None or "output_tokens_per_s" not in spreads:
            return None
        return expected, spreads["output_tokens_per_s"].median / expected.output_tokens_per_s

    @property
    def table(self) -> dict[str, Any]:
        """The record for JSON, with medians and spreads of its runs."""
        fields = self.to_table()
        expected = {str(concurrency): row for concurrency, row in fields["expected"].items()}
        return {
            "format": _FORMAT,
            **fields,
            "expected": expected,
            "results": [self._summarize_row(*row) for row in self.rows],
        }

    def _summarize_row(self, mode: Mode, concurrency: int) -> dict[str, Any]:
        spreads = {
            name: spread.to_table() for name, spread in self.compute_spreads(mode, concurrency).items()
        }
        prediction = self.find_prediction(mode, concurrency)
        ratio = prediction and prediction[1]
        return {"mode": mode, "concurrency": concurrency, **spreads, "measured/predicted": ratio}


def save_record(record: Record) -> Path:
    path = _get_folder() / f"{record.id}.json"
    storage.write_text(path, json.dumps(record.table, indent=1))
    return path


def list_records() -> Iterator[Record]:
    """Yield all readable records, newest first."""
    for path in reversed(storage.list_folder(_get_folder(), "*.json")):
        with skip_unusable_file():
            if record := read(path):
                yield record


def find_record(text: str) -> Record:
    """Return the record whose id begins with the text, or a file's; `last-1` is the second newest.

    Raise a Problem if no record, or several, match.
    """
    if "/" in text or text.endswith(".json"):
        return _read_file(user.expand_home(text))
    records = list(list_records())
    matches = _match_records(text, records)
    if len(matches) == 1:
        return matches[0]
    ids = ", ".join(record.id for record in (matches or records)[:_MAX_IDS_SHOWN])
    raise Problem(
        f"{text!r} is the beginning of {len(matches)} benches" if matches else f"there is no bench {text!r}",
        cause=f"here are {len(records)}: {ids}" if records else "none is kept here",
        fix="medley bench history" if records else "medley bench",
    )


def _match_records(text: str, records: list[Record]) -> list[Record]:
    if text == _NEWEST or text.startswith(f"{_NEWEST}-"):
        offset = text.removeprefix(_NEWEST).lstrip("-") or "0"
        return records[int(offset) :][:1] if offset.isdecimal() else []
    exact = [record for record in records if record.id == text]
    return exact or [record for record in records if record.id.startswith(text)]


def _read_file(path: Path) -> Record:
    record = read(path)
    if record:
        return record
    raise Problem(
        f"{path} is not a benchmark record",
        cause="there is no such file"
        if not storage.exists(path)
        else "it was not written by this medley's bench",
        fix="medley bench history",
    )


def _get_folder() -> Path:
    return storage.find_state_folder() / "bench"


def read(path: Path) -> Record | None:
    """Read a record; None if the file is not one of this format."""
    table = storage.read_table(path) or {}
    if table.get("format") != _FORMAT:
        return None
    try:
        return Record.from_table({key: table[key] for key in Record.__struct_fields__ if key in table})
    except ValueError:
        return None
