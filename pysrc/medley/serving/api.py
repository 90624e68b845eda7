"""Send requests to an OpenAI-compatible server: chat, list of models."""

import time
from collections.abc import Generator, Iterator
from http import HTTPStatus
from typing import Any

import httpx

from medley import json_shape
from medley.credentials import API_KEY_VARIABLE
from medley.errors import Problem
from medley.network import http_client
from medley.network.http_client import (
    HttpResponse,
    build_auth_header,
    build_missing_answer_problem,
    format_bearer_pipe,
)
from medley.network.socket_url import read_socket_url
from medley.values import Value

_FIRST_TOKEN_LIMIT_S = 300
_MIN_STREAMED_PIECES, _MIN_STREAM_S = 3, 0.3


class AnswerSpeed(Value):
    """The length and the duration of an answer; the server counts its tokens."""

    prompt_tokens: int
    answer_tokens: int
    first_token_s: float
    total_s: float
    piece_count: int
    is_truncated: bool = False
    """Whether the answer ended at the limit of tokens."""

    @property
    def tokens_per_second(self) -> float | None:
        """The tokens/s after the first token, because that one waits for the prompt; None for a single token.

        If the answer was not streamed, in fewer than 3 pieces or within 0.3 s, it is that of the whole time.
        """
        rest = self.total_s - self.first_token_s
        if self.piece_count >= _MIN_STREAMED_PIECES and rest >= _MIN_STREAM_S:
            return (self.answer_tokens - 1) / rest
        return self.answer_tokens / self.total_s if self.answer_tokens > 1 else None


class ReasoningText(str):
    """A piece of a model's reasoning, which comes before its answer."""

    __slots__ = ()


def stream_chat(
    url: str, model: str, messages: list[dict[str, str]], *, max_tokens: int | None, key: str | None = None
) -> Generator[str | AnswerSpeed, None, None]:
    """Yield the answer to these messages piece by piece, and at the end its speed."""
    body: dict[str, object] = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({} if max_tokens is None else {"max_tokens": max_tokens}),
    }
    started_s, first_token_s, usage, piece_count, is_truncated = time.monotonic(), 0.0, (0, 0), 0, False
    for event in _stream_events(f"{url}/chat/completions", body, key):
        match event:
            case {"usage": {"prompt_tokens": int(prompt_tokens), "completion_tokens": int(answer_tokens)}}:
                usage = prompt_tokens, answer_tokens
            case {"choices": [{"finish_reason": "length"}, *_]}:
                is_truncated = True
            case _:
                pass
        for piece in _list_text_pieces(event):
            first_token_s, piece_count = first_token_s or time.monotonic() - started_s, piece_count + 1
            yield piece
    total_s = time.monotonic() - started_s
    yield AnswerSpeed(*usage, first_token_s or total_s, total_s, piece_count, is_truncated)


def _list_text_pieces(event: dict[str, Any]) -> Iterator[str]:
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict):
            reasoning = delta.get("reasoning") or delta.get("reasoning_content")
            piece = reasoning or delta.get("content")
            if piece and isinstance(piece, str):
                yield ReasoningText(piece) if reasoning else piece


def _stream_events(url: str, body: dict[str, object], key: str | None) -> Iterator[dict[str, Any]]:
    answer = http_client.stream_lines(
        "POST", url, body=body, limit_s=_FIRST_TOKEN_LIMIT_S, headers=build_auth_header(key)
    )
    try:
        with answer as (status, lines):
            if status != HTTPStatus.OK:
                require_ok(HttpResponse(status, {}, "\n".join(lines)), url, str(body["model"]), key)
            for line in lines:
                if line.startswith("data: ") and line != "data: [DONE]":
                    event = json_shape.parse_object(line.removeprefix("data: "))
                    if event is None:
                        raise unexpected_answer_problem(url, line.removeprefix("data: "))
                    if "error" in event:
                        cause = str(event["error"])[:500]
                        fix = "read the engine's output"
                        raise Problem("the server aborted its answer", cause=cause, fix=fix)
                    yield event
    except httpx.HTTPError as error:
        raise build_missing_answer_problem(url, error) from error


def complete_url(url: str) -> str:
    """Complete a server's base URL, given with or without http:// and /v1."""
    parsed = http_client.parse_url(url if "://" in url else f"http://{url}")
    return f"{parsed}".rstrip("/") + ("/v1" if parsed.path in {"", "/"} else "")


def list_models(url: str, key: str | None = None) -> list[str]:
    return [card["id"] for card in list_model_cards(url, key)]


def list_model_cards(url: str, key: str | None = None) -> list[dict[str, Any]]:
    """Return a server's models: `id`, and often `root` and `max_model_len`."""
    try:
        answer = http_client.send_request("GET", f"{url}/models", limit_s=5, headers=build_auth_header(key))
    except httpx.HTTPError as error:
        raise build_missing_answer_problem(url, error) from error
    require_ok(answer, url, "any", key)
    match answer.json():
        case {"data": [*entries]} if all(isinstance(card, dict) for card in entries):
            for card in entries:
                if not isinstance(card.get("id"), str):
                    raise unexpected_answer_problem(url, str(card))
            types = {"id": str, "root": str, "max_model_len": int}
            return [
                {
                    key_name: card[key_name]
                    for key_name in types
                    if isinstance(card.get(key_name), types[key_name])
                }
                for card in entries
            ]
        case _:
            raise unexpected_answer_problem(url, answer.text)


def require_ok(answer: HttpResponse, url: str, model: str, key: str | None) -> None:
    cause = f"{answer.status}: {read_error_message(answer.text)}"
    if answer.status == HTTPStatus.UNAUTHORIZED:
        raise Problem(
            f"the server requires {'another' if key else 'an'} API key",
            cause=cause,
            fix="name a file with the key: --api-key FILE",
        )
    if answer.status != HTTPStatus.OK:
        raise Problem(
            f"the server refused a request for {model!r}",
            cause=cause,
            fix=f"list its models: {_format_list_command(url, key)}",
        )


def _format_list_command(url: str, key: str | None) -> str:
    if read_socket_url(url):
        return "medley status"
    command = f"curl {http_client.parse_url(url).copy_with(path='/v1/models')}"
    return f"{format_bearer_pipe(f'${API_KEY_VARIABLE}')}{command} -H @-" if key else command


def unexpected_answer_problem(url: str, text: str) -> Problem:
    return Problem(
        f"{url} does not answer like OpenAI's API",
        cause="its answer is a web page" if text.lstrip()[:1] == "<" else f"its answer is {text[:200]!r}",
        fix="give the base URL of such a server: --url http://HOST:PORT/v1",
    )


def read_error_message(text: str) -> str:
    match json_shape.parse_json(text):
        case (
            {"error": {"message": str(error_text)}}
            | {"message": str(error_text)}
            | {"error": str(error_text)}
        ):
            return error_text[:500]
        case _:
            return text[:500]
