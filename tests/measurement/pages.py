"""Layouts of pages in a real browser at several widths, and the browser's requests for them."""

import json
import shutil
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.measurement.browser import browser

needed = pytest.mark.skipif(
    not shutil.which("chromium") or not Path("/sys/class").is_dir(),
    reason="no chromium here, which .ci/run installs; or it is Nix's sandbox, where none starts",
)
_HEIGHT = 900
_LAYOUT_SCRIPT = """
const box = each => { const b = each.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom] }
const doc = document, width = doc.documentElement.clientWidth, style = getComputedStyle(doc.body)
const all = [...doc.body.querySelectorAll("*")].filter(e => e.getClientRects().length)
const beyond = e => box(e)[0] < -0.5 || box(e)[2] > width + 0.5
const outside = all.filter(e => !e.parentElement.closest(".wide") && beyond(e))
return JSON.stringify({
  scrolls: doc.documentElement.scrollWidth - width,
  outside: outside.map(e => e.tagName + "." + e.getAttribute("class") + " " + e.textContent.slice(0, 40)),
  plots: [...doc.querySelectorAll("svg")].map(box),
  texts: [...doc.querySelectorAll("svg text")].map(e => [e.textContent, ...box(e)]),
  drawn: [...doc.querySelectorAll("svg .line")].map(e => e.getTotalLength()),
  tables: [...doc.querySelectorAll("table")].map(e => e.scrollWidth - e.parentElement.clientWidth),
  ink: style.color, paper: style.backgroundColor, words: doc.body.innerText,
  data: JSON.parse(doc.getElementById("data").textContent).length,
})"""


class Look(NamedTuple):
    page: str
    width: int
    dark: bool = False


def lay_out(
    pages: Mapping[str, str], looks: list[Look], folder: Path
) -> tuple[dict[Look, dict[str, Any]], list[str]]:
    """Return the layout of each look, and the requests of the browser to any server.

    Every host name resolves to a server here, so that a request for anything shows.
    """
    requests: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(pages, requests))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port, layouts = server.server_address[1], {}
    try:
        with browser(folder, f"--host-resolver-rules=MAP * 127.0.0.1:{port}") as browser_page:
            for number, look in enumerate(looks):
                browser_page.size(look.width, _HEIGHT, dark=look.dark)
                browser_page.goes(f"http://here.test:{port}/{look.page}?{number}")
                browser_page.waits(f"location.search === '?{number}' && document.readyState === 'complete'")
                layouts[look] = json.loads(browser_page.says(f"(() => {{{_LAYOUT_SCRIPT}}})()"))
    finally:
        server.shutdown()
        server.server_close()
    return layouts, requests


def _handler(pages: Mapping[str, str], requests: list[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            requests.append(f"{self.headers['host'].partition(':')[0]}{path}")
            text = pages.get(path.lstrip("/"), "").encode()
            self.send_response(200 if text else 404)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
