"""The page of a bench: its content, and its layout in a real browser."""

import itertools
import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from medley.measurement.bench.load import BenchLoad
from medley.measurement.bench.page import (
    PLOT_HEIGHT,
    PLOT_WIDTH,
    Line,
    Plot,
    Point,
    build_comparison_page,
    build_image,
    build_page,
    draw_plot,
    list_plots,
)
from tests.measurement import pages
from tests.measurement.bench.benches import about, bench
from tests.measurement.pages import Look, lay_out

MANY_STREAMS = bench(load=BenchLoad((1, 2, 4, 8, 16, 32), 3, 32, 16, requests=8), factors=(1, 0.97, 1.05))
SECOND = bench("20261122-154510-demo-cd34", factors=(1.2, 1.1, 1.35))
PHONE, DESKTOP = 360, 1280


def test_it_asks_for_nothing() -> None:
    text = build_page(bench()) + build_comparison_page(bench(), SECOND)
    assert re.findall(r"(?:src|href)=\"([^\"]*)\"", text) == ["data:,", "data:,"]
    assert "url(" not in text
    assert "@import" not in text
    assert text.count("default-src 'none'") == 2


def test_its_data_is_the_record_whatever_stands_in_that() -> None:
    odd = "</script><script>alert(1)</script>"
    record = bench(model=odd, about=about(plan={**about()["plan"], "argv": [odd]}))
    text = build_page(record)
    assert "<script>" not in text
    data = re.search(r'<script type="application/json" id="data">(.*)</script>', text, re.DOTALL)
    assert data
    assert json.loads(data[1]) == [json.loads(json.dumps(record.table))]


LIGHT = [Look(name, width) for name in ("one", "many", "two") for width in (PHONE, DESKTOP)]
DARK = [Look(name, PHONE, dark=True) for name in ("one", "asking", "open")]
Layouts = tuple[dict[Look, dict[str, Any]], list[str]]


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Layouts:
    """Return the layout of every page in one browser, and all requests to any server."""
    page = build_page(bench())
    asking = page.replace("<main>", '<main><img src="http://elsewhere.test/x.png">')
    open_ = re.sub(r"<meta http-equiv[^>]*>", "", asking)
    own_pages = {"one": page, "many": build_page(MANY_STREAMS), "two": build_comparison_page(bench(), SECOND)}
    folder = tmp_path_factory.mktemp("browser")
    return lay_out({**own_pages, "asking": asking, "open": open_}, LIGHT + DARK, folder)


@pages.needed
def test_a_browser_shows_all_of_it_on_a_phone_and_on_a_desk(layouts: Layouts) -> None:
    pages_shown = [layouts[0][look] for look in LIGHT]
    for look, page in zip(LIGHT, pages_shown, strict=True):
        title = f"{look.page} at {look.width}"
        assert page["scrolls"] <= 0, title
        assert page["outside"] == [], title
        assert len(page["plots"]) == 3, title
        assert sum(length > 90 for length in map(float, page["drawn"])) >= 5, title
        assert "output, tokens/s" in page["words"], title
        for text, text_left, top, right, bottom in page["texts"]:
            columns = [plot for plot in page["plots"] if plot[0] - 1 <= text_left and right <= plot[2] + 1]
            assert any(plot[1] - 1 <= top and bottom <= plot[3] + 1 for plot in columns), f"{title}: {text}"
            assert bottom - top > 8, f"{title}: {text} cannot be read"
    phone, desk = pages_shown[0], pages_shown[1]
    assert all(overflow <= 0 for overflow in phone["tables"] + desk["tables"])
    assert len({round(plot[0]) for plot in phone["plots"]}) == 1  # below each other
    assert len({round(plot[1]) for plot in desk["plots"]}) == 1  # beside each other
    assert [page["data"] for page in pages_shown] == [1, 1, 1, 1, 2, 2]
    assert "better" in pages_shown[4]["words"]
    ink, paper = brightness(phone)
    assert paper - ink > 180


@pages.needed
def test_in_the_dark_it_is_dark(layouts: Layouts) -> None:
    ink, paper = brightness(layouts[0][DARK[0]])
    assert ink - paper > 180


@pages.needed
def test_a_page_asks_for_nothing_else_and_without_its_policy_it_would(layouts: Layouts) -> None:
    requests = [request.partition("/") for request in layouts[1]]
    own_requests = {name for host, _, name in requests if host == "here.test"}
    assert own_requests == {look.page for look in LIGHT + DARK}
    # Of the page without its policy alone: that it is seen says that of the others nothing was asked.
    assert ["".join(request) for request in requests if request[0] != "here.test"] == ["elsewhere.test/x.png"]


def brightness(page: dict[str, Any]) -> tuple[float, float]:
    """Return the brightness of text and background, 0 to 255."""
    colours = (re.findall(r"\d+", page[name])[:3] for name in ("ink", "paper"))
    ink, paper = (sum(map(int, channels)) / 3 for channels in colours)
    return ink, paper


SVG = "{http://www.w3.org/2000/svg}"


def test_one_bench_has_its_measured_its_p99_and_the_prediction() -> None:
    output, first, later = list_plots([bench()])
    assert [line.name for line in output.lines] == ["measured", "predicted"]
    assert [line.name for line in first.lines] == ["measured", "p99", "predicted"]
    assert [point.streams for point in output.lines[0].points] == [1, 4]
    assert [point.streams for point in first.lines[-1].points] == [1]  # no prompt waits for others there
    assert [point.value for point in later.lines[-1].points] == [3.0, 3.0]


def test_two_have_one_prediction_where_it_is_the_same() -> None:
    first, second = bench("a"), bench("b", factors=(2, 2, 2))
    assert [line.name for line in list_plots([first, second])[0].lines] == ["first", "second", "predicted"]
    changed = second.replace(
        expected={streams: expected.replace(low=1.0) for streams, expected in second.expected.items()},
    )
    names = [line.name for line in list_plots([first, changed])[0].lines]
    assert names == ["first", "first, predicted", "second", "second, predicted"]


def test_what_is_not_predicted_has_no_line() -> None:
    drawing = draw_plot(list_plots([bench().replace(expected={})])[0])
    texts = [element.text for element in drawing.iter("text")]
    assert "measured" in texts
    assert "predicted" not in texts


def test_a_document_is_whole_xml_that_needs_nothing() -> None:
    root = ET.fromstring(build_image([bench(), bench("b")]))
    assert root.tag == f"{SVG}svg"
    assert [element for element in root.iter() if element.tag.endswith(("image", "script", "use", "a"))] == []
    assert len(list(root.iter(f"{SVG}circle"))) == 3 * 2 * 2 + 2 + 1 + 2
    titles = [element.text or "" for element in root.iter(f"{SVG}title")]
    assert "first, 4 concurrent: 387 (379 to 399) tokens/s" in titles


@pytest.mark.parametrize("streams", [(1,), (1, 2), (1, 4, 16, 64, 256, 1024), tuple(range(1, 40))])
@pytest.mark.parametrize("value", [0.0, 0.004, 7.0, 123_456.0])
def test_every_point_lies_within_the_plot(streams: tuple[int, ...], value: float) -> None:
    points = tuple(Point(count, value, value * 0.9, value * 1.1) for count in streams)
    drawing = draw_plot(Plot("x", "ms", (Line("measured", "one", points),)))
    places = [(float(circle.get("cx", "")), float(circle.get("cy", ""))) for circle in drawing.iter("circle")]
    assert len(places) == len(streams)
    assert all(0 < x < PLOT_WIDTH and 30 <= y <= 30 + PLOT_HEIGHT for x, y in places)
    positions = [x for x, _ in places]
    assert positions == sorted(positions)


def test_labels_that_would_lie_on_each_other_are_left_out() -> None:
    points = tuple(Point(count, 1, 1, 1) for count in range(1, 40))
    drawing = draw_plot(Plot("x", "ms", (Line("measured", "one", points),)))
    labels = [
        float(element.get("x", ""))
        for element in drawing.iter("text")
        if (element.text or "").isdigit() and element.get("text-anchor") == "middle"
    ]
    assert len(labels) > 3
    assert all(later - earlier >= 26 for earlier, later in itertools.pairwise(labels))
