"""Explain a request that a ready server answered with an error of HTTP."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from medley.explain.events import echoed
from medley.explain.lines import ERROR, LogLine, line
from medley.explain.patterns import Failure, sign
from medley.explain.scanned_log import Hit, Scanned, shown

REFUSED = Failure(
    name="request-refused",
    what="the server is ready, and it answered a request with {status}",
    cause="the request: {request}[; printed before that answer: {message}]. {meaning}",
    fix="read the whole answer: send the request again by hand",
    signs=(sign("HTTP"),),
    confidence="low",
)
_ANSWER = re.compile(
    r'"(?P<request>[A-Z]{3,7} /[^\s?"]*)[^\s"]* HTTP/[\d.]+" (?P<status>\d{3}(?: [A-Z][a-zA-Z -]{1,30})?)'
)
_MOST_ERRORS = 3
_FAILED = "400"
"""The least status of an answer that reports an error."""
_SERVER_FAILED = "500"


class _Advice(NamedTuple):
    meaning: str
    change: str


_KEY = _Advice(
    "The server did not accept the API key of the request",
    "send the key of --api-key with each request: -H 'Authorization: Bearer KEY'",
)
_BUSY = _Advice(
    "The server has too many requests, or it ends",
    "send fewer requests at a time, or allow more: medley serve MODEL --concurrency 16",
)
_OF_STATUS = {
    "401": _KEY,
    "403": _KEY,
    "404": _Advice(
        "The server has no such path, or no model of the name that the request has",
        "use a name that it prints: curl -s http://HOST:8000/v1/models; or give it the name of the client: "
        "medley serve MODEL --served-model-name NAME",
    ),
    "429": _BUSY,
    "503": _BUSY,
}
_OF_REQUEST = _Advice(
    "A status of 4xx means that the server works and refuses this request",
    "change what the message names, in the request or in the flags of the server; to read the whole answer, "
    "send the request by hand: curl -s http://HOST:8000/v1/chat/completions -H "
    "'Content-Type: application/json' -d '{...}'",
)
_OF_SERVER = _Advice(
    "A status of 5xx means that the server failed at this request",
    "send a plain request, without tools, images and streaming; if it succeeds, add them one at a time\n"
    "search for the message in the engine's issues; a newer engine: medley env build, or a newer image",
)


def find_refused_request(scan: Scanned) -> Hit | None:
    """Return the last request that a ready server answered with 4xx or 5xx, with the errors before it.

    Where no error was printed, a later good answer to the same path means that nothing is wrong.
    """
    if not scan.was_ready or scan.stopped or scan.death is not None:
        return None
    lines = [line(raw) for raw in scan.tail]
    answers = [(at, found) for at, said in enumerate(lines) if (found := _ANSWER.search(said.text))]
    served: set[str] = set()
    for nth in range(len(answers) - 1, -1, -1):
        at, found = answers[nth]
        before = lines[answers[nth - 1][0] + 1 if nth else 0 : at]
        errors = [each for each in before if _is_message(each)]
        if found["status"] < _FAILED:
            served.add(found["request"])
        elif errors or (found["request"].startswith("POST ") and found["request"] not in served):
            number = scan.lines - len(lines) + lines.index((errors or [lines[at]])[0]) + 1
            return _refused(scan, found, errors, (errors or [lines[at]])[0], number)
    return None


def find_status(lines: Iterable[str]) -> str | None:
    """Return the first status of 4xx or 5xx in these lines."""
    answers = (found["status"] for raw in lines if (found := _ANSWER.search(line(raw).text)))
    return next((each for each in answers if each >= _FAILED), None)


def _is_message(said: LogLine) -> bool:
    """Whether a line is an error's message, and not a call of its traceback."""
    text = said.text
    if said.level != ERROR or echoed(text) or text.startswith("Traceback"):
        return False
    return bool(text.strip()) and not text[0].isspace()


def _refused(scan: Scanned, found: re.Match[str], errors: list[LogLine], first: LogLine, number: int) -> Hit:
    status = found["status"]
    general = _OF_SERVER if status >= _SERVER_FAILED else _OF_REQUEST
    advice = _OF_STATUS.get(status[:3], general)
    messages = dict.fromkeys(shown(each.text).rstrip(".") for each in errors)
    failure = REFUSED.model_copy(update={"fix": advice.change})
    words: dict[str, str | None] = {
        "status": status,
        "request": found["request"],
        "message": "; ".join([*messages][:_MOST_ERRORS]) or None,
        "meaning": advice.meaning,
    }
    return Hit(failure, words, first, number, scan.name, first.when, scan.engine)
