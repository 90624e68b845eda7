"""Decide when a server is ready: when it has answered a request for a few tokens."""

import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import httpx

from medley.errors import Problem, describe_error
from medley.network import http_client
from medley.network.http_client import HttpResponse
from medley.process import Process
from medley.serving.api import require_ok, unexpected_answer_problem
from medley.serving.run_monitors import CHECK_INTERVAL_S, Monitor, check_all

# A server is ready once it answered a completion: vLLM's /health answers 200 even if that fails.
_PROBE_TOKENS = 16
_PROBE_MESSAGES = [{"role": "user", "content": "Hello"}]
# vLLM answers 400 if a model has no chat template, and an engine without the route 404.
_NO_CHAT_STATUSES = {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}
_PROBE_LIMIT_S = 120
EXIT_LIMIT_S = 5
"""The seconds in which an engine ends whose connection broke or which failed."""


def wait_for_completion(
    engine: Process, url: str, model: str, limit_s: float, monitors: Sequence[Monitor]
) -> str | None:
    """Return the first completion, or None if the engine ended instead; raise a Problem after the limit."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if engine.wait(CHECK_INTERVAL_S) is not None:
            return None
        check_all(monitors)
        try:
            completion = request_probe_answer(url, model)
        except Problem:
            # A dying engine breaks the connection first; then its own last error says more.
            if engine.wait(EXIT_LIMIT_S) is not None:
                return None
            raise
        if completion is not None:
            return completion
    raise Problem(
        f"{model} is not ready after {limit_s:g} s",
        cause=(list(engine.last_lines) or ["the engine printed nothing"])[-1][:300],
        fix=f"allow more time: --timeout {max(1800, limit_s * 2):.0f}",
    )


def request_probe_answer(url: str, model: str) -> str | None:
    """Return a short answer, or None while no server listens; raise a Problem if the request is refused.

    The request is a chat; for a model without a chat template it is a completion.
    """
    answer = _send_probe(url, "chat/completions", {"model": model, "messages": _PROBE_MESSAGES})
    if answer and answer.status in _NO_CHAT_STATUSES:
        answer = _send_probe(url, "completions", {"model": model, "prompt": "Hello"})
    if answer is None or answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return None
    require_ok(answer, url, model, None)
    match answer.json():
        case {"usage": {"completion_tokens": int()}, "choices": [{"text": str(text)}, *_]}:
            return text
        case {"usage": {"completion_tokens": int()}, "choices": [{"message": {**reply_message}}, *_]}:
            # A model that reasons first has no content yet.
            reply = (
                reply_message.get("content")
                or reply_message.get("reasoning_content")
                or reply_message.get("reasoning")
            )
            return reply if isinstance(reply, str) else ""
        case _:
            raise unexpected_answer_problem(url, answer.text)


def _send_probe(url: str, path: str, body: dict[str, Any]) -> HttpResponse | None:
    """Request a few tokens; return None while no server listens."""
    body |= {"max_tokens": _PROBE_TOKENS, "temperature": 0}
    try:
        return http_client.send_request(
            "POST", f"{url}/{path}", body=body, limit_s=_PROBE_LIMIT_S, connect_s=2
        )
    except (httpx.ConnectError, httpx.ConnectTimeout):
        return None
    except httpx.HTTPError as error:
        raise Problem(
            "the server accepted a completion and did not answer",
            cause=describe_error(error),
            fix="read the engine's output: medley logs; medley serve MODEL -- --enforce-eager often helps",
        ) from error
