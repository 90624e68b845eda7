"""The plots of benches: which lines there are, and where their points lie."""

import itertools
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from medley.bench.plots import document, plots
from medley.bench.plotted import WIDE, Line, Plot, Point, plotted
from tests.benches import bench

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
    drawn = plotted(plots([replace(bench(), expected={})])[0])
    said = [each.text for each in drawn.element.iter("text")]
    assert "measured" in said
    assert "predicted" not in said


def test_a_document_is_whole_xml_that_needs_nothing() -> None:
    root = ET.fromstring(document([bench(), bench("b")]))
    assert root.tag == f"{SVG}svg"
    assert [each for each in root.iter() if each.tag.endswith(("image", "script", "use", "a"))] == []
    assert len(list(root.iter(f"{SVG}circle"))) == 3 * 2 * 2 + 2 + 1 + 2
    titles = [each.text or "" for each in root.iter(f"{SVG}title")]
    assert "first, 4 at once: 387 (379 to 399) tokens/s" in titles


@pytest.mark.parametrize("streams", [(1,), (1, 2), (1, 4, 16, 64, 256, 1024), tuple(range(1, 40))])
@pytest.mark.parametrize("value", [0.0, 0.004, 7.0, 123_456.0])
def test_every_point_lies_within_the_plot(streams: tuple[int, ...], value: float) -> None:
    points = tuple(Point(many, value, value * 0.9, value * 1.1) for many in streams)
    drawn = plotted(Plot("x", "ms", (Line("measured", "one", points),)))
    places = [(float(each.get("cx", "")), float(each.get("cy", ""))) for each in drawn.element.iter("circle")]
    assert len(places) == len(streams)
    assert all(0 < x < WIDE and 0 <= y <= 170 for x, y in places)
    across = [x for x, _ in places]
    assert across == sorted(across)


def test_labels_that_would_lie_on_each_other_are_left_out() -> None:
    points = tuple(Point(many, 1, 1, 1) for many in range(1, 40))
    drawn = plotted(Plot("x", "ms", (Line("measured", "one", points),)))
    labels = [
        float(e.get("x", ""))
        for e in drawn.element.iter("text")
        if (e.text or "").isdigit() and e.get("text-anchor") == "middle"
    ]
    assert len(labels) > 3
    assert all(later - earlier >= 26 for earlier, later in itertools.pairwise(labels))
