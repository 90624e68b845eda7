"""Send a batch of requests concurrently, with retries."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from medley import json_shape
from medley.errors import Problem, describe_error
from medley.network import http_client
from medley.network.socket_url import read_socket_url
from medley.serving.api import read_error_message
from medley.serving.batch import BatchFiles, Request
from medley.values import Value

_ANSWER_LIMIT_S = 3600
_CONNECT_LIMIT_S = 10
# After so many tries a server counts as ended for this run.
_MAX_TRIES = 5
_RETRY_PAUSE_S = 1.0
_RETRY_STATUSES = {httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_MANY_REQUESTS}


@dataclass
class BatchProgress:
    """The progress of this run; `on_change` is called after each change."""

    total: int
    on_change: Callable[["BatchProgress"], None] = lambda _: None
    answered: int = 0
    refused: int = 0
    tokens: int = 0


class BatchServer(Value):
    """A server: its base URL, which ends with /v1, the model's name there, and its key."""

    url: str
    model: str
    key: str | None = None


def send_batch(
    requests: Sequence[Request],
    files: BatchFiles,
    progress: BatchProgress,
    server: BatchServer,
    *,
    concurrency: int,
) -> None:
    """Send all requests, so many at a time; raise a Problem if the server does not answer any more."""
    try:
        asyncio.run(_send_all(requests, files, progress, server, concurrency))
    except* Problem as problems:
        raise problems.exceptions[0] from None


async def _send_all(
    requests: Sequence[Request],
    files: BatchFiles,
    progress: BatchProgress,
    server: BatchServer,
    concurrency: int,
) -> None:
    socket_and_path = read_socket_url(server.url)
    base = http_client.parse_url("http://localhost" if socket_and_path else server.url.removesuffix("/v1"))
    limits = httpx.Limits(max_connections=concurrency)
    client_options = (
        {"transport": httpx.AsyncHTTPTransport(uds=str(socket_and_path[0]), limits=limits)}
        if socket_and_path
        else http_client.choose_client_options(base)
    )
    remaining = iter(requests)

    async def send_remaining() -> None:
        for request in remaining:
            answer = await _request_answer(client, server.model, request)
            if answer.status_code == httpx.codes.OK:
                body = _parse_body(answer)
                request_id = answer.headers.get("x-request-id") or str(body.get("id", ""))
                files.write_answer(request, body, request_id)
                progress.answered += 1
                progress.tokens += count_tokens(body)
            else:
                files.write_refusal(request, answer.status_code, read_error_message(answer.text))
                progress.refused += 1
            progress.on_change(progress)

    client = httpx.AsyncClient(
        base_url=base,
        headers=http_client.build_auth_header(server.key),
        limits=limits,
        timeout=httpx.Timeout(_ANSWER_LIMIT_S, connect=_CONNECT_LIMIT_S),
        **client_options,
    )
    async with client, asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(requests))):
            group.create_task(send_remaining())


async def _request_answer(client: httpx.AsyncClient, model: str, request: Request) -> httpx.Response:
    """Return a success, or a refusal that a retry would not change."""
    failure = ""
    for attempt in range(_MAX_TRIES):
        if attempt:
            await asyncio.sleep(_RETRY_PAUSE_S * 2 ** (attempt - 1))
        try:
            answer = await client.post(request.url, json={**request.body, "model": model})
        except httpx.HTTPError as error:
            failure = f"{type(error).__name__}: {describe_error(error)}"
            continue
        code = answer.status_code
        if code < httpx.codes.INTERNAL_SERVER_ERROR and code not in {
            *_RETRY_STATUSES,
            httpx.codes.UNAUTHORIZED,
        }:
            return answer
        failure = f"{code}: {read_error_message(answer.text)}"
        if code == httpx.codes.UNAUTHORIZED:
            break
    raise Problem(
        "the server does not answer any more",
        cause=f"line {request.line_number}: {failure}",
        fix="check it: medley status; then run this again, which resumes the batch",
    )


def _parse_body(answer: httpx.Response) -> dict[str, Any]:
    if (body := json_shape.parse_object(answer.text)) is not None:
        return body
    raise Problem(
        "the server's answer is not a JSON object",
        cause=f"its answer is {answer.text[:200]!r}",
        fix="give the base URL of a server with OpenAI's API: --url http://HOST:PORT/v1",
    )


def count_tokens(body: dict[str, Any]) -> int:
    match body:
        case {"usage": {"completion_tokens": int(tokens)}}:
            return tokens
        case _:
            return 0
