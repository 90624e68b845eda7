"""Hide images, audio and video of requests: an engine's error shows them whole, as a URL or in base64.

Each expression is possessive or bounded, so the time is in proportion to the text.
"""

import re

from medley.host.redact.named_values import HIDDEN


def _sign(sign: str) -> str:
    """Return the pattern of a sign, which JSON may escape and a URL may write as %XX, also twice."""
    return rf"(?:\\*+{re.escape(sign)}|%(?:25){{0,2}}{ord(sign):02X})"


def _address(media_type: str) -> str:
    """Return the pattern of a URL's beginning, with parameters such as a charset."""
    return (
        rf"data{_sign(':')}{media_type}"
        rf"(?:{_sign(';')}(?!base64)(?:[^\s,;\"'%]|%(?:25){{0,2}}(?:3D|2D|22)){{0,80}}+){{0,8}}+"
    )


_SUBTYPE = rf"{_sign('/')}(?:[\w.+-]|%(?:25){{0,2}}2B){{1,80}}+"
_RUN = r"(?:[A-Za-z0-9+/_=-]|%(?:25){0,2}(?:2B|2F|3D|0A|0D)|\\++[/nr])"
# The next line of a content: all of it, or its end before a sign; ValueError: and other words have no digit.
_NEXT_LINE = (
    r"[ \t]*+\r?\n[ \t]*+(?:[A-Za-z0-9+/][A-Za-z0-9+/_=-]*+(?=[ \t]*+(?:\r?\n|\Z)|[\"'])"
    r"|(?=[A-Za-z+/]{0,400}\d)[A-Za-z0-9+/][A-Za-z0-9+/_=-]*+(?=[:,;)\]}]))"
)
_CONTENT = rf"{_RUN}*+(?:{_NEXT_LINE})*+"
_BASE64_URL_PATTERN = re.compile(
    rf"(?i)({_address(f'(?:[a-z]{{1,40}}{_SUBTYPE})?')}{_sign(';')}base64{_sign(',')})"
    rf"[ \t]*+(?:\r?\n)?(?!HIDDEN){_CONTENT}"
)
_PLAIN_URL_PATTERN = re.compile(
    rf"(?i)({_address(f'(?:application|audio|font|image|text|video){_SUBTYPE}')}{_sign(',')})"
    r"(?!HIDDEN)[^\r\n\"'`]++"
)
# The first letters of JPEG, PNG, WebP and WAV, GIF, MP3, Ogg, WebM and MP4.
_BARE_PATTERN = re.compile(
    r"(?<![A-Za-z0-9+/])(?:/9j\\{0,8}/|iVBORw0KGgo|UklGR|R0lGOD|SUQz|T2dnUw|GkXfo|AAAA[A-Za-z0-9+/]{2,6}ZnR5c)"
    rf"(?=[A-Za-z0-9+/\\_-]{{16}}){_CONTENT}"
)
_LONG_PATTERN = re.compile(
    r"(?<![A-Za-z0-9+/])(?=[A-Za-z0-9+/]{200})(?=[A-Za-z+/]{0,199}\d)(?=[a-z0-9+/]{0,199}[A-Z])"
    rf"(?=[A-Z0-9+/]{{0,199}}[a-z]){_CONTENT}"
)
# SGLang's, of what has no URL: base64, or Python's text of bytes.
_SGLANG_PATTERN = re.compile(
    r"(?<=Error while loading data )(?!data|https?:|file:|HIDDEN)"
    rf"(?:b'(?:[^'\\\n]|\\.)*+'?|b\"(?:[^\"\\\n]|\\.)*+\"?|(?=[A-Za-z0-9+/]{{40}}){_CONTENT})"
)


def hide_media(text: str) -> str:
    """Replace the contents of `data:` URLs, and media in base64, by HIDDEN."""
    text = _BASE64_URL_PATTERN.sub(rf"\1{HIDDEN}", text)
    text = _PLAIN_URL_PATTERN.sub(rf"\1{HIDDEN}", text)
    for pattern in (_SGLANG_PATTERN, _BARE_PATTERN, _LONG_PATTERN):
        text = pattern.sub(HIDDEN, text)
    return text
