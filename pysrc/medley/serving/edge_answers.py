"""Write the answers that the edge gives by itself, in the format of the API that a client uses."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

Route = dict[str, Any]
RETRY_AFTER_S = 10
# OpenAI's and Anthropic's words for a status.
# https://platform.openai.com/docs/guides/error-codes https://docs.anthropic.com/en/api/errors
_TYPES: Mapping[str, tuple[str, str]] = {
    "400": ("invalid_request_error", "invalid_request_error"),
    "401": ("invalid_request_error", "authentication_error"),
    "403": ("invalid_request_error", "permission_error"),
    "404": ("invalid_request_error", "not_found_error"),
    "413": ("invalid_request_error", "request_too_large"),
    "421": ("invalid_request_error", "permission_error"),
    "503": ("server_error", "overloaded_error"),
}


def refuse(
    status: str, words: str, *matches: Route, retry_after_s: int | None = None, challenge: bool = False
) -> Iterator[Route]:
    """Refuse what matches, in the format of the API that the client asks."""
    for style in ("anthropic", "openai"):
        of_style: Route = {"path": ["/v1/messages", "/v1/messages/*"]} if style == "anthropic" else {}
        yield {
            "match": [{**match, **of_style} for match in matches],
            "handle": [
                write_error(status, words, style=style, retry_after_s=retry_after_s, challenge=challenge)
            ],
            "terminal": True,
        }


def write_error(
    status: str,
    words: str,
    *,
    style: Literal["openai", "anthropic"] = "openai",
    retry_after_s: int | None = None,
    challenge: bool = False,
) -> Route:
    openai, anthropic = _TYPES.get(status, ("server_error", "api_error"))
    table: dict[str, Any] = (
        {"type": "error", "error": {"type": anthropic, "message": words}}
        if style == "anthropic"
        else {"error": {"message": words, "type": openai, "param": None, "code": None}}
    )
    headers = {
        **({"Retry-After": [str(retry_after_s)]} if retry_after_s else {}),
        **({"WWW-Authenticate": ["Bearer"]} if challenge else {}),
    }
    # Else Go reads up to 256 kB of a body that nobody needs before it answers, for as long as that takes.
    return {**write_json(status, table, headers), "close": True}


def write_json(
    status: str, table: Mapping[str, Any], headers: Mapping[str, list[str]] | None = None
) -> Route:
    return {
        "handler": "static_response",
        "status_code": status,
        "headers": {"Content-Type": ["application/json"], **(headers or {})},
        "body": json.dumps(table),
    }


def write_failure() -> Route:
    """Answer where the engine did not: it starts, it ended, or the client's body was cut off."""
    words = "the model did not answer; it may be starting again"
    return {
        "handle": [
            {
                **write_error("503", words, retry_after_s=RETRY_AFTER_S),
                "status_code": "{http.error.status_code}",
            }
        ]
    }
