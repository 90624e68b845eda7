"""The picture of a plan: read back as XML, with every box where it belongs."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medley.planner import Device, Goal, HostLink, Load
from medley.planner.candidates import ForcedSizes, Request
from medley.planner.choose import Choice, choose_layout
from medley.planner.picture import draw_layout
from medley.planner.report import MEMORY_PARTS, make_printable
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
COMMAND = "medley plan a-model --hosts spark:2"


@dataclass(frozen=True)
class Case:
    devices: tuple[Device, ...]
    model: str = "72b"
    link: HostLink | None = ROCE
    sizes: ForcedSizes | None = None
    goal: Goal = "latency"
    streams: int = 1


NAMES = ("<b>&amp;\"'" + "x" * 200, "\x1b[31m\x00\u202eevil", "数" * 40, "a b " * 60)
HOSTILE = tuple(spark(nth).replace(host=name, name="<GPU>" + "W" * 90) for nth, name in enumerate(NAMES))
CASES = {
    "one host": Case((orin(),), "30b-fp8", None),
    "tensor parallel over hosts": Case((spark(1), spark(2))),
    "unlike stages": Case((spark(1), thor(1), orin(1)), link=ONE, sizes=ForcedSizes(1, 3, 1)),
    "GPUs of two hosts": Case(
        tuple(pro6000(host, index) for host in (1, 2) for index in range(4)),
        link=TEN,
        sizes=ForcedSizes(4, 2, 1),
    ),
    "stages on one host": Case((pro6000(1, 0), pro6000(1, 1)), link=None, sizes=ForcedSizes(1, 2, 1)),
    "a long pipeline": Case(tuple(spark(nth) for nth in range(1, 11)), sizes=ForcedSizes(1, 10, 1)),
    "two long pipelines": Case(
        tuple(spark(nth) for nth in range(1, 13)), sizes=ForcedSizes(1, 6, 2), streams=8
    ),
    "64 hosts": Case(
        tuple(spark(nth) for nth in range(1, 65)),
        "30b",
        TEN,
        ForcedSizes(1, 1, 64),
        "throughput",
        streams=256,
    ),
    "hostile names": Case(HOSTILE, sizes=ForcedSizes(2, 2, 1)),
}


def chosen(case: Case) -> Choice:
    model = MODELS[case.model]
    work = workload(model, Load(case.streams), case.goal, timed(model))
    return choose_layout(Request(work, case.devices, over(case.link), case.sizes or ForcedSizes()), predict)


def page(choice: Choice, model: str = "a model") -> ET.Element:
    return ET.fromstring(draw_layout(model, choice, COMMAND))


def texts(page: ET.Element) -> list[str]:
    return [text.text or "" for text in page.iter(f"{SVG}text")]


def cards(page: ET.Element) -> list[ET.Element]:
    return page.findall(f"{SVG}svg")


ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@ALL
def test_each_rank_has_its_bar(case: Case) -> None:
    choice = chosen(case)
    found = page(choice)
    bars = [group for group in found.iter(f"{SVG}g") if group.get("clip-path") == "url(#bar)"]
    for rank, bar in zip(choice.fit.ranks, bars, strict=True):
        free, *parts = bar.iter(f"{SVG}rect")
        whole = float(free.get("width", 0))
        sizes = (rank.weights_bytes, rank.kv_bytes, rank.overhead_bytes)
        end = 0.0
        for part, size, (_, color) in zip(parts, sizes, MEMORY_PARTS[:-1], strict=True):
            assert part.get("fill") == color
            assert float(part.get("x", -1)) == pytest.approx(end, abs=0.2)
            assert float(part.get("width", 0)) == pytest.approx(
                whole * size / rank.device.memory_bytes, abs=0.1
            )
            end += float(part.get("width", 0))
        assert end <= whole + 0.1
    described = found.findtext(f"{SVG}desc") or ""
    assert all(make_printable(str(rank)) in described for rank in choice.fit.ranks)


@ALL
def test_all_stays_on_the_page(case: Case) -> None:
    found = page(chosen(case), "m" * 300)
    _, _, wide, high = map(float, found.get("viewBox", "").split())
    places = []
    for card in cards(found):
        x, y, across, down = (float(card.get(name, -1)) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert x + across <= wide
        assert y + down < high
        for each in card.iter(f"{SVG}text"):
            assert 0 < float(each.get("x", -1)) < across
            assert 0 < float(each.get("y", -1)) < down - 4
        places.append((x, y, x + across, y + down))
    for nth, (left, top, _, _) in enumerate(places):
        for x, y, right, bottom in places[:nth]:
            assert right <= left or bottom <= top or (x, y) > (left, top)
    assert max(map(len, texts(found)), default=0) < 120


def test_hosts_layers_and_links_are_named() -> None:
    choice = chosen(CASES["unlike stages"])
    found = page(choice)
    said = texts(found)
    assert said[0] == "a model on 3 hosts"
    assert said[1].endswith("GiB of weights · 1 Gbit/s TCP")
    assert {"spark-1", "thor-1", "orin-1", "weights", "KV cache", "engine", "free", COMMAND} <= set(said)
    ends = [sum(stage.layers for stage in choice.layout.stages[: nth + 1]) for nth in range(3)]
    starts = [1, *(end + 1 for end in ends)]
    assert {f"layers {start}–{end}" for start, end in zip(starts, ends, strict=False)} <= set(said)


@pytest.mark.parametrize(
    ("name", "arrows", "both_ways"),
    [
        ("one host", 0, 0),
        ("tensor parallel over hosts", 1, 1),
        ("unlike stages", 2, 0),
        ("GPUs of two hosts", 1, 0),
        ("stages on one host", 1, 0),
        ("a long pipeline", 9, 0),
        ("two long pipelines", 10, 0),
        ("64 hosts", 0, 0),
        ("hostile names", 3, 2),
    ],
)
def test_arrows_lead_from_stage_to_stage_of_a_replica(name: str, arrows: int, both_ways: int) -> None:
    paths = [path.get("d", "") for path in page(chosen(CASES[name])).iter(f"{SVG}path")]
    assert len(paths) == arrows
    assert sum(path.count("M") > 2 for path in paths) == both_ways


def test_replicas_are_numbered() -> None:
    assert any(text.startswith("replica 64, layers 1–") for text in texts(page(chosen(CASES["64 hosts"]))))


def test_speed_is_large_and_reasons_are_in_the_description() -> None:
    choice = chosen(CASES["a long pipeline"])
    found = page(choice)
    speed = f"{choice.prediction.tokens_per_s:.1f} tok/s"
    sizes = {text.text: int(text.get("font-size", 0)) for text in found.iter(f"{SVG}text")}
    assert sizes[speed] == max(sizes.values())
    described = found.findtext(f"{SVG}desc") or ""
    assert choice.warnings
    for each in (*choice.warnings, *choice.why):
        assert make_printable(each) in described
        assert each not in sizes
    free = chosen(Case((spark(1), spark(2), orin(1), orin(2))))
    assert free.why[0] in (page(free).findtext(f"{SVG}desc") or "")


def test_hostile_names_are_text_only() -> None:
    text = draw_layout(
        "</svg><script>alert(1)</script>", chosen(CASES["hostile names"]), "medley plan '<x>' & \x1b[0m"
    )
    found = ET.fromstring(text)
    tags = {each.tag.removeprefix(SVG) for each in found.iter()}
    assert tags == {"svg", "title", "desc", "style", "clipPath", "g", "rect", "text", "path"}
    assert "\x1b" not in text
    assert texts(found)[0].startswith("</svg><script>")
    assert NAMES[0] in (found.findtext(f"{SVG}desc") or "")


def test_it_is_named_follows_the_color_scheme_and_needs_nothing_else() -> None:
    text = draw_layout("a model", chosen(CASES["tensor parallel over hosts"]), COMMAND)
    found = ET.fromstring(text)
    assert found.get("role") == "img"
    assert found.findtext(f"{SVG}title") == "a model: tensor parallel 2 on spark-1, spark-2"
    assert "spark-2 0: weights " in (found.findtext(f"{SVG}desc") or "")
    assert "@media (prefers-color-scheme: dark)" in (found.findtext(f"{SVG}style") or "")
    assert text.count("http") == 1  # the name space
    assert text.count("url(") == text.count("url(#bar)")
    assert "href" not in text


@given(st.text(alphabet=st.characters()))
def test_any_text_makes_xml(words: str) -> None:
    element = ET.Element("text")
    element.text = make_printable(words)
    assert ET.fromstring(ET.tostring(element, encoding="unicode")).text == (make_printable(words) or None)


def test_what_turns_writing_round_is_not_drawn() -> None:
    assert make_printable("a\u202eb\x1b[0m\x00\ud800\n c") == "a�b�[0m�� c"
