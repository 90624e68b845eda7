"""Ask an OpenAI-style server: readiness, chat, list of models."""

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx

from medley import json_shape
from medley.credentials import API_KEY_VARIABLE
from medley.errors import Problem, in_words
from medley.network import http_client
from medley.network.http_client import Response, build_auth_header, no_answer_problem, pipe_bearer
from medley.network.socket_url import read_socket_url

# Ready is when a completion was answered: vLLM's /health says 200 to servers whose first request then fails.
_PROBE_TOKENS = 16
_HELLO = [{"role": "user", "content": "Hello"}]
# vLLM answers 400 where a model has no chat template; an engine without the route 404.
_NO_CHAT = {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}
_PROBE_LIMIT_S = 120
_FIRST_TOKEN_LIMIT_S = 300
_LEAST_PIECES, _LEAST_S = 3, 0.3


def answered(url: str, model: str) -> str | None:
    """Return a short answer, or None while no server listens; raise a Problem when it is refused.

    It is a chat through the model's template; a model without one completes a text.
    """
    answer = _probed(url, "chat/completions", {"model": model, "messages": _HELLO})
    if answer and answer.status in _NO_CHAT:
        answer = _probed(url, "completions", {"model": model, "prompt": "Hello"})
    if answer is None or answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return None
    _require_ok(answer, url, model, None)
    match answer.json():
        case {"usage": {"completion_tokens": int()}, "choices": [{"text": str(text)}, *_]}:
            return text
        case {"usage": {"completion_tokens": int()}, "choices": [{"message": {**message}}, *_]}:
            # A model that thinks first has not said anything yet.
            told = message.get("content") or message.get("reasoning_content") or message.get("reasoning")
            return told if isinstance(told, str) else ""
        case _:
            raise _odd(url, answer.text)


def _probed(url: str, path: str, body: dict[str, Any]) -> Response | None:
    """Ask for a few tokens; None while no server listens."""
    body |= {"max_tokens": _PROBE_TOKENS, "temperature": 0}
    try:
        return http_client.ask("POST", f"{url}/{path}", body=body, limit_s=_PROBE_LIMIT_S, connect_s=2)
    except (httpx.ConnectError, httpx.ConnectTimeout):
        return None
    except httpx.HTTPError as error:
        raise Problem(
            "the server accepted a completion and did not answer",
            cause=in_words(error),
            fix="read the engine's output: medley logs; medley serve MODEL -- --enforce-eager often helps",
        ) from error


@dataclass(frozen=True)
class AnswerSpeed:
    """The speed of an answer; tokens as the server counts them."""

    prompt_tokens: int
    tokens: int
    first_token_s: float
    total_s: float
    pieces: int
    cut: bool = False
    """Whether it ended at the limit of tokens."""

    @property
    def tokens_per_second(self) -> float | None:
        """The speed after the first token, which waits for the prompt; None without a second one.

        It is that of the whole time if the answer came at once: in fewer than 3 pieces, or within 0.3 s of
        the first one.
        """
        rest = self.total_s - self.first_token_s
        if self.pieces >= _LEAST_PIECES and rest >= _LEAST_S:
            return (self.tokens - 1) / rest
        return self.tokens / self.total_s if self.tokens > 1 else None


class Thought(str):
    """A piece of what a model writes before its answer."""

    __slots__ = ()


def chat(
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
    began, first, usage, count, cut = time.monotonic(), 0.0, (0, 0), 0, False
    for event in _events(f"{url}/chat/completions", body, key):
        match event:
            case {"usage": {"prompt_tokens": int(asked), "completion_tokens": int(tokens)}}:
                usage = asked, tokens
            case {"choices": [{"finish_reason": "length"}, *_]}:
                cut = True
            case _:
                pass
        for piece in _pieces(event):
            first, count = first or time.monotonic() - began, count + 1
            yield piece
    total = time.monotonic() - began
    yield AnswerSpeed(*usage, first or total, total, count, cut)


def _pieces(event: dict[str, Any]) -> Iterator[str]:
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict):
            thought = delta.get("reasoning") or delta.get("reasoning_content")
            piece = thought or delta.get("content")
            if piece and isinstance(piece, str):
                yield Thought(piece) if thought else piece


def _events(url: str, body: dict[str, object], key: str | None) -> Iterator[dict[str, Any]]:
    answer = http_client.stream_lines(
        "POST", url, body=body, limit_s=_FIRST_TOKEN_LIMIT_S, headers=build_auth_header(key)
    )
    try:
        with answer as (status, lines):
            if status != HTTPStatus.OK:
                _require_ok(Response(status, {}, "\n".join(lines)), url, str(body["model"]), key)
            for line in lines:
                if line.startswith("data: ") and line != "data: [DONE]":
                    event = json_shape.table(line.removeprefix("data: "))
                    if event is None:
                        raise _odd(url, line.removeprefix("data: "))
                    if "error" in event:
                        cause = str(event["error"])[:500]
                        fix = "read the engine's output"
                        raise Problem("the server aborted its answer", cause=cause, fix=fix)
                    yield event
    except httpx.HTTPError as error:
        raise no_answer_problem(url, error) from error


def base(url: str) -> str:
    """Complete a server's base URL, given with or without http:// and /v1."""
    parsed = http_client.parse_url(url if "://" in url else f"http://{url}")
    return f"{parsed}".rstrip("/") + ("/v1" if parsed.path in {"", "/"} else "")


def models(url: str, key: str | None = None) -> list[str]:
    return [card["id"] for card in cards(url, key)]


def cards(url: str, key: str | None = None) -> list[dict[str, Any]]:
    """Return a server's models: `id`, and often `root` and `max_model_len`."""
    try:
        answer = http_client.ask("GET", f"{url}/models", limit_s=5, headers=build_auth_header(key))
    except httpx.HTTPError as error:
        raise no_answer_problem(url, error) from error
    _require_ok(answer, url, "any", key)
    match answer.json():
        case {"data": [*found]} if all(isinstance(each, dict) for each in found):
            for each in found:
                if not isinstance(each.get("id"), str):
                    raise _odd(url, str(each))
            kinds = {"id": str, "root": str, "max_model_len": int}
            return [{k: each[k] for k in kinds if isinstance(each.get(k), kinds[k])} for each in found]
        case _:
            raise _odd(url, answer.text)


def _require_ok(answer: Response, url: str, model: str, key: str | None) -> None:
    said = f"{answer.status}: {message(answer.text)}"
    if answer.status == HTTPStatus.UNAUTHORIZED:
        raise Problem(
            f"the server requires {'another' if key else 'an'} API key",
            cause=said,
            fix="name a file with the key: --api-key FILE",
        )
    if answer.status != HTTPStatus.OK:
        raise Problem(
            f"the server refused a request for {model!r}",
            cause=said,
            fix=f"list its models: {_list_command(url, key)}",
        )


def _list_command(url: str, key: str | None) -> str:
    if read_socket_url(url):
        return "medley status"
    typed = f"curl {http_client.parse_url(url).copy_with(path='/v1/models')}"
    return f"{pipe_bearer(f'${API_KEY_VARIABLE}')}{typed} -H @-" if key else typed


def _odd(url: str, text: str) -> Problem:
    return Problem(
        f"{url} does not answer like OpenAI's API",
        cause="its answer is a web page" if text.lstrip()[:1] == "<" else f"its answer is {text[:200]!r}",
        fix="give the base URL of such a server: --url http://HOST:PORT/v1",
    )


def message(text: str) -> str:
    match json_shape.loads(text):
        case {"error": {"message": str(said)}} | {"message": str(said)} | {"error": str(said)}:
            return said[:500]
        case _:
            return text[:500]
