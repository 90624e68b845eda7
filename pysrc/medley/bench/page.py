"""One page of a bench, or of two: plots, figures and what they hang on; it needs no network and no script."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from medley.bench.compared import Compared, compared
from medley.bench.differing import differing, same_load
from medley.bench.figures import MEASURES
from medley.bench.plots import plots, svg
from medley.bench.plotted import CSS
from medley.bench.printed import about, bounds, heading, number, shown
from medley.bench.record import Mode, Record
from medley.picture import FONT, printable

# A browser asks for an icon of its own accord, and the policy has it ask for nothing at all.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_CSS = f"""{CSS}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 1240px; padding: 20px 16px 40px; background: var(--paper);
  color: var(--ink); font: 15px/1.45 {FONT}; overflow-wrap: anywhere; }}
h1 {{ font-size: 21px; line-height: 1.25; margin: 0 0 4px; }}
h2 {{ font-size: 17px; margin: 30px 0 8px; }}
p {{ margin: 2px 0; }} .muted {{ color: var(--muted); }}
.plots {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 330px), 1fr));
  gap: 18px; margin-top: 18px; }}
.plots > div {{ border: 1px solid var(--rule); border-radius: 8px; padding: 12px; background: var(--box); }}
.plots svg {{ display: block; width: 100%; max-width: 440px; height: auto; margin: 0 auto; }}
.wide {{ overflow-x: auto; margin-bottom: 18px; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 5px 0 5px 18px; text-align: right; border-bottom: 1px solid var(--rule); }}
td {{ min-width: 4.6em; overflow-wrap: normal; }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; min-width: 6.5em; }}
th {{ color: var(--muted); font-weight: normal; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 4px 14px; margin: 0 0 10px; }}
dt {{ color: var(--muted); }} dd {{ margin: 0; }}
pre {{ white-space: pre-wrap; background: var(--box); border-radius: 6px; padding: 10px; font-size: 12.5px; }}
summary {{ cursor: pointer; }}
@media (max-width: 500px) {{ th, td {{ padding-left: 10px; font-size: 13.5px; }} }}
"""


def page(record: Record) -> str:
    """Of one."""
    first, *others = heading(record)
    main = _element("main")
    main.append(_element("h1", first))
    main.extend(_element("p", line) for line in others)
    main.append(_plots([record]))
    main.append(_element("h2", "Figures"))
    main.append(_figures(record))
    main.extend(_element("p", line, "muted") for line in bounds(record))
    main.extend(_hangs_on(record))
    return _document(first, main, [record])


def comparison(one: Record, two: Record) -> str:
    """Of two."""
    main = _element("main")
    main.append(_element("h1", f"{two.id}, compared with {one.id}"))
    for which, record in (("first", one), ("second", two)):
        main.append(_element("p", f"{which}: {'; '.join(heading(record))}"))
    main.append(_element("h2", "What differs besides"))
    main.extend(_element("p", line) for line in differing(one, two) or ("nothing that is known",))
    if not same_load(one, two):
        main.append(_element("p", "Their loads differ, so their figures measure different things."))
    main.append(_plots([one, two]))
    main.append(_element("h2", "Ratios, second by first"))
    main.extend(_ratios(compared(one, two)))
    for record in (one, two):
        main.extend(_hangs_on(record))
    return _document(f"{one.id} and {two.id}", main, [one, two])


def _plots(records: Sequence[Record]) -> ET.Element:
    outer = _element("div", look="plots")
    for plot in plots(records):
        box = _element("div")
        box.append(svg(plot))
        outer.append(box)
    return outer


def _figures(record: Record) -> ET.Element:
    """A column for each concurrency, as in a terminal."""
    rows = record.rows
    found = [record.spreads(*row) for row in rows]
    body = [
        (f"{each.title}, {each.unit}", *(shown(spreads.get(each.name)) for spreads in found))
        for each in MEASURES
        if any(each.name in spreads for spreads in found)
    ]
    told = [record.of_expected(*row) for row in rows]
    if any(told):
        rates = (number(each[0].output_tokens_per_s) if each else "" for each in told)
        body.append(("predicted, tokens/s", *rates))
        body.append(("measured/predicted", *(f"{each[1]:.2f}" if each else "" for each in told)))
    return _table(["at once", *map(_row, rows)], body)


def _ratios(found: Sequence[Compared]) -> Iterator[ET.Element]:
    for row in dict.fromkeys((each.mode, each.concurrency) for each in found):
        body = (
            (
                f"{each.measure.title}, {each.measure.unit}",
                number(each.one.median),
                number(each.two.median),
                f"{each.ratio:.2f}",
                f"{each.low:.2f} to {each.high:.2f}",
                each.verdict,
            )
            for each in found
            if (each.mode, each.concurrency) == row
        )
        yield _table([f"{_row(row)} at once", "first", "second", "ratio", "", ""], body)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> ET.Element:
    table, head, body = _element("table"), _element("thead"), _element("tbody")
    head.append(_cells("th", titles))
    body.extend(_cells("td", row) for row in rows)
    table.extend([head, body])
    outer = _element("div", look="wide")
    outer.append(table)
    return outer


def _cells(tag: str, words: Iterable[str]) -> ET.Element:
    row = _element("tr")
    row.extend(_element(tag, each) for each in words)
    return row


def _hangs_on(record: Record) -> list[ET.Element]:
    """What it was, in short; what its hosts said of themselves unfolds."""
    short = _element("dl")
    for name, said in about(record):
        short.extend([_element("dt", name), _element("dd", printable(said))])
    unfolding = []
    for host in record.about["hosts"]:
        outer = _element("details")
        outer.append(_element("summary", f"facts of {host['name']}"))
        outer.append(_element("pre", host["facts"]))
        unfolding.append(outer)
    return [_element("h2", f"What {record.id} hangs on"), short, *unfolding]


def _row(row: tuple[Mode, int]) -> str:
    mode, many = row
    return str(many) if mode == "served" else f"{many}, {mode}"


def _document(title: str, main: ET.Element, records: Sequence[Record]) -> str:
    html, head, body = ET.Element("html", lang="en"), _element("head"), _element("body")
    for attributes in (
        {"charset": "utf-8"},
        {"name": "viewport", "content": "width=device-width, initial-scale=1"},
        {"http-equiv": "Content-Security-Policy", "content": _POLICY},
    ):
        head.append(ET.Element("meta", attributes))
    head.append(ET.Element("link", {"rel": "icon", "href": "data:,"}))
    head.extend([_element("title", f"medley bench: {title}"), _element("style", _CSS)])
    data = ET.Element("script", {"type": "application/json", "id": "data"})
    data.text = _data([record.table for record in records])
    body.extend([main, data])
    html.extend([head, body])
    return f"<!doctype html>\n{ET.tostring(html, encoding='unicode', method='html')}\n"


def _data(tables: list[dict[str, Any]]) -> str:
    """JSON in which nothing ends the element around it."""
    return json.dumps(tables).replace("<", "\\u003c")


def _element(tag: str, text: str | None = None, look: str | None = None) -> ET.Element:
    found = ET.Element(tag, {"class": look} if look else {})
    found.text = text
    return found
