"""The page of a bench: what stands in it, and how a real browser shows it."""

import itertools
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest

from medley.measurement.bench import BenchLoad
from medley.measurement.bench.page import (
    HIGH,
    WIDE,
    Line,
    Plot,
    Point,
    comparison,
    document,
    page,
    plots,
    svg,
)
from tests.measurement import pages
from tests.measurement.bench.benches import about, bench
from tests.measurement.pages import Look, laid_out

MANY = bench(load=BenchLoad((1, 2, 4, 8, 16, 32), 3, 32, 16, requests=8), factors=(1, 0.97, 1.05))
OTHER = bench("20261122-154510-demo-cd34", factors=(1.2, 1.1, 1.35))
PHONE, DESKTOP = 360, 1280


def test_it_asks_for_nothing() -> None:
    text = page(bench()) + comparison(bench(), OTHER)
    assert re.findall(r"(?:src|href)=\"([^\"]*)\"", text) == ["data:,", "data:,"]
    assert "url(" not in text
    assert "@import" not in text
    assert text.count("default-src 'none'") == 2


def test_its_data_is_the_record_whatever_stands_in_that() -> None:
    odd = "</script><script>alert(1)</script>"
    made = bench(model=odd, about=about(plan={**about()["plan"], "argv": [odd]}))
    text = page(made)
    assert "<script>" not in text
    found = re.search(r'<script type="application/json" id="data">(.*)</script>', text, re.DOTALL)
    assert found
    assert json.loads(found[1]) == [json.loads(json.dumps(made.table))]


LIGHT = [Look(name, width) for name in ("one", "many", "two") for width in (PHONE, DESKTOP)]
DARK = [Look(name, PHONE, dark=True) for name in ("one", "asking", "open")]
Shown = tuple[dict[Look, dict[str, Any]], list[str]]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Every page in one browser, and what was asked of any server."""
    made = page(bench())
    asking = made.replace("<main>", '<main><img src="http://elsewhere.test/x.png">')
    open_ = re.sub(r"<meta http-equiv[^>]*>", "", asking)
    of_ours = {"one": made, "many": page(MANY), "two": comparison(bench(), OTHER)}
    folder = tmp_path_factory.mktemp("browser")
    return laid_out({**of_ours, "asking": asking, "open": open_}, LIGHT + DARK, folder)


@pages.needed
def test_a_browser_shows_all_of_it_on_a_phone_and_on_a_desk(shown: Shown) -> None:
    found = [shown[0][look] for look in LIGHT]
    for look, seen in zip(LIGHT, found, strict=True):
        told = f"{look.page} at {look.width}"
        assert seen["scrolls"] <= 0, told
        assert seen["outside"] == [], told
        assert len(seen["plots"]) == 3, told
        assert sum(length > 90 for length in map(float, seen["drawn"])) >= 5, told
        assert "output, tokens/s" in seen["words"], told
        for text, left, top, right, bottom in seen["texts"]:
            within = [each for each in seen["plots"] if each[0] - 1 <= left and right <= each[2] + 1]
            assert any(each[1] - 1 <= top and bottom <= each[3] + 1 for each in within), f"{told}: {text}"
            assert bottom - top > 8, f"{told}: {text} cannot be read"
    phone, desk = found[0], found[1]
    assert all(more <= 0 for more in phone["tables"] + desk["tables"])
    assert len({round(plot[0]) for plot in phone["plots"]}) == 1  # below each other
    assert len({round(plot[1]) for plot in desk["plots"]}) == 1  # beside each other
    assert [each["data"] for each in found] == [1, 1, 1, 1, 2, 2]
    assert "better" in found[4]["words"]
    ink, paper = brightness(phone)
    assert paper - ink > 180


@pages.needed
def test_in_the_dark_it_is_dark(shown: Shown) -> None:
    ink, paper = brightness(shown[0][DARK[0]])
    assert ink - paper > 180


@pages.needed
def test_a_page_asks_for_nothing_else_and_without_its_policy_it_would(shown: Shown) -> None:
    asked = [each.partition("/") for each in shown[1]]
    here = {name for host, _, name in asked if host == "here.test"}
    assert here == {look.page for look in LIGHT + DARK}
    # Of the page without its policy alone: that it is seen says that of the others nothing was asked.
    assert ["".join(each) for each in asked if each[0] != "here.test"] == ["elsewhere.test/x.png"]


def brightness(seen: dict[str, Any]) -> tuple[float, float]:
    """Of ink and paper."""
    colours = (re.findall(r"\d+", seen[name])[:3] for name in ("ink", "paper"))
    ink, paper = (sum(map(int, each)) / 3 for each in colours)
    return ink, paper


SVG = "{http://www.w3.org/2000/svg}"


def test_one_bench_has_its_measured_its_p99_and_the_prediction() -> None:
    output, first, each = plots([bench()])
    assert [line.name for line in output.lines] == ["measured", "predicted"]
    assert [line.name for line in first.lines] == ["measured", "p99", "predicted"]
    assert [point.streams for point in output.lines[0].points] == [1, 4]
    assert [point.streams for point in first.lines[-1].points] == [1]  # no prompt waits for others there
    assert [point.value for point in each.lines[-1].points] == [3.0, 3.0]


def test_two_have_one_prediction_where_it_is_the_same() -> None:
    one, two = bench("a"), bench("b", factors=(2, 2, 2))
    assert [line.name for line in plots([one, two])[0].lines] == ["first", "second", "predicted"]
    other = replace(two, expected={many: replace(each, low=1.0) for many, each in two.expected.items()})
    names = [line.name for line in plots([one, other])[0].lines]
    assert names == ["first", "first, predicted", "second", "second, predicted"]


def test_what_is_not_predicted_has_no_line() -> None:
    drawn = svg(plots([replace(bench(), expected={})])[0])
    said = [each.text for each in drawn.iter("text")]
    assert "measured" in said
    assert "predicted" not in said


def test_a_document_is_whole_xml_that_needs_nothing() -> None:
    root = ET.fromstring(document([bench(), bench("b")]))
    assert root.tag == f"{SVG}svg"
    assert [each for each in root.iter() if each.tag.endswith(("image", "script", "use", "a"))] == []
    assert len(list(root.iter(f"{SVG}circle"))) == 3 * 2 * 2 + 2 + 1 + 2
    titles = [each.text or "" for each in root.iter(f"{SVG}title")]
    assert "first, 4 concurrent: 387 (379 to 399) tokens/s" in titles


@pytest.mark.parametrize("streams", [(1,), (1, 2), (1, 4, 16, 64, 256, 1024), tuple(range(1, 40))])
@pytest.mark.parametrize("value", [0.0, 0.004, 7.0, 123_456.0])
def test_every_point_lies_within_the_plot(streams: tuple[int, ...], value: float) -> None:
    points = tuple(Point(many, value, value * 0.9, value * 1.1) for many in streams)
    drawn = svg(Plot("x", "ms", (Line("measured", "one", points),)))
    places = [(float(each.get("cx", "")), float(each.get("cy", ""))) for each in drawn.iter("circle")]
    assert len(places) == len(streams)
    assert all(0 < x < WIDE and 30 <= y <= 30 + HIGH for x, y in places)
    across = [x for x, _ in places]
    assert across == sorted(across)


def test_labels_that_would_lie_on_each_other_are_left_out() -> None:
    points = tuple(Point(many, 1, 1, 1) for many in range(1, 40))
    drawn = svg(Plot("x", "ms", (Line("measured", "one", points),)))
    labels = [
        float(e.get("x", ""))
        for e in drawn.iter("text")
        if (e.text or "").isdigit() and e.get("text-anchor") == "middle"
    ]
    assert len(labels) > 3
    assert all(later - earlier >= 26 for earlier, later in itertools.pairwise(labels))
