"""A real browser, if there is one: what it lays out of a page, and what it asks of the network for it."""

import json
import re
import shutil
import threading
from collections.abc import Mapping
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from medley import machine
from medley.command import Command

CHROMIUM = shutil.which("chromium")
needed = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; .ci/run installs it")
_LIMIT_S = 60
# Each page in a frame of each width; what is measured stands in the document at the end.
_HARNESS = """<!doctype html><link rel="icon" href="data:,"><pre id="result"></pre><script>
const box = each => { const b = each.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom] }
const seen = frame => {
  const doc = frame.contentDocument, width = frame.clientWidth
  const all = [...doc.body.querySelectorAll("*")].filter(e => e.getClientRects().length)
  const beyond = e => box(e)[0] < -0.5 || box(e)[2] > width + 0.5
  const outside = all.filter(e => !e.parentElement.closest(".wide") && beyond(e))
  const style = doc.defaultView.getComputedStyle(doc.body)
  return {
    scrolls: doc.documentElement.scrollWidth - width,
    outside: outside.map(e => e.tagName + "." + e.getAttribute("class") + " " + e.textContent.slice(0, 40)),
    plots: [...doc.querySelectorAll("svg")].map(box),
    texts: [...doc.querySelectorAll("svg text")].map(e => [e.textContent, ...box(e)]),
    drawn: [...doc.querySelectorAll("svg .line")].map(e => e.getTotalLength()),
    tables: [...doc.querySelectorAll("table")].map(e => e.scrollWidth - e.parentElement.clientWidth),
    ink: style.color, paper: style.backgroundColor, words: doc.body.innerText,
    data: JSON.parse(doc.getElementById("data").textContent).length,
  }
}
const frames = PAGES.map(([page, width]) => new Promise(done => {
  const frame = document.createElement("iframe")
  frame.style = `width:${width}px;height:900px;border:0`
  frame.onload = () => done(seen(frame))
  frame.src = page
  document.body.append(frame)
}))
Promise.all(frames).then(all => { document.getElementById("result").textContent = JSON.stringify(all) })
</script>"""


def laid_out(
    pages: Mapping[str, str], looks: list[tuple[str, int]], folder: Path, *, dark: bool = False
) -> tuple[list[dict[str, Any]], list[str]]:
    """For each look (a page's name and a width) what the browser made of it; and what it asked of any server.

    Every name in the world leads to a server here, so a page that asks for anything is seen to do so.
    """
    if CHROMIUM is None:
        raise AssertionError("`needed` goes before")
    asked: list[str] = []
    whole = {**pages, "harness": _HARNESS.replace("PAGES", json.dumps(looks))}
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(whole, asked))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        port = server.server_address[1]
        lines: list[str] = []
        argv = (CHROMIUM, *_flags(folder, port, dark=dark), "--dump-dom", f"http://here.test:{port}/harness")
        finished = machine.run(Command(argv), limit_s=_LIMIT_S, on_line=lines.append)
    finally:
        server.shutdown()
        server.server_close()
    found = re.search(r'<pre id="result">(.+?)</pre>', "\n".join(lines), re.DOTALL)
    assert found, finished.lines
    return json.loads(unescape(found[1])), asked


def _flags(folder: Path, port: int, *, dark: bool) -> tuple[str, ...]:
    return (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--disable-background-networking", "--disable-component-update", "--no-first-run"),
        "--disable-features=NetworkTimeServiceQuerying",
        *(f"--user-data-dir={folder}", f"--host-resolver-rules=MAP * 127.0.0.1:{port}"),
        *(f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--virtual-time-budget=10000"),
    )


def _handler(pages: Mapping[str, str], asked: list[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.headers['host'].partition(':')[0]}{self.path}")
            text = pages.get(self.path.lstrip("/"), "").encode()
            self.send_response(200 if text else 404)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
