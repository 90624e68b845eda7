"""What a page of the site must not fetch; `python -m tools.site` builds all pages and looks."""

from pathlib import Path

import pytest

from tools.site import faults


@pytest.mark.parametrize(
    ("name", "text", "fetched"),
    [
        ("a.html", '<link rel="stylesheet" href="https://fonts.example/css?family=Inter">', True),
        ("a.html", "<script src=//cdn.example/x.js></script>", True),
        ("a.html", '<img alt="x" src="http://example.org/x.png">', True),
        ("a.html", '<pre class="mermaid"><code>graph</code></pre>', True),
        ("a.html", '<a href="https://example.org">x</a>', False),
        ("a.html", '<link rel="stylesheet" href="../assets/main.css"><script src="../x.js"></script>', False),
        ("a.css", "@import 'https://fonts.example/inter';", True),
        ("a.css", "a{background:url(//cdn.example/x.svg)}", True),
        ("a.css", "a{background:url(data:image/svg+xml;x)}", False),
        ("a.svg", '<svg xmlns="http://www.w3.org/2000/svg"/>', False),
        ("a.svg", "<style>@font-face{src:url('https://cdn.example/f.woff2')}</style>", True),
        ("a.js", "fetch('https://example.org')", False),
    ],
)
def test_what_is_fetched_from_elsewhere_is_found(
    name: str, text: str, tmp_path: Path, *, fetched: bool
) -> None:
    page = tmp_path / name
    page.write_text(text)
    assert bool(list(faults(page))) is fetched
