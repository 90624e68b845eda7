"""The picture of a plan: read back as XML, with every box where it belongs."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from medley.layout.candidates import Sizes
from medley.layout.choose import Choice, Goal, Prediction, choose
from medley.layout.drawn import drawn
from medley.layout.shapes import Device, Link
from medley.picture import Style, width
from tests.layouts import MODELS, ONE, ROCE, TEN, Load, orin, over, predict, pro6000, spark, thor, timed

SVG = "{http://www.w3.org/2000/svg}"
COLOURS = ("#2f6db3", "#e69f00", "#8e5ea2", "#dfe3ea")


@dataclass(frozen=True)
class Case:
    devices: tuple[Device, ...]
    model: str = "72b"
    link: Link | None = ROCE
    sizes: Sizes | None = None
    goal: Goal = "latency"
    streams: int = 1


NAMES = ("<b>&amp;\"'" + "x" * 200, "\x1b[31m\x00\u202eevil", "数" * 40, "a b " * 60)
HOSTILE = tuple(replace(spark(nth), host=name, name="<GPU>" + "W" * 90) for nth, name in enumerate(NAMES))
CASES = {
    "one host": Case((orin(),), "30b-fp8", None),
    "tensor parallel over hosts": Case((spark(1), spark(2))),
    "unlike stages": Case((spark(1), thor(1), orin(1)), link=ONE, sizes=Sizes(1, 3, 1)),
    "GPUs of two hosts": Case(
        tuple(pro6000(host, index) for host in (1, 2) for index in range(4)), link=TEN, sizes=Sizes(4, 2, 1)
    ),
    "stages on one host": Case((pro6000(1, 0), pro6000(1, 1)), link=None, sizes=Sizes(1, 2, 1)),
    "a long pipeline": Case(tuple(spark(nth) for nth in range(1, 11)), sizes=Sizes(1, 10, 1)),
    "two long pipelines": Case(tuple(spark(nth) for nth in range(1, 13)), sizes=Sizes(1, 6, 2), streams=8),
    "64 hosts": Case(
        tuple(spark(nth) for nth in range(1, 65)), "30b", TEN, Sizes(1, 1, 64), "throughput", streams=256
    ),
    "hostile names": Case(HOSTILE, sizes=Sizes(2, 2, 1)),
}


def chosen(case: Case) -> Choice[Prediction]:
    return choose(
        MODELS[case.model],
        case.devices,
        over(case.link),
        goal=case.goal,
        load=Load(case.streams),
        predict=predict,
        timed=timed(MODELS[case.model]),
        sizes=case.sizes,
    )


@dataclass(frozen=True)
class Placed:
    element: ET.Element
    x: float
    y: float

    @property
    def right(self) -> float:
        if self.element.tag == f"{SVG}rect":
            return self.x + float(self.element.get("width", 0))
        return self.x + width(self.element.text or "", style(self.element)) * self._after

    @property
    def left(self) -> float:
        return self.x - width(self.element.text or "", style(self.element)) * (1 - self._after)

    @property
    def bottom(self) -> float:
        return self.y + float(self.element.get("height", 0))

    @property
    def _after(self) -> float:
        """The share of a text that is drawn behind its x."""
        return 0.5 if self.element.get("text-anchor") == "middle" else 1


def style(text: ET.Element) -> Style:
    return Style(float(text.get("font-size", 0)), bold=text.get("font-weight") == "bold")


def placed(element: ET.Element, x: float = 0, y: float = 0) -> Iterator[Placed]:
    """Each rectangle and text with its place on the page."""
    moved = element.get("transform", "translate(0 0)").removeprefix("translate(").removesuffix(")").split()
    x, y = x + float(moved[0]), y + float(moved[1])
    if element.tag in (f"{SVG}rect", f"{SVG}text"):
        yield Placed(element, x + float(element.get("x", 0)), y + float(element.get("y", 0)))
    for inner in element:
        yield from placed(inner, x, y)


ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@ALL
def test_each_rank_has_its_bar(case: Case) -> None:
    choice = chosen(case)
    page = ET.fromstring(drawn("a model", choice))
    bars = [group for group in page.iter(f"{SVG}g") if group.get("shape-rendering") == "crispEdges"]
    told = [
        group.findtext(f"{SVG}title")
        for group in page.iter(f"{SVG}g")
        if group.find(f"{SVG}title") is not None
    ]
    assert len(bars) == len(choice.fit.ranks)
    assert len(told) == len(choice.fit.ranks)
    for rank, bar, title in zip(choice.fit.ranks, bars, told, strict=True):
        *parts, box = bar.findall(f"{SVG}rect")
        room = float(box.get("width", 0))
        widths = [float(part.get("width", 0)) for part in parts]
        sizes = (rank.weights_bytes, rank.kv_bytes, rank.overhead_bytes, rank.free_bytes)
        assert tuple(part.get("fill") for part in parts) == COLOURS
        assert sum(widths) == pytest.approx(room, abs=0.01)
        assert widths == pytest.approx([room * size / rank.device.memory_bytes for size in sizes], abs=0.02)
        starts = [float(part.get("x", 0)) for part in parts]
        assert starts == pytest.approx([sum(widths[:nth]) for nth in range(4)], abs=0.01)
        assert f"= {rank.total_bytes / (1 << 30):.1f} of" in (title or "")


@ALL
def test_all_stays_on_the_page(case: Case) -> None:
    page = ET.fromstring(drawn("m" * 300, chosen(case)))
    _, _, wide, high = map(float, page.get("viewBox", "").split())
    found = [each for each in placed(page) if each.element.get("width") != "100%"]
    assert all(each.left >= 0 and each.right <= wide for each in found if each.element.tag == f"{SVG}text")
    assert all(each.right <= wide and each.bottom <= high for each in found)


@ALL
def test_text_keeps_to_its_box_and_boxes_stand_apart(case: Case) -> None:
    found = list(placed(ET.fromstring(drawn("a model", chosen(case)))))
    boxes = [each for each in found if each.element.get("rx") == "6"]
    for text in (each for each in found if each.element.tag == f"{SVG}text"):
        for box in boxes:
            if box.x <= text.x <= box.right and box.y <= text.y <= box.bottom:
                assert text.right <= box.right
            else:
                assert not (box.y < text.y < box.bottom and text.left < box.right and box.x < text.right)
    for nth, box in enumerate(boxes):
        for other in boxes[:nth]:
            beside = box.x >= other.right or other.x >= box.right
            assert beside or box.y >= other.bottom or other.y >= box.bottom


def test_hosts_layers_and_wires_are_named() -> None:
    choice = chosen(CASES["unlike stages"])
    said = [text.text for text in ET.fromstring(drawn("a model", choice)).iter(f"{SVG}text")]
    assert {"a model", "spark-1", "thor-1", "orin-1", "1 Gbit/s", "TCP"} <= set(said)
    ends = [sum(stage.layers for stage in choice.layout.stages[: nth + 1]) for nth in range(3)]
    starts = [1, *(end + 1 for end in ends)]
    for nth, (start, end) in enumerate(zip(starts, ends, strict=False), start=1):
        assert {f"stage {nth}", f"layers {start}-{end}"} <= set(said)
    assert said.count("1 Gbit/s") == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tensor parallel over hosts", "tensor parallel, 100 Gbit/s RDMA"),
        ("two long pipelines", "replica 2, stage 6"),
        ("64 hosts", "replica 64"),
    ],
)
def test_a_label(name: str, words: str) -> None:
    page = ET.fromstring(drawn("a model", chosen(CASES[name])))
    assert words in [text.text for text in page.iter(f"{SVG}text")]


def test_stages_on_one_host_need_no_wire() -> None:
    page = ET.fromstring(drawn("a model", chosen(CASES["stages on one host"])))
    assert not [text.text for text in page.iter(f"{SVG}text") if "bit/s" in (text.text or "")]
    assert len(list(page.iter(f"{SVG}path"))) == 1


def test_prediction_reasons_warnings_and_rejected_are_told() -> None:
    choice = chosen(CASES["a long pipeline"])
    told = " ".join(text.text or "" for text in ET.fromstring(drawn("a model", choice)).iter(f"{SVG}text"))
    assert f"predicted: {choice.prediction.tokens_per_s:.1f} tokens/s" in told
    assert f"bound by: {choice.prediction.bound}" in told
    assert choice.warnings
    for each in choice.warnings:
        assert f"warning: {each}" in told
    assert f"why: {choice.why[0]}" in told
    free = chosen(Case((spark(1), spark(2), orin(1), orin(2))))
    told = " ".join(text.text or "" for text in ET.fromstring(drawn("a model", free)).iter(f"{SVG}text"))
    assert f"not: {free.rejected[0].what}: {free.rejected[0].because}" in told
    assert f"not: {len(free.rejected) - 6} more" in told


def test_hostile_names_are_text_alone() -> None:
    text = drawn("</svg><script>alert(1)</script>", chosen(CASES["hostile names"]))
    page = ET.fromstring(text)
    tags = {each.tag.removeprefix(SVG) for each in page.iter()}
    assert tags == {"svg", "title", "desc", "g", "rect", "text", "path"}
    assert "\x1b" not in text
    assert page.findtext(f".//{SVG}g/{SVG}text") == "</svg><script>alert(1)</script>"
    assert NAMES[0] in {title.text for title in page.iter(f"{SVG}title")}


def test_it_says_what_it_is_and_needs_nothing_else() -> None:
    text = drawn("a model", chosen(CASES["tensor parallel over hosts"]))
    page = ET.fromstring(text)
    assert page.get("role") == "img"
    assert page.findtext(f"{SVG}title") == "a model: tensor parallel 2 on spark-1, spark-2"
    assert "spark-2 0: weights " in (page.findtext(f"{SVG}desc") or "")
    assert text.count("http") == 1  # the name space
    assert "url(" not in text
    assert "href" not in text
