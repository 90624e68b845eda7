"""Send a batch of requests concurrently, with retries."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from medley import json_shape
from medley.errors import Problem, in_words
from medley.network import http_client
from medley.network.socket_url import read_socket_url
from medley.serving.api import message
from medley.serving.batch import Book, Request

_ANSWER_LIMIT_S = 3600
_CONNECT_LIMIT_S = 10
# A server that is gone stays gone for this run.
_TRIES = 5
_PAUSE_S = 1.0
_LATER = {httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_MANY_REQUESTS}


@dataclass
class BatchProgress:
    """The progress of this run; `seen` is called after each change."""

    total: int
    seen: Callable[["BatchProgress"], None] = lambda _: None
    answered: int = 0
    refused: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class Answering:
    """A server: its base URL, which ends with /v1, the model's name there, and its key."""

    url: str
    model: str
    key: str | None = None


def send(
    requests: Sequence[Request], book: Book, progress: BatchProgress, server: Answering, *, at_once: int
) -> None:
    """Send all requests; raise a Problem where the server is gone."""
    try:
        asyncio.run(_send(requests, book, progress, server, at_once))
    except* Problem as problems:
        raise problems.exceptions[0] from None


async def _send(
    requests: Sequence[Request], book: Book, progress: BatchProgress, server: Answering, at_once: int
) -> None:
    local = read_socket_url(server.url)
    base = http_client.parse_url("http://localhost" if local else server.url.removesuffix("/v1"))
    limits = httpx.Limits(max_connections=at_once)
    how = (
        {"transport": httpx.AsyncHTTPTransport(uds=str(local[0]), limits=limits)}
        if local
        else http_client.choose_client_options(base)
    )
    waiting = iter(requests)

    async def work() -> None:
        for request in waiting:
            answer = await _answered(client, server.model, request)
            if answer.status_code == httpx.codes.OK:
                body = _body(answer)
                book.answer(request, body, answer.headers.get("x-request-id") or str(body.get("id", "")))
                progress.answered += 1
                progress.tokens += tokens(body)
            else:
                book.refuse(request, answer.status_code, message(answer.text))
                progress.refused += 1
            progress.seen(progress)

    client = httpx.AsyncClient(
        base_url=base,
        headers=http_client.build_auth_header(server.key),
        limits=limits,
        timeout=httpx.Timeout(_ANSWER_LIMIT_S, connect=_CONNECT_LIMIT_S),
        **how,
    )
    async with client, asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(requests))):
            group.create_task(work())


async def _answered(client: httpx.AsyncClient, model: str, request: Request) -> httpx.Response:
    """Return a success, or a refusal that a retry would not change."""
    said = ""
    for attempt in range(_TRIES):
        if attempt:
            await asyncio.sleep(_PAUSE_S * 2 ** (attempt - 1))
        try:
            answer = await client.post(request.url, json={**request.body, "model": model})
        except httpx.HTTPError as error:
            said = f"{type(error).__name__}: {in_words(error)}"
            continue
        code = answer.status_code
        if code < httpx.codes.INTERNAL_SERVER_ERROR and code not in {*_LATER, httpx.codes.UNAUTHORIZED}:
            return answer
        said = f"{code}: {message(answer.text)}"
        if code == httpx.codes.UNAUTHORIZED:
            break
    raise Problem(
        "the server does not answer any more",
        cause=f"line {request.number}: {said}",
        fix="check it: medley status; then run this again, which resumes the batch",
    )


def _body(answer: httpx.Response) -> dict[str, Any]:
    if (found := json_shape.table(answer.text)) is not None:
        return found
    raise Problem(
        "the server's answer is not a JSON object",
        cause=f"its answer is {answer.text[:200]!r}",
        fix="give the base URL of a server with OpenAI's API: --url http://HOST:PORT/v1",
    )


def tokens(body: dict[str, Any]) -> int:
    match body:
        case {"usage": {"completion_tokens": int(tokens)}}:
            return tokens
        case _:
            return 0
