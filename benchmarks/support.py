"""The support matrix: docs/reference/support-matrix.md from support.csv, one badge a row.

    .venv/bin/python -m benchmarks.support        # write the page again

A row is a kind of host, how many, an engine, a layout and a model. Its badge is `hardware`, `simulated` or
`untested`; `evidence` names what shows it. Rows from hardware come by `python -m benchmarks.field_report`.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Literal, get_args

from medley import config

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "support.csv"
PAGE = ROOT / "docs" / "reference" / "support-matrix.md"
Badge = Literal["hardware", "simulated", "untested"]
BADGES: tuple[Badge, ...] = get_args(Badge)
ANY = "any"
_SAYS = {
    "hardware": "tested on hardware",
    "simulated": "tested in simulation",
    "untested": "untested",
}
_HEAD = """\
# Support matrix

Which host, engine, layout and model were really run, and where that is shown. This page is made from
`benchmarks/support.csv` by `python -m benchmarks.support`; change that file, not this page.

- **tested on hardware**: an owner's [field report](../how-to/field-report.md) measured it.
- **tested in simulation**: the real engine ran it on CPUs, on hosts made of network
  namespaces ([simulated cluster](../contributing/simulated-cluster.md)).
- **untested**: it is planned from published figures and was never run. `any` is any model without a row.

No row is about speed: [how prediction works](../explanation/prediction.md) says how wrong predictions are. A
[field report](../how-to/field-report.md) changes a badge.
"""


@dataclass(frozen=True)
class Row:
    host: str
    """A kind of hosts/; several joined by +."""
    hosts: str
    engine: str
    layout: str
    model: str
    badge: Badge
    evidence: str

    @property
    def key(self) -> tuple[str, ...]:
        """What it is about."""
        return (self.host, self.hosts, self.engine, self.layout, self.model)


COLUMNS = tuple(each.name for each in fields(Row))


def read(path: Path = DATA) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return [Row(**row) for row in csv.DictReader(file)]  # type: ignore[arg-type]  # `wrong` looks at badges


def write(rows: Iterable[Row], path: Path = DATA) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(map(asdict, rows))
    path.write_text(text.getvalue(), encoding="utf-8")


def with_row(rows: Iterable[Row], new: Row) -> list[Row]:
    """The rows with a new one: a better badge replaces a worse one, an equal one adds its evidence."""
    known = list(rows)
    same = next((each for each in known if each.key == new.key), None)
    if same is None:
        return sorted((*known, new), key=_order)
    if same.badge == new.badge:
        new = replace(new, evidence="; ".join(filter(None, dict.fromkeys((same.evidence, new.evidence)))))
    better = BADGES.index(new.badge) <= BADGES.index(same.badge)
    return [new if better and each is same else each for each in known]


def _order(row: Row) -> tuple[object, ...]:
    """Kinds as hosts/ has them, then the other columns."""
    kinds = list(config.load_hosts())
    first = row.host.partition("+")[0]
    return (
        kinds.index(first) if first in kinds else len(kinds),
        row.host,
        row.hosts,
        row.engine,
        row.layout,
        row.model,
    )


def wrong(rows: Iterable[Row]) -> list[str]:
    """What is wrong with the rows, a line each."""
    kinds, models, seen, found = set(config.load_hosts()), {ANY, *config.load_models()}, set(), []
    for row in rows:
        where = ", ".join(row.key)
        found += [f"{where}: there is no kind {each}" for each in row.host.split("+") if each not in kinds]
        found += [f"{where}: there is no badge {row.badge}"] if row.badge not in BADGES else []
        found += [f"{where}: it stands twice"] if row.key in seen else []
        found += (
            [f"{where}: no table has this model"] if row.model not in models and "/" not in row.model else []
        )
        found += (
            [f"{where}: {row.badge} needs evidence"] if row.badge != "untested" and not row.evidence else []
        )
        seen.add(row.key)
    return found


def page(rows: Iterable[Row]) -> str:
    lines = [
        _HEAD,
        "| host | hosts | engine | layout | model | badge | shown by |",
        "|---|--:|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (
            f"`{row.host}`",
            row.hosts,
            row.engine,
            row.layout,
            row.model,
            _SAYS[row.badge],
            row.evidence,
        )
        lines.append(f"| {' | '.join(each.replace('|', '/') for each in cells)} |")
    return "\n".join((*lines, ""))


def main() -> None:
    rows = read()
    if found := wrong(rows):
        raise SystemExit("\n".join(found))
    PAGE.write_text(page(rows), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(rows)} rows")


if __name__ == "__main__":
    main()
