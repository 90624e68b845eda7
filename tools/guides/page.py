"""Write docs/explanation/published-guides.md: each scenario, Medley's commands, and settings side by side."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tools.documents import DOCS
from tools.guides import compare
from tools.guides.compare import NOT_REACHED, Row
from tools.guides.dry_run import ENGINE, ENVIRONMENT, DryRun, dry_run
from tools.guides.extract import Fact
from tools.guides.programs import PASSED_OVER
from tools.guides.scenarios import Scenario, scenarios, table

PAGE = DOCS / "explanation" / "published-guides.md"
_HEAD = """\
# Published guides, side by side

This page compares Medley with published guides, setting by setting. Each row is a flag or an environment
variable of a guide, with the value that Medley gives on each host, and a reason where they differ.
`tools/guides/extract.py` reads the guides. Medley's values are those of its dry run (`medley plan`,
`serve --dry-run`). `python -m tools.guides` writes this page; a test compares it. **Not run on hardware**.

{counts}

- *Guide*: values in the order of the text. The reader fills in `⟨…⟩`, `$NAME` and `...`, so any value equals
  them. "given" is a flag without a value; "named" is an item to which the text gives no value.
- *Medley*: one value where all hosts have the same, else a value for each host. "–": Medley does not give it.
- Variables are those of the ranks on a host: `ray-head` or `ray-worker` sets them there, or `serve` carries
  them.
- Hosts have the guide's names and addresses of links, and the guide's head. Where a guide names no interface,
  it is that of a typical host.
- Where `--host` opens the API, Medley makes a key that requests must give
  ([Open the API](../how-to/open-the-api.md)).
- NVIDIA's playbooks are those of commit 0db7c141 (2026-07-24).
"""
_PROGRAMS = """
## Programs of the guides that set nothing

These install, fetch, look or ask. They have no rows.

| program | Medley |
|---|---|
"""
_LONGEST = 90


@dataclass(frozen=True)
class Compared:
    """A scenario, Medley's dry run of it, and their rows."""

    scenario: Scenario
    made: DryRun
    rows: tuple[Row, ...]


def compared(facts: list[Fact]) -> list[Compared]:
    """Compare every scenario."""
    known = compare.reasons()
    made = {each: dry_run(each) for each in scenarios()}
    return [Compared(each, run, tuple(compare.rows(each, run, facts, known))) for each, run in made.items()]


def page(found: list[Compared], facts: list[Fact]) -> str:
    """Return the text of the page."""
    return "".join(
        (
            _HEAD.format(counts=_counts(found)),
            *_not_reached(found),
            *(part for each in found for part in _section(each, facts)),
            _PROGRAMS,
            *(f"| {', '.join(names.split())} | {why} |\n" for names, why in PASSED_OVER.items()),
        )
    )


def _counts(found: list[Compared]) -> str:
    rows = [row for each in found for row in each.rows]
    differ = [row for row in rows if not row.same]
    same = len(rows) - len(differ)
    without = [f"{row.scenario}: {row.group} {row.item}" for row in differ if not row.reason]
    return (
        f"{len(found)} scenarios, {len(rows)} rows: {same} are the same, {len(differ)} differ, and "
        f"{sum(row.not_reached for row in differ)} of these not reached.\n"
        f"Rows that differ without a reason: {', '.join(without) or 'none'}."
    )


def _not_reached(found: list[Compared]) -> Iterator[str]:
    yield "\n## Not reached\n\n"
    for each in found:
        for row in (row for row in each.rows if row.not_reached):
            yield f"- {each.scenario.title}: `{row.item}`. {row.reason.removeprefix(NOT_REACHED)}\n"


def _section(found: Compared, facts: Iterable[Fact]) -> Iterator[str]:
    scenario, sources = found.scenario, table()["sources"]
    names = dict.fromkeys(each.source for each in facts if scenario.has(each))
    yield f"\n## {scenario.title}\n\n"
    yield f"The guide: {scenario.what}. Source: {'; '.join(sources[name] for name in names)}.\n\n"
    yield "".join(f"    {line}\n" for line in _typed(scenario, found.made))
    yield "\n| item | guide | Medley | | reason |\n|---|---|---|---|---|\n"
    yield "".join(f"{_line(row)}\n" for row in found.rows)
    items = {(row.group, compare.spelled(row.group, row.item)) for row in found.rows}
    groups = {group for group, _ in items}
    # A part of a guide that sets flags alone, or variables alone, is compared by these.
    beside = [each for each in found.made.beside(items) if _of(each) in groups]
    if beside:
        yield f"\nMedley also sets: {', '.join(f'`{each}`' for each in beside)}.\n"


def _of(setting: str) -> str:
    return ENGINE if setting.startswith("-") else ENVIRONMENT


def _typed(scenario: Scenario, made: DryRun) -> Iterator[str]:
    yield from made.typed
    if scenario.stands_for:
        yield f"# {scenario.stands_for} has no table here: planned with the shape of {scenario.model}"


def _line(row: Row) -> str:
    guide = ", ".join(_value(each, "given" if row.item.startswith("-") else "named") for each in row.guide)
    word = "same" if row.same else "differs"
    reason = row.reason.replace("|", "\\|")
    return f"| {_group(row)}`{row.item}` | {guide} | {_medley(row.medley)} | {word} | {reason} |"


def _group(row: Row) -> str:
    return "" if row.group in {"engine", "environment", "link", "python"} else f"{row.group} "


def _medley(values: Mapping[str, list[str]]) -> str:
    shown = {host: ", ".join(_value(each, "given") for each in found) for host, found in values.items()}
    if not shown:
        return "–"
    if len(set(shown.values())) == 1:
        return next(iter(shown.values()))
    return "; ".join(f"{host}: {each}" for host, each in shown.items())


def _value(value: str, none: str) -> str:
    short = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
    return f"`{short.replace('|', chr(92) + '|')}`" if short else none
