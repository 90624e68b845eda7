"""The page of a bench: what stands in it, and how a real browser shows it."""

import json
import re
from pathlib import Path
from typing import Any

from medley.bench.load import Load
from medley.bench.page import comparison, page
from tests import frames
from tests.benches import about, bench

MANY = bench(load=Load((1, 2, 4, 8, 16, 32), 3, 32, 16, requests=8), factors=(1, 0.97, 1.05))
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


@frames.needed
def test_a_browser_shows_all_of_it_on_a_phone_and_on_a_desk(tmp_path: Path) -> None:
    pages = {"one": page(bench()), "many": page(MANY), "two": comparison(bench(), OTHER)}
    looks = [(name, width) for name in pages for width in (PHONE, DESKTOP)]
    found, asked = frames.laid_out(pages, looks, tmp_path)
    assert {each.partition("/")[2] for each in asked} == set(pages)
    assert {each.partition("/")[0] for each in asked} == {"here.test"}
    for (name, width), seen in zip(looks, found, strict=True):
        told = f"{name} at {width}"
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


@frames.needed
def test_in_the_dark_it_is_dark_and_what_a_page_asks_for_is_seen_here(tmp_path: Path) -> None:
    made = page(bench())
    asking = made.replace("<main>", '<main><img src="http://elsewhere.test/x.png">')
    open_ = re.sub(r"<meta http-equiv[^>]*>", "", asking)
    looks = [("made", PHONE), ("asking", PHONE), ("open", PHONE)]
    found, asked = frames.laid_out(
        {"made": made, "asking": asking, "open": open_}, looks, tmp_path, dark=True
    )
    ink, paper = brightness(found[0])
    assert ink - paper > 180
    # Without its policy it would ask, so that with it nothing is asked says something.
    assert [each for each in asked if "elsewhere" in each] == ["elsewhere.test/x.png"]


def brightness(seen: dict[str, Any]) -> tuple[float, float]:
    """Of ink and paper."""
    colours = (re.findall(r"\d+", seen[name])[:3] for name in ("ink", "paper"))
    ink, paper = (sum(map(int, each)) / 3 for each in colours)
    return ink, paper
