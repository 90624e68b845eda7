"""Images, audio and video of a request are hidden, in whatever way an engine's error shows them."""

import base64
import json
import textwrap
import urllib.parse

import pytest

from medley.host.redact import Redactor
from medley.host.redact.media import hide_media
from tests.odd_input import hold

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 3
IMAGE = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{IMAGE}"
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(range(256))).decode()
WEBP = base64.b64encode(b"RIFF\1\2\3\4WEBP" + bytes(range(256))).decode()
MP4 = base64.b64encode(b"\0\0\0\x20ftypisom" + bytes(range(256))).decode()
SAID = "RuntimeError: Error while loading data "
ERROR = ": cannot identify image file"


def wrapped(text: str, width: int, indent: str = "") -> str:
    return f"\n{indent}".join(textwrap.wrap(text, width))


def is_shown(content: str, text: str) -> bool:
    """Return whether twelve letters of the content are in the text."""
    plain = urllib.parse.unquote(urllib.parse.unquote(text)).replace("\\/", "/")
    return any(content[start : start + 12] in plain for start in range(len(content) - 12))


@pytest.mark.parametrize(
    ("shown", "content"),
    [
        pytest.param(URL, IMAGE, id="a URL"),
        pytest.param(URL.replace("image/png", "image/svg+xml;charset=utf-8"), IMAGE, id="with a parameter"),
        pytest.param(URL.replace("image/png", ""), IMAGE, id="without its type"),
        pytest.param(URL.upper().replace(IMAGE.upper(), IMAGE), IMAGE, id="in capitals"),
        pytest.param(URL.replace(IMAGE, IMAGE[:30]), IMAGE, id="a short one"),
        pytest.param(urllib.parse.quote(URL, safe=""), IMAGE, id="URL-encoded"),
        pytest.param(urllib.parse.quote(urllib.parse.quote(URL, safe="")), IMAGE, id="twice"),
        pytest.param(json.dumps(URL.replace(IMAGE, JPEG)).replace("/", "\\/"), JPEG, id="in JSON"),
        pytest.param(repr(URL), IMAGE, id="in quotes"),
        *(
            pytest.param(wrapped(URL, width), IMAGE, id=f"lines of {width}")
            for width in (30, 64, 76, 80, 200)
        ),
        pytest.param(wrapped(URL, 76, "    "), IMAGE, id="indented lines"),
        pytest.param(wrapped(URL, 76).replace("\n", "\\n"), IMAGE, id="lines in a string"),
        pytest.param(wrapped(URL, 76).replace("\n", "\r\n"), IMAGE, id="lines of Windows"),
        pytest.param(IMAGE, IMAGE, id="base64 of PNG"),
        pytest.param(JPEG, JPEG, id="base64 of JPEG"),
        pytest.param(WEBP, WEBP, id="base64 of WebP"),
        pytest.param(MP4, MP4, id="base64 of MP4"),
        pytest.param(base64.b64encode(bytes(range(256))).decode(), "AAECAwQFBgcICQ", id="any base64"),
        pytest.param(repr(PNG), "PNG\\r\\n\\x1a\\n", id="bytes"),
        pytest.param("data:text/plain,my diagnosis", "my diagnosis..", id="text"),
    ],
)
def test_media_are_hidden(shown: str, content: str) -> None:
    hidden = Redactor().text(f"before\n{SAID}{shown}{ERROR}\nValueError: after it")
    assert not is_shown(content, hidden)
    assert "my diagnosis" not in hidden
    assert hidden.startswith(f"before\n{SAID}")
    assert hidden.endswith("\nValueError: after it")
    assert (
        hidden.endswith(f"HIDDEN{ERROR}\nValueError: after it") or shown[:1] in {'"', "'"} or "text/" in shown
    )
    assert Redactor().text(hidden) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "metadata: image/png, and data:image is its beginning",
        "data: {done}, load_data:1,2 and data:org/name,x",
        "/usr/local/lib/python3/site/packages/vllm/model/executor/layers/" * 4,
        "=" * 300,
        "a" * 300,
        "an image in base64: SUQz",
    ],
)
def test_what_is_no_media_stays(text: str) -> None:
    assert hide_media(text) == text


def test_the_lines_after_a_url_stay() -> None:
    rest = "\nTraceback (most recent call last):\nINFO 11-21 08:01:33 [x.py:1] done\nValueError: x"
    assert hide_media(URL + rest) == f"data:image/png;base64,HIDDEN{rest}"


@pytest.mark.parametrize(
    "fragment",
    [
        "data:",
        "data:a/b;",
        "data:image/png,",
        "data:a/b;base64,",
        "%",
        "%25",
        "\\",
        "/9j/",
        "A1a",
        "AAAA\n",
        "data:a/b;base64,A\n",
        ";a",
        "data:a/b;base64,a:\n",
    ],
)
def test_time_is_in_proportion(fragment: str) -> None:
    hold(hide_media, iter([fragment * (400_000 // len(fragment))]), 1, ())
