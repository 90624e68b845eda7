"""Events are kept in order, bounded, and survive a damaged line."""

from pathlib import Path

import pytest

from medley.cluster import events


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))


def test_events_are_kept_in_order_and_a_damaged_line_costs_itself_alone() -> None:
    events.note("start", "demo on port 8000", "medley serve demo")
    with events.file().open("a", encoding="utf-8") as kept:
        kept.write('{"at_s": 1, "kind"\n')
    events.note("fault", "demo on port 8000", "the engine is stuck:\n no token for 120 s")
    found = list(events.events())
    assert [(each.kind, each.text) for each in found] == [
        ("start", "medley serve demo"),
        ("fault", "the engine is stuck: no token for 120 s"),
    ]


def test_the_file_stays_bounded_and_keeps_the_newest() -> None:
    for number in range(4000):
        events.file().parent.mkdir(parents=True, exist_ok=True)
        with events.file().open("a", encoding="utf-8") as kept:
            kept.write(f'{{"at_s": {number}, "kind": "end", "subject": "s", "text": "{"x" * 200}"}}\n')
    events.note("end", "s", "the last")
    assert events.file().stat().st_size < 600_000
    assert list(events.events())[-1].text == "the last"
