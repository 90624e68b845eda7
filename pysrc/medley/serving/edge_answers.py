"""Write the answers that the edge gives by itself, in the format of the API that a client uses."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

Route = dict[str, Any]
RETRY_AFTER_S = 10
# OpenAI's and Anthropic's words for a status.
# https://platform.openai.com/docs/guides/error-codes https://docs.anthropic.com/en/api/errors
_ERROR_TYPES: Mapping[str, tuple[str, str]] = {
    "400": ("invalid_request_error", "invalid_request_error"),
    "401": ("invalid_request_error", "authentication_error"),
    "403": ("invalid_request_error", "permission_error"),
    "404": ("invalid_request_error", "not_found_error"),
    "413": ("invalid_request_error", "request_too_large"),
    "421": ("invalid_request_error", "permission_error"),
    "503": ("server_error", "overloaded_error"),
}


def list_refusal_routes(
    status: str, message: str, *matches: Route, retry_after_s: int | None = None, has_challenge: bool = False
) -> Iterator[Route]:
    """Yield routes that refuse matching requests, in the error format of the path's API."""
    for api in ("anthropic", "openai"):
        path_matcher: Route = {"path": ["/v1/messages", "/v1/messages/*"]} if api == "anthropic" else {}
        yield {
            "match": [{**match, **path_matcher} for match in matches],
            "handle": [
                build_error_handler(
                    status, message, api=api, retry_after_s=retry_after_s, has_challenge=has_challenge
                )
            ],
            "terminal": True,
        }


def build_error_handler(
    status: str,
    message: str,
    *,
    api: Literal["openai", "anthropic"] = "openai",
    retry_after_s: int | None = None,
    has_challenge: bool = False,
) -> Route:
    openai, anthropic = _ERROR_TYPES.get(status, ("server_error", "api_error"))
    table: dict[str, Any] = (
        {"type": "error", "error": {"type": anthropic, "message": message}}
        if api == "anthropic"
        else {"error": {"message": message, "type": openai, "param": None, "code": None}}
    )
    headers = {
        **({"Retry-After": [str(retry_after_s)]} if retry_after_s else {}),
        **({"WWW-Authenticate": ["Bearer"]} if has_challenge else {}),
    }
    # Without `close`, Go first reads up to 256 kB of the refused body, however slowly the client sends it.
    return {**build_json_handler(status, table, headers), "close": True}


def build_json_handler(
    status: str, table: Mapping[str, Any], headers: Mapping[str, list[str]] | None = None
) -> Route:
    return {
        "handler": "static_response",
        "status_code": status,
        "headers": {"Content-Type": ["application/json"], **(headers or {})},
        "body": json.dumps(table),
    }


def build_failure_route() -> Route:
    """Return the route for unanswered requests: the engine starts or ended, or the body was cut off."""
    message = "the model did not answer; it may be starting again"
    return {
        "handle": [
            {
                **build_error_handler("503", message, retry_after_s=RETRY_AFTER_S),
                "status_code": "{http.error.status_code}",
            }
        ]
    }
