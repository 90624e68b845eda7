"""Complete an engine's HTTP API for clients of OpenAI and Anthropic.

It stands around the engine's application, in the engine's Python (3.10 or later). `engine_server` uses it:

- An error has the caller's own format, and says what to do.
- GET /v1/models/NAME answers with that model, which vLLM 0.32.0 does not have.
- Where no parser reads the model's reasoning, `thinking` of a request of the Messages API is left out. vLLM
  0.32.0 answers 400: "thinking_token_budget is set but reasoning_config is not configured".
"""

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

NO_REASONING = "MEDLEY_NO_REASONING"
"""The variable that is set if no parser reads the model's reasoning."""
MEDIA_HOSTS = "MEDLEY_MEDIA_HOSTS"
"""The variable with the hosts whose images, audio and video the engine fetches, separated by commas."""
_MEDIA_WORDS = (
    "this server takes images, audio and video only as data: URLs, or from hosts that its owner allows "
    f"({MEDIA_HOSTS})"
)
_DATA_WORDS = "a data: URL must be data:TYPE;base64,DATA with valid base64"
_SCRIPT_WORDS = "audio and video must be the recording itself, not a playlist that names other files"
# Concat, HLS, DASH and IMF: the scripts that FFmpeg recognizes by their text, perhaps behind an ID3 tag.
_FFMPEG_SCRIPT = re.compile(rb"(?i)ffconcat version|#EXTM3U|dash:profile|<CompositionPlaylist")
_MODELS_PATH = "/v1/models"
_MIN_ERROR_STATUS = 400
# The types of Anthropic's errors (docs.claude.com, API errors) and of OpenAI's.
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_OPENAI_TYPES = {401: "authentication_error", 429: "rate_limit_error", 503: "service_unavailable_error"}
_TOO_LONG_PATTERN = re.compile(r"maximum context length is (\d+) tokens")
_REQUESTED_PATTERN = re.compile(r"requested (\d+) output tokens")
_PROMPT_PATTERN = re.compile(r"(?:contains at least|contains|has) (\d+) input tokens")
_NO_MODEL_PATTERN = re.compile(r"model `[^`]*` does not exist|[Mm]odel .* not found")
# Without a user, a backslash or a space, which programs read in several ways
_PLAIN_URL_PATTERN = re.compile(r"https?://([a-z0-9.-]+)(?::\d+)?(?:[/?#][^\\\s]*)?")
# Of vLLM 0.32.0's multimodal/media/connector.py
_NO_MEDIA_PATTERN = re.compile(r"must be from one of the allowed domains|Cannot load local files")
_NO_TOOLS_PATTERN = re.compile(r"tool choice requires|requires --tool-call-parser")


def is_anthropic(scope: Message) -> bool:
    """Return whether the request is of Anthropic's Messages API."""
    path: str = scope["path"]
    return path.startswith("/v1/messages") or any(
        name == b"anthropic-version" for name, _ in scope["headers"]
    )


def build_error_body(
    scope: Message, status: int, message: str, *, code: object = None, param: object = None
) -> bytes:
    """Return an error as JSON in the format of the request's API."""
    if is_anthropic(scope):
        kind = _ANTHROPIC_TYPES.get(
            status, "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "api_error"
        )
        return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    server = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = _OPENAI_TYPES.get(status, "server_error" if server else "invalid_request_error")
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()


class Answers:
    """An ASGI application around the engine's."""

    def __init__(self, application: Application, *, reasoning: bool = True) -> None:
        self.application, self.has_reasoning = application, reasoning

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        if scope["method"] in {"GET", "HEAD"} and scope["path"].startswith(f"{_MODELS_PATH}/"):
            await self._answer_model(scope, receive, send)
            return
        if not self.has_reasoning and scope["method"] == "POST" and scope["path"].startswith("/v1/messages"):
            scope, receive = await _drop_thinking(scope, receive)
        await self.application(scope, receive, _ErrorRewriter(self, scope, receive, send).send)

    async def list_models(self, scope: Message, receive: Receive) -> list[dict[str, Any]]:
        """Return the cards of the engine's models; empty if it does not answer."""
        request = {
            **scope,
            "method": "GET",
            "path": _MODELS_PATH,
            "raw_path": _MODELS_PATH.encode(),
            "query_string": b"",
        }
        parts: list[bytes] = []

        async def collect(message: Message) -> None:
            parts.append(message.get("body", b""))

        await self.application(request, receive, collect)
        cards = _parse_table(b"".join(parts)).get("data")
        return [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []

    async def _answer_model(self, scope: Message, receive: Receive, send: Send) -> None:
        name = unquote(scope["path"].removeprefix(f"{_MODELS_PATH}/"))
        cards = await self.list_models(scope, receive)
        card = next((card for card in cards if card.get("id") == name), None)
        if card:
            await _send_json(send, HTTPStatus.OK, json.dumps(card).encode())
        else:
            words = f"the model {name} does not exist; {_describe_models(cards)}"
            body = build_error_body(scope, HTTPStatus.NOT_FOUND, words, code="model_not_found", param="model")
            await _send_json(send, HTTPStatus.NOT_FOUND, body)


class _ErrorRewriter:
    """The `send` of an answer: it passes messages on, and rewrites an error in JSON."""

    def __init__(self, answers: Answers, scope: Message, receive: Receive, send: Send) -> None:
        self.answers, self.scope, self.receive, self.send_on = answers, scope, receive, send
        self.start: Message | None = None
        self.parts: list[bytes] = []

    async def send(self, message: Message) -> None:
        if (
            message["type"] == "http.response.start"
            and message["status"] >= _MIN_ERROR_STATUS
            and _is_json(message)
        ):
            self.start = message
        elif self.start is None:
            await self.send_on(message)
        else:
            self.parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                await self._send_rewritten(self.start, b"".join(self.parts))

    async def _send_rewritten(self, start: Message, body: bytes) -> None:
        error, status = _parse_error(body), int(start["status"])
        if error:
            words, code, param = error
            if _NO_MODEL_PATTERN.search(words):
                cards = await self.answers.list_models(self.scope, self.receive)
                words = f"{words.partition('. Valid')[0].rstrip('. ')}; {_describe_models(cards)}"
                code, param = "model_not_found", "model"
            elif advised := _add_advice(words, anthropic=is_anthropic(self.scope)):
                words, code, param = advised
            body = build_error_body(self.scope, status, words, code=code, param=param)
        headers = [header for header in start["headers"] if header[0].lower() != b"content-length"]
        await self.send_on({**start, "headers": [*headers, (b"content-length", str(len(body)).encode())]})
        await self.send_on({"type": "http.response.body", "body": body})


def _add_advice(words: str, *, anthropic: bool) -> tuple[str, object, object] | None:
    """Return an engine's message with advice, its code and its parameter; None without advice."""
    if _NO_TOOLS_PATTERN.search(words):
        advice = (
            "this model calls no tools: its chat template shows it none, or no parser reads its format. "
            "Send the request without tools, or serve a model that has them"
        )
        return advice, "tools_not_supported", "tools"
    if _NO_MEDIA_PATTERN.search(words):
        return _MEDIA_WORDS, "media_not_allowed", "messages"
    if limit := _TOO_LONG_PATTERN.search(words):
        prompt, requested = _PROMPT_PATTERN.search(words), _REQUESTED_PATTERN.search(words)
        if anthropic and prompt and not requested:
            # Agents of the Messages API look for these words, and shorten the conversation.
            words = f"prompt is too long: {prompt[1]} tokens > {limit[1]} maximum"
        advice = "send less text" if not requested else "ask for fewer tokens (max_tokens), or send less text"
        return f"{words.rstrip('. ')}. To fit: {advice}", "context_length_exceeded", "messages"
    return None


def require_usable_media(media: object, hosts: Collection[str]) -> None:
    """Raise ValueError for a text in a request's media that is neither data nor a URL of these hosts.

    Data that FFmpeg reads as a script is refused as well, also if it was uploaded: SGLang gives it a file in
    the folder of temporary files, next to which FFmpeg opens others.
    """
    if isinstance(media, dict):
        media = list(media.values())
    if isinstance(media, (list, tuple)):
        for part in media:
            require_usable_media(part, hosts)
        return
    url = getattr(media, "url", media)
    if isinstance(url, str) and not (url.startswith("data:") or _is_of_hosts(url, hosts)):
        raise ValueError(_MEDIA_WORDS)
    content = _decode_data(url) if isinstance(url, str) and url.startswith("data:") else url
    if isinstance(content, (bytes, bytearray)) and _FFMPEG_SCRIPT.search(content):
        raise ValueError(_SCRIPT_WORDS)


def _decode_data(url: str) -> bytes:
    """Return the bytes of a data: URL; raise ValueError where an engine might read others than these."""
    try:
        return base64.b64decode("".join(url.partition(",")[2].split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(_DATA_WORDS) from error


def _is_of_hosts(url: str, hosts: Collection[str]) -> bool:
    parsed_url = _PLAIN_URL_PATTERN.fullmatch(url)
    return parsed_url is not None and parsed_url[1] in hosts


def _describe_models(cards: list[dict[str, Any]]) -> str:
    names = ", ".join(str(card.get("id")) for card in cards)
    return f"this server has: {names}" if names else "GET /v1/models lists what this server has"


def _parse_error(body: bytes) -> tuple[str, object, object] | None:
    """Return the message, code and parameter of either engine's error; None if it has no message."""
    table = _parse_table(body)
    inner = table.get("error", table.get("detail", table))
    if isinstance(inner, str):
        return inner, None, None
    if isinstance(inner, dict) and isinstance(inner.get("message"), str):
        code = inner.get("code")
        return inner["message"], code if isinstance(code, str) else None, inner.get("param")
    return None


async def _drop_thinking(scope: Message, receive: Receive) -> tuple[Message, Receive]:
    """Return the request without `thinking`, or the unchanged request with a body that can be read again."""
    messages: list[Message] = []
    while not messages or messages[-1].get("more_body", False):
        messages.append(await receive())
        if messages[-1]["type"] != "http.request":
            break
    body = b"".join(message.get("body", b"") for message in messages)
    table = _parse_table(body) if b'"thinking"' in body else {}
    if table.pop("thinking", None) is not None and messages[-1]["type"] == "http.request":
        body = json.dumps(table).encode()
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        headers = [header for header in scope["headers"] if header[0] != b"content-length"]
        scope = {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}

    async def receive_again() -> Message:
        return messages.pop(0) if messages else await receive()

    return scope, receive_again


def _is_json(start: Message) -> bool:
    return any(name.lower() == b"content-type" and b"json" in value for name, value in start["headers"])


def _parse_table(body: bytes) -> dict[str, Any]:
    try:
        table = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


async def _send_json(send: Send, status: HTTPStatus, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})
