"""Explain a request that a ready server answered with an error of HTTP."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from medley.explain.events import is_echo
from medley.explain.lines import ERROR, LogLine, parse_line
from medley.explain.patterns import Failure, sign
from medley.explain.scanned_log import FailureMatch, LogScan, shorten_message

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
_MODEL_ABSENT = re.compile(r"[Tt]he model [`'\"]?(?P<name>[^`'\"\s]+)[`'\"]? does not exist")
_SERVED_NAME = re.compile(
    r"\"id\": ?\"(?P<listed>[^\"]+)\", ?\"object\": ?\"model\"|"
    r"'served_model_name': \[?'(?P<set>[^']+)'|'model': '(?P<given>[^']+)'"
)
_API_PATHS = "/v1/"
_ANSWERED_MESSAGE = re.compile(
    r"\"error\": ?\{[^{}]{0,200}?\"message\": ?\"(?P<message>(?:[^\"\\]|\\.){4,400})"
)
"""The message of an answer that a client printed."""
_MAX_ERRORS = 3
_MIN_ERROR_STATUS = "400"
"""The least status of an answer that reports an error."""
_MIN_SERVER_ERROR_STATUS = "500"


class _Advice(NamedTuple):
    meaning: str
    change: str


_KEY = _Advice(
    "The server requires an API key, and the request has another one or none. The key comes from --api-key, "
    "or from VLLM_API_KEY in the server's environment",
    "send that key with each request: -H 'Authorization: Bearer KEY'; or start the server without one: no "
    "--api-key, and unset VLLM_API_KEY (env | grep API_KEY)",
)
_NO_PATH = _Advice(
    "The server has no such path",
    "ask for a path of the OpenAI API: /v1/chat/completions or /v1/completions; all that the server has: "
    "curl -s http://HOST:8000/openapi.json",
)
_NO_MODEL = _Advice(
    "The server has no model of the name that the request has",
    "use a name that it prints: curl -s http://HOST:8000/v1/models; or give it the name of the client: "
    "medley serve MODEL --served-model-name NAME",
)
_BUSY = _Advice(
    "The server has too many requests, or it ends",
    "send fewer requests at a time, or allow more: medley serve MODEL --concurrency 16",
)
_STATUS_ADVICE = {
    "401": _KEY,
    "403": _KEY,
    "404": _Advice(f"{_NO_PATH.meaning}, or no model of the name that the request has", _NO_MODEL.change),
    "429": _BUSY,
    "503": _BUSY,
}
_CLIENT_ERROR_ADVICE = _Advice(
    "A status of 4xx means that the server works and refuses this request",
    "change what the message names, in the request or in the flags of the server; to read the whole answer, "
    "send the request by hand: curl -s http://HOST:8000/v1/chat/completions -H "
    "'Content-Type: application/json' -d '{...}'",
)
_SERVER_ERROR_ADVICE = _Advice(
    "A status of 5xx means that the server failed at this request",
    "send a plain request, without tools, images and streaming; if it succeeds, add them one at a time\n"
    "search for the message in the engine's issues; a newer engine: medley env build, or a newer image",
)


def find_refused_request(scan: LogScan) -> FailureMatch | None:
    """Return the last request that a ready server answered with 4xx or 5xx, with the errors before it.

    Where no error was printed, a later good answer to the same path means that nothing is wrong.
    """
    if not scan.was_ready or scan.stopped or scan.end_number is not None:
        return None
    lines = [parse_line(raw) for raw in scan.tail]
    answers = [(index, answer) for index, line in enumerate(lines) if (answer := _ANSWER.search(line.text))]
    served: set[str] = set()
    for position in range(len(answers) - 1, -1, -1):
        index, answer = answers[position]
        before = lines[answers[position - 1][0] + 1 if position else 0 : index]
        errors = [line for line in before if _is_message(line)]
        if answer["status"] < _MIN_ERROR_STATUS:
            served.add(answer["request"])
        elif errors or (answer["request"].startswith("POST ") and answer["request"] not in served):
            number = scan.lines - len(lines) + lines.index((errors or [lines[index]])[0]) + 1
            return _build_match(scan, answer, errors, (errors or [lines[index]])[0], number)
    return None


def find_status(lines: Iterable[str]) -> str | None:
    """Return the first status of 4xx or 5xx in these lines."""
    answers = (answer["status"] for raw in lines if (answer := _ANSWER.search(parse_line(raw).text)))
    return next((status for status in answers if status >= _MIN_ERROR_STATUS), None)


def _is_message(line: LogLine) -> bool:
    """Whether a line is an error's message, and not a call of its traceback."""
    text = line.text
    if line.level != ERROR or is_echo(text) or text.startswith("Traceback"):
        return False
    return bool(text.strip()) and not text[0].isspace()


def _explain_absence(request: str, errors: Sequence[LogLine], scan: LogScan) -> _Advice | None:
    """Return what is absent: the path of the request, or the model that it names."""
    absent = next((match for line in errors if (match := _MODEL_ABSENT.search(line.text))), None)
    if absent:
        served = _SERVED_NAME.search("\n".join([*scan.tail, scan.arguments]))
        name = served and next(filter(None, served.groups()))
        meaning = f"{_NO_MODEL.meaning}: {absent['name']}"
        return _NO_MODEL._replace(meaning=f"{meaning}; its own is {name}" if name else meaning)
    return None if _API_PATHS in request else _NO_PATH


def _build_match(
    scan: LogScan, answer: re.Match[str], errors: list[LogLine], first: LogLine, number: int
) -> FailureMatch:
    status = answer["status"]
    general = _SERVER_ERROR_ADVICE if status >= _MIN_SERVER_ERROR_STATUS else _CLIENT_ERROR_ADVICE
    advice = _STATUS_ADVICE.get(status[:3], general)
    if status.startswith("404"):
        advice = _explain_absence(answer["request"], errors, scan) or advice
    messages = dict.fromkeys(shorten_message(line.text).rstrip(".") for line in errors)
    if not messages and (printed := _ANSWERED_MESSAGE.search("\n".join(scan.tail))):
        messages = {shorten_message(printed["message"]).rstrip("."): None}
    failure = REFUSED.replace(fix=advice.change)
    groups: dict[str, str | None] = {
        "status": status,
        "request": answer["request"],
        "message": "; ".join([*messages][:_MAX_ERRORS]) or None,
        "meaning": advice.meaning,
    }
    return FailureMatch(failure, groups, first, number, scan.name, first.when, scan.engine)
