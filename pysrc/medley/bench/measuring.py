"""A bench under way: each run until the last, kept as it comes, and Ctrl-C in between."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from secrets import token_hex

from medley import facts
from medley.bench import record as records
from medley.bench.aim import Aim
from medley.bench.load import Load
from medley.bench.record import Record
from medley.bench.running import done
from medley.bench.surroundings import surroundings
from medley.watch import Watch


def measured(aim: Aim, load: Load, limit_s: float, watch: Watch) -> Record:
    """All runs of the load."""
    made = Record(
        *begun(aim.model),
        engine=aim.engine,
        load=load,
        about=surroundings(aim.engine, aim.binary, aim.told, aim.what),
        expected=aim.expected(load, watch),
    )
    gpus = any(facts.facts(said).gpus for said in aim.told.values())
    with kept(made, watch) as keep:
        for run in load.runs():
            each = done(run, aim.command, aim.client.figures, watch, gpus=gpus, limit_s=limit_s)
            rate = each.figures.output_tokens_per_s
            watch.note(f"{run}: {rate:.1f} tokens/s" if rate else str(run))
            made = keep(replace(made, done=(*made.done, each)))
        return keep(replace(made, whole=True))


def begun(model: str) -> tuple[str, str, str]:
    """A new record's id, which sorts by time, when that is, and its model."""
    now = datetime.now(UTC)
    name = "".join(each if each.isalnum() or each in "-." else "-" for each in model.rpartition("/")[2])[:40]
    return f"{now:%Y%m%d-%H%M%S}-{name}-{token_hex(2)}", now.isoformat(timespec="seconds"), model


class _Keeping:
    def __init__(self, record: Record) -> None:
        self.record = record

    def __call__(self, record: Record) -> Record:
        records.save(record)
        self.record = record
        return record


@contextmanager
def kept(record: Record, watch: Watch) -> Iterator[_Keeping]:
    """What keeps a record; where it breaks off, it says what is kept."""
    keep = _Keeping(record)
    try:
        yield keep
    except BaseException:
        if keep.record.counted:
            count = len(keep.record.counted)
            watch.note(f"stopped; {count} of its runs are kept: medley bench show {keep.record.id}")
        raise
