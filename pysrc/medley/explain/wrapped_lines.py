"""Join the lines of one exception's message that a logger or a terminal wrapped."""

import re
from collections.abc import Sequence
from itertools import takewhile

from medley.explain.lines import COLOR, ERROR, decode_start, parse_line

_MAX_LINES = 6
_MAX_LINE_CHARS = 400
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Failure)(?:\([\w.]+\))?: ")
_OTHER_LINE = re.compile(
    r'^\s*(?:File "|Traceback|During handling|The above exception|[\^~]+\s*$|$)|'
    r"^[A-Za-z_][\w.]*(?:Error|Exception|Failure)\b"
)
_SENTENCE_START = re.compile(r"\s*[A-Z]")
_SENTENCE_END = re.compile(r"[.!?:;]\s*$")


def join_wrapped(before: Sequence[bytes], raw: bytes, after: Sequence[bytes]) -> str | None:
    """Return the whole message of the exception that has this line; None if it is on one line.

    All its lines have the same prefix, of level ERROR, and none but the first starts a sentence.
    """
    prefix, text = _split_prefix(raw)
    if not prefix:
        return None
    earlier: list[str] = []
    for other in reversed(before[-_MAX_LINES:]):
        if _EXCEPTION.match(earlier[-1] if earlier else text):
            break
        other_prefix, other_text = _split_prefix(other)
        if other_prefix != prefix or not _continues(other_text, earlier[-1] if earlier else text):
            return None
        earlier.append(other_text)
    texts = [*reversed(earlier), text]
    if not _EXCEPTION.match(texts[0]):
        return None
    parts = (_split_prefix(other) for other in after[:_MAX_LINES])
    for _, other_text in takewhile(lambda part: part[0] == prefix, parts):
        if not _continues(texts[-1], other_text):
            break
        texts.append(other_text)
    return " ".join(part.strip() for part in texts) if len(texts) > 1 else None


def _continues(text: str, next_text: str) -> bool:
    """Whether the next line continues the sentence of a line, and is no call and no other exception."""
    is_sentence = _SENTENCE_END.search(text) or _SENTENCE_START.match(next_text)
    return not is_sentence and not _OTHER_LINE.match(next_text)


def _split_prefix(raw: bytes) -> tuple[str, str]:
    """Return the prefix of an error's line and its text; no prefix for a line of another level."""
    whole = COLOR.sub("", decode_start(raw, _MAX_LINE_CHARS)).rstrip()
    line = parse_line(whole)
    return (whole.removesuffix(line.text) if line.level == ERROR else "", line.text)
