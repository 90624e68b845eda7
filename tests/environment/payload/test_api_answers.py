"""Errors have the caller's own format and say what to do, asked as a server asks an application."""

import asyncio
import base64
import json
from contextlib import nullcontext
from typing import Any

import pytest

from medley.environment.payload.api_answers import (
    Answers,
    Message,
    build_error_body,
    require_usable_media,
)

CARD = {"id": "smollm2", "object": "model", "max_model_len": 8192}
AUTO = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
LONG = (
    "This model's maximum context length is 8192 tokens. However, your prompt contains 9001 input tokens, "
    "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
)
ANTHROPIC = ((b"anthropic-version", b"2023-06-01"),)


class Engine:
    """An application with one model, which answers all else with one error, or with its body."""

    def __init__(self, status: int = 200, error: object = None) -> None:
        self.status, self.error, self.bodies = status, error, list[bytes]()

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["method"] == "GET" and scope["path"] == "/v1/models":
            await _send(send, 200, json.dumps({"object": "list", "data": [CARD]}).encode())
            return
        body, more = b"", scope["method"] == "POST"
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)
        length = next((value for name, value in scope["headers"] if name == b"content-length"), None)
        assert length is None or int(length) == len(body)
        await _send(send, self.status, json.dumps(self.error).encode() if self.error else body)


async def _send(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for at in range(0, len(body), 20):  # in several parts, as an answer may come
        await send(
            {"type": "http.response.body", "body": body[at : at + 20], "more_body": at + 20 < len(body)}
        )


def asked(
    engine: Engine, path: str, body: object = None, *headers: tuple[bytes, bytes], reasoning: bool = True
) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    text = json.dumps(body).encode()
    parts = [text[:7], text[7:]]
    scope = {
        "type": "http",
        "path": path,
        "method": "GET" if body is None else "POST",
        "headers": [*headers, *([] if body is None else [(b"content-length", str(len(text)).encode())])],
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(Answers(engine, reasoning=reasoning)(scope, receive, send))
    found = b"".join(each.get("body", b"") for each in sent)
    (length,) = (value for name, value in sent[0]["headers"] if name == b"content-length")
    assert int(length) == len(found)
    return sent[0]["status"], json.loads(found)


def test_one_model_is_answered_by_name() -> None:
    assert asked(Engine(), "/v1/models/smollm2") == (200, CARD)
    status, found = asked(Engine(), "/v1/models/org%2Fother")
    assert (status, found["error"]["code"]) == (404, "model_not_found")
    assert "org/other does not exist; this server has: smollm2" in found["error"]["message"]


def _vllm(message: str, status: int = 400) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": status}}


@pytest.mark.parametrize(
    ("message", "code", "said"),
    [
        pytest.param(AUTO, "tools_not_supported", "Send the request without tools", id="tools"),
        pytest.param(
            'tool_choice="required" requires --tool-call-parser to be set',
            "tools_not_supported",
            "calls no tools",
            id="tools by name",
        ),
        pytest.param(LONG, "context_length_exceeded", "To fit: send less text", id="too long"),
        pytest.param(
            "The model `gpt-4` does not exist. Valid aliases: smollm2",
            "model_not_found",
            "this server has: smollm2",
            id="model",
        ),
        pytest.param("temperature must be at least 0", None, "temperature must be at least 0", id="another"),
    ],
)
@pytest.mark.parametrize("shape", ["vllm", "sglang", "detail"])
def test_an_error_says_what_to_do_as_openai_does(
    message: str, code: str | None, said: str, shape: str
) -> None:
    error = {
        "vllm": _vllm(message),
        "sglang": {"object": "error", "message": message, "type": "BadRequest", "param": None, "code": 400},
        "detail": {"detail": message},
    }[shape]
    status, found = asked(Engine(400, error), "/v1/chat/completions", {"model": "x"})
    assert status == 400
    assert set(found["error"]) == {"message", "type", "param", "code"}
    assert (found["error"]["type"], found["error"]["code"]) == ("invalid_request_error", code)
    assert said in found["error"]["message"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (404, "not_found_error"), (503, "overloaded_error"), (500, "api_error")],
)
def test_an_error_of_the_messages_api_has_anthropic_s_format(status: int, kind: str) -> None:
    answered, found = asked(Engine(status, _vllm("no", status)), "/v1/messages", {"model": "x"})
    assert (answered, found) == (status, {"type": "error", "error": {"type": kind, "message": "no"}})


def test_agents_of_the_messages_api_see_that_they_must_shorten() -> None:
    _, found = asked(Engine(400, _vllm(LONG)), "/v1/messages", {"model": "x"})
    assert found["error"]["message"].startswith("prompt is too long: 9001 tokens > 8192 maximum")
    wanted = LONG.replace("your prompt", "you requested 32000 output tokens and your prompt")
    _, found = asked(Engine(400, _vllm(wanted)), "/v1/chat/completions", {"model": "x"})
    assert "ask for fewer tokens (max_tokens)" in found["error"]["message"]


@pytest.mark.parametrize("parser", ["", "qwen3"])
def test_thinking_is_left_out_where_no_parser_reads_it(parser: str) -> None:
    engine, reasoning = Engine(), bool(parser)
    body = {"model": "x", "thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}
    status, _ = asked(engine, "/v1/messages", body, *ANTHROPIC, reasoning=reasoning)
    assert status == 200
    assert ("thinking" in json.loads(engine.bodies[0])) is reasoning
    assert json.loads(engine.bodies[0])["max_tokens"] == 2000


def test_other_requests_are_passed_on_as_they_came() -> None:
    engine, body = Engine(), {"model": "x", "messages": [{"role": "user", "content": 'my "thinking" is'}]}
    assert asked(engine, "/v1/messages", body, reasoning=False) == (200, body)
    assert asked(engine, "/v1/chat/completions", {"thinking": 1}, reasoning=False) == (200, {"thinking": 1})


def test_an_error_has_each_api_s_own_keys() -> None:
    openai = {"type": "http", "path": "/v1/completions", "headers": []}
    assert json.loads(build_error_body(openai, 503, "later")) == {
        "error": {"message": "later", "type": "service_unavailable_error", "param": None, "code": None}
    }


class Media:
    """A part of a request as SGLang holds it."""

    def __init__(self, url: str) -> None:
        self.url = url


@pytest.mark.parametrize(
    "media",
    [
        pytest.param(None, id="text"),
        pytest.param([None, [], b"raw"], id="bytes"),
        pytest.param([Media("data:image/png;base64,AAAA"), "data:audio/wav;base64,AA=="], id="data"),
        pytest.param("data:image/png;base64,AA\nAA", id="data over two lines"),
    ],
)
def test_usable_media(media: object) -> None:
    require_usable_media(media, ())


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1/", "https://a.example/x.png", "HTTP://a.example", "ftp://a.example/x"),
        *("file:///etc/passwd", "/etc/passwd", "etc/x.png", "AAAA", " data:x", "DATA:x"),
    ],
)
def test_media_that_an_engine_would_open_or_fetch(url: str) -> None:
    for media in (url, [[Media(url)]], {"url": url}, [("data:x", url)]):
        with pytest.raises(ValueError, match="only as data: URLs"):
            require_usable_media(media, ())


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("ffconcat version 1.0\nfile own.png\n", id="concat"),
        pytest.param("ID3\x04\0\0\0\0\0\x02xxffconcat version 1.0\nfile own.png\n", id="behind a tag"),
        pytest.param("#EXTM3U\n#EXTINF:1,\nown.mp4\n", id="HLS"),
        pytest.param('<mpd profiles="urn:mpeg:DASH:profile:isoff-live:2011">', id="DASH"),
        pytest.param('<?xml version="1.0"?><CompositionPlaylist>', id="IMF"),
    ],
)
def test_a_video_that_is_a_script_of_ffmpeg(script: str) -> None:
    url = f"data:video/mp4;base64,{base64.b64encode(script.encode()).decode()}"
    for media in ([Media(url)], [None, [url]], script.encode(), [bytearray(script.encode())]):
        with pytest.raises(ValueError, match="not a playlist"):
            require_usable_media(media, ())


@pytest.mark.parametrize("end", [",A", ",", "-_", "%41", "A"])
def test_data_that_engines_read_differently_is_refused(end: str) -> None:
    """SGLang reads up to a second comma, and other programs all of it or nothing."""
    script = base64.b64encode(b"ffconcat version 1.0\nfile own\n").decode()
    with pytest.raises(ValueError, match="valid base64"):
        require_usable_media([f"data:audio/mpeg;base64,{script}{end}"], ())


def test_an_error_about_media_says_what_is_taken() -> None:
    error = "The URL must be from one of the allowed domains: ['x.invalid']. Input URL domain: a.example"
    status, answer = asked(Engine(400, {"error": {"message": error}}), "/v1/chat/completions", {})
    assert (status, answer["error"]["code"]) == (400, "media_not_allowed")
    assert "only as data: URLs" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("https://a.example/x.png?y=1", True),
        ("http://a.example:8080", True),
        ("https://b.example/", False),
        ("http://a.example.b.example/", False),
        ("http://a.example@b.example/", False),
        ("http://b.example\\@a.example/", False),
        ("http://b.example#@a.example/", False),
        ("file://a.example/etc/passwd", False),
    ],
)
def test_media_of_hosts_that_the_owner_allows(url: str, taken: bool) -> None:  # noqa: FBT001 - a table's cell
    with nullcontext() if taken else pytest.raises(ValueError, match="only as data: URLs"):
        require_usable_media([url], ["a.example"])
