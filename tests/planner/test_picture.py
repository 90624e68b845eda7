"""The picture of a plan: read back as XML, with every box where it belongs."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from medley.planner import Device, Goal, HostLink, Load
from medley.planner.candidates import Request, Sizes
from medley.planner.choose import Choice, choose
from medley.planner.picture import Bar, drawn
from medley.planner.report import printable
from tests.planner.layouts import (
    MODELS,
    ONE,
    ROCE,
    TEN,
    orin,
    over,
    predict,
    pro6000,
    spark,
    thor,
    timed,
    workload,
)

SVG = "{http://www.w3.org/2000/svg}"
COLOURS = ("#2f6db3", "#e69f00", "#8e5ea2", "#dfe3ea")


@dataclass(frozen=True)
class Case:
    devices: tuple[Device, ...]
    model: str = "72b"
    link: HostLink | None = ROCE
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


def chosen(case: Case) -> Choice:
    model = MODELS[case.model]
    work = workload(model, Load(case.streams), case.goal, timed(model))
    return choose(Request(work, case.devices, over(case.link), case.sizes or Sizes()), predict)


def texts(page: ET.Element) -> list[str]:
    """Each run of one style, without the spaces that rich draws after it."""
    return [(text.text or "").replace("\xa0", " ").strip() for text in page.iter(f"{SVG}text")]


def told(page: ET.Element) -> str:
    return " ".join(" ".join(texts(page)).split())


ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@ALL
def test_each_rank_has_its_bar(case: Case) -> None:
    choice = chosen(case)
    console = Console(width=60, color_system="truecolor")
    for rank in choice.fit.ranks:
        (line,) = console.render_lines(Bar(rank), pad=False)
        widths = {
            each.style.bgcolor.name: each.cell_length for each in line if each.style and each.style.bgcolor
        }
        sizes = (rank.weights_bytes, rank.kv_bytes, rank.overhead_bytes, rank.free_bytes)
        assert sum(widths.values()) == 60
        for color, size in zip(COLOURS, sizes, strict=True):
            assert widths.get(color, 0) == pytest.approx(60 * size / rank.device.memory_bytes, abs=1)
    page = ET.fromstring(drawn("a model", choice))
    weights = [rect for rect in page.iter(f"{SVG}rect") if rect.get("fill") == COLOURS[0]]
    assert len(weights) == len(choice.fit.ranks) + 1, "and one of the legend"
    described = page.findtext(f"{SVG}desc") or ""
    assert all(printable(str(rank)) in described for rank in choice.fit.ranks)


@ALL
def test_all_stays_on_the_page(case: Case) -> None:
    page = ET.fromstring(drawn("m" * 300, chosen(case)))
    _, _, wide, high = map(float, page.get("viewBox", "").split())
    for each in page.iter(f"{SVG}text"):
        assert float(each.get("x", 0)) + float(each.get("textLength", 0)) < wide
        assert float(each.get("y", 0)) + 20 < high


def test_hosts_layers_and_wires_are_named() -> None:
    choice = chosen(CASES["unlike stages"])
    said = texts(ET.fromstring(drawn("a model", choice)))
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
    assert words in told(page)


def test_stages_on_one_host_need_no_network() -> None:
    said = told(ET.fromstring(drawn("a model", chosen(CASES["stages on one host"]))))
    assert "bit/s" not in said
    assert said.count("▶") == 1


def test_prediction_reasons_warnings_and_rejected_are_told() -> None:
    choice = chosen(CASES["a long pipeline"])
    said = told(ET.fromstring(drawn("a model", choice)))
    assert f"predicted: {choice.prediction.tokens_per_s:.1f} tokens/s" in said
    assert f"bound by: {choice.prediction.bound}" in said
    assert choice.warnings
    for each in choice.warnings:
        assert f"warning: {each}" in said
    assert f"why: {choice.why[0]}" in said
    free = chosen(Case((spark(1), spark(2), orin(1), orin(2))))
    said = told(ET.fromstring(drawn("a model", free)))
    assert f"not: {free.rejected[0].what}: {free.rejected[0].because}" in said
    assert f"not: {len(free.rejected) - 6} more" in said


def test_hostile_names_are_text_alone() -> None:
    text = drawn("</svg><script>alert(1)</script>", chosen(CASES["hostile names"]))
    page = ET.fromstring(text)
    tags = {each.tag.removeprefix(SVG) for each in page.iter()}
    assert tags == {"svg", "title", "desc", "style", "defs", "clipPath", "g", "rect", "text"}
    assert "\x1b" not in text
    assert texts(page)[0] == "</svg><script>alert(1)</script>"
    assert NAMES[0] in (page.findtext(f"{SVG}desc") or "")


def test_it_says_what_it_is_and_needs_nothing_else() -> None:
    text = drawn("a model", chosen(CASES["tensor parallel over hosts"]))
    page = ET.fromstring(text)
    assert page.get("role") == "img"
    assert page.findtext(f"{SVG}title") == "a model: tensor parallel 2 on spark-1, spark-2"
    assert "spark-2 0: weights " in (page.findtext(f"{SVG}desc") or "")
    assert text.count("http") == 1  # the name space
    assert text.count("url(") == text.count("url(#")
    assert "href" not in text


@given(st.text(alphabet=st.characters()))
def test_any_text_makes_xml(words: str) -> None:
    element = ET.Element("text")
    element.text = printable(words)
    assert ET.fromstring(ET.tostring(element, encoding="unicode")).text == (printable(words) or None)


def test_what_turns_writing_round_is_not_drawn() -> None:
    assert printable("a\u202eb\x1b[0m\x00\ud800\n c") == "a�b�[0m�� c"
