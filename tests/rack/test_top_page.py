"""The page of `medley top --web` in a real browser: what it shows, at both sizes, whatever names are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from medley.measurement.monitor import web
from tests.measurement.browser import Browser, browser
from tests.measurement.monitor.hosts import EVIL, Replayed, cluster

pytestmark = pytest.mark.rack

WIDTHS = {"desktop": (1280, 900), "phone": (360, 780)}
LOOKED = "Number(document.body.dataset.looks) >= 2"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.mark.parametrize(("screen", "dark"), [("desktop", False), ("phone", True)])
def test_it_polls_and_shows_what_it_is_told(
    chromium: Browser, tmp_path: Path, screen: str, *, dark: bool
) -> None:
    watched = Replayed(cluster())
    with web.serve_page(web.parse_address(None), watched, 1) as place:
        chromium.size(*WIDTHS[screen], dark=dark)
        chromium.goes(place.url)
        chromium.waits(LOOKED)
        text = str(chromium.says("document.body.innerText"))
        for word in (
            "spark-1",
            "silent 75 s",
            "the same: one pool",
            "gpt-oss-120b",
            "power cap",
            "7 symbol_error",
        ):
            assert word in text
        assert EVIL in text, "a name is shown as it is"
        assert chromium.says("document.title") == "medley top"
        assert chromium.says("document.querySelectorAll('main script').length") == 0
        assert chromium.says("document.documentElement.scrollWidth <= window.innerWidth")
        assert chromium.says("window.innerWidth") == WIDTHS[screen][0]
        fetched = "performance.getEntriesByType('resource')"
        outside = f"{fetched}.filter(each => !each.name.startsWith(location.origin)).length"
        assert chromium.says(outside) == 0
        ground = str(chromium.says("getComputedStyle(document.body).backgroundColor"))
        assert (ground == "rgb(18, 21, 27)") == dark
        assert chromium.picture(tmp_path / "page.png").stat().st_size > 10_000

        watched.statuses = {"spark-1": cluster()["spark-1"]}
        chromium.waits("!document.body.innerText.includes('workstation')")
    chromium.waits("document.getElementById('when').className === 'old'")
    assert "figures are old" in str(chromium.says("document.getElementById('when').innerText"))
    assert "spark-1" in str(chromium.says("document.body.innerText")), "the last ones stay"
