"""The lines of a batch file, in OpenAI's form: each is a request, or wrong and why."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

URLS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
_LONGEST_ID = 512


@dataclass(frozen=True)
class Request:
    number: int
    """Of its line, from 1."""
    custom_id: str
    url: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Bad:
    number: int
    custom_id: str | None
    why: str


def lines(texts: Iterable[str]) -> Iterator[Request | Bad]:
    """Each line that is not blank; an earlier line's custom_id is wrong, for answers are told apart by it."""
    seen: dict[str, int] = {}
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        found = _line(number, text)
        if isinstance(found, Request):
            first = seen.setdefault(found.custom_id, number)
            if first != number:
                found = Bad(number, found.custom_id, f"line {first} has the same custom_id")
        yield found


def _line(number: int, text: str) -> Request | Bad:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Bad(number, None, f"it is no JSON: {error}")
    if not isinstance(table, dict):
        return Bad(number, None, "it is no JSON object")
    given = table.get("custom_id")
    custom_id = given if isinstance(given, str) and 0 < len(given) <= _LONGEST_ID else None
    why = next(_wrong(table, custom_id), None)
    if why is not None or custom_id is None:
        return Bad(number, custom_id, why or "")
    return Request(number, custom_id, table["url"], table["body"])


def _wrong(table: dict[str, Any], custom_id: str | None) -> Iterator[str]:
    if custom_id is None:
        yield f"custom_id must be text of 1 to {_LONGEST_ID} characters"
    if table.get("method", "POST") != "POST":
        yield f"method {table['method']!r}: only POST is known"
    if table.get("url") not in URLS:
        yield f"url {table.get('url')!r}: known are {', '.join(URLS)}"
    body = table.get("body")
    if not isinstance(body, dict):
        yield "body must be an object"
        return
    if body.get("stream"):
        yield "body.stream: a batch has whole answers"
    wants = {"/v1/chat/completions": "messages", "/v1/completions": "prompt", "/v1/embeddings": "input"}
    needed = wants.get(str(table.get("url")))
    if needed and needed not in body:
        yield f"body has no {needed}"
