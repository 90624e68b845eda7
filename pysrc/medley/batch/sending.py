"""Sending is a batch's requests going to a server, so many at once, each until it is answered or refused."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from medley import http_client, shaped
from medley.api import message
from medley.batch.book import Book
from medley.batch.lines import Request
from medley.problem import Problem, in_words

_ANSWER_LIMIT_S = 3600
_CONNECT_LIMIT_S = 10
# A server that is gone stays so: what starts it again is another run.
_TRIES = 5
_PAUSE_S = 1.0
_LATER = {httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_MANY_REQUESTS}


@dataclass
class Progress:
    """What this run has done; `seen` is called whenever it changed."""

    total: int
    seen: Callable[["Progress"], None] = lambda _: None
    answered: int = 0
    refused: int = 0
    tokens: int = 0
    """Of the answers."""


@dataclass(frozen=True)
class Answering:
    """A server: its base URL, which ends with /v1, the model's name there, and its key."""

    url: str
    model: str
    key: str | None = None


@dataclass(frozen=True)
class _Run:
    client: httpx.AsyncClient
    server: Answering
    book: Book
    progress: Progress


def send(
    requests: Sequence[Request], book: Book, progress: Progress, server: Answering, *, at_once: int
) -> None:
    """Have all of them answered; a Problem where the server is gone."""
    try:
        asyncio.run(_send(requests, book, progress, server, at_once))
    except* Problem as problems:
        raise problems.exceptions[0] from None


async def _send(
    requests: Sequence[Request], book: Book, progress: Progress, server: Answering, at_once: int
) -> None:
    base = http_client.address(server.url.removesuffix("/v1"))
    limits = httpx.Limits(max_connections=at_once)
    timeout = httpx.Timeout(_ANSWER_LIMIT_S, connect=_CONNECT_LIMIT_S)
    async with httpx.AsyncClient(
        base_url=base,
        headers=http_client.bearer(server.key),
        limits=limits,
        timeout=timeout,
        **http_client.options(base),
    ) as client:
        run, waiting = _Run(client, server, book, progress), iter(requests)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(requests))):
                group.create_task(_worker(run, waiting))


async def _worker(run: _Run, waiting: Iterator[Request]) -> None:
    for request in waiting:
        answer = await _answered(run, request)
        if answer.status_code == httpx.codes.OK:
            body = _body(answer)
            run.book.answer(request, body, answer.headers.get("x-request-id") or str(body.get("id", "")))
            run.progress.answered += 1
            run.progress.tokens += tokens(body)
        else:
            run.book.refuse(request, answer.status_code, message(answer.text))
            run.progress.refused += 1
        run.progress.seen(run.progress)


async def _answered(run: _Run, request: Request) -> httpx.Response:
    """A success, or a refusal that asking again would not change."""
    said = ""
    for attempt in range(_TRIES):
        if attempt:
            await asyncio.sleep(_PAUSE_S * 2 ** (attempt - 1))
        try:
            body = {**request.body, "model": run.server.model}
            answer = await run.client.post(request.url, json=body)
        except httpx.HTTPError as error:
            said = f"{type(error).__name__}: {in_words(error)}"
            continue
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            said = f"{answer.status_code}: {message(answer.text)}"
            break
        if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR and answer.status_code not in _LATER:
            return answer
        said = f"{answer.status_code}: {message(answer.text)}"
    raise Problem(
        "the server does not answer any more",
        cause=f"line {request.number}: {said}",
        fix="see what became of it; the same command then goes on where this one stopped",
    )


def _body(answer: httpx.Response) -> dict[str, Any]:
    found = shaped.loads(answer.text)
    if isinstance(found, dict):
        return found
    raise Problem(
        "the server's answer is no JSON object",
        cause=f"it says {answer.text[:200]!r}",
        fix="name the base of a server that speaks OpenAI's API: --url http://HOST:PORT/v1",
    )


def tokens(body: dict[str, Any]) -> int:
    match body:
        case {"usage": {"completion_tokens": int(tokens)}}:
            return tokens
        case _:
            return 0
