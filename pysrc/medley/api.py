"""The OpenAI-style HTTP API of a running server: is it ready, and what does it answer?"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from medley.inside.api_guard import MARK as _MARK
from medley.problem import Problem, in_words

# Ready is when a completion was answered: vLLM's /health says 200 to servers whose first request then fails.
_PROBE_TOKENS = 8
_PROBE_LIMIT_S = 120
_FIRST_TOKEN_LIMIT_S = 300
_LOOK_LIMIT_S = 10


@dataclass(frozen=True)
class Completion:
    text: str
    tokens: int
    seconds: float


def answered(url: str, model: str, key: str | None = None) -> Completion | None:
    """One short completion, or None while nobody listens there yet; a Problem when it is refused."""
    body = {"model": model, "prompt": "Hello", "max_tokens": _PROBE_TOKENS, "temperature": 0}
    began = time.monotonic()
    try:
        limit = httpx.Timeout(_PROBE_LIMIT_S, connect=2)
        answer = httpx.post(
            f"{url}/completions", json=body, timeout=limit, verify=_tls(url), headers=_headers(key)
        )
    except (httpx.ConnectError, httpx.ConnectTimeout):
        return None
    except httpx.HTTPError as error:
        raise Problem(
            "the server took a completion and did not answer",
            cause=in_words(error),
            fix="read the engine's output above; medley serve MODEL -- --enforce-eager often helps",
        ) from error
    if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return None
    _require_ok(answer, model)
    said = answer.json()
    tokens = said["usage"]["completion_tokens"]
    return Completion(said["choices"][0]["text"], tokens, time.monotonic() - began)


@dataclass(frozen=True)
class Speed:
    """How fast an answer came: tokens are those of the answer, as the server counts them."""

    prompt_tokens: int
    tokens: int
    first_token_s: float
    total_s: float

    @property
    def tokens_per_second(self) -> float | None:
        """After the first token, which waits for the prompt; None where there is no second one."""
        rest = self.total_s - self.first_token_s
        return (self.tokens - 1) / rest if self.tokens > 1 and rest > 0 else None


def chat(
    url: str, model: str, text: str, *, max_tokens: int | None, key: str | None = None
) -> Iterator[str | Speed]:
    """The answer to one message, piece by piece, and at the end its Speed."""
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    began = time.monotonic()
    first: float | None = None
    usage: dict[str, int] = {}
    for event in _events(f"{url}/chat/completions", body, key):
        usage = event.get("usage") or usage
        for choice in event.get("choices", ()):
            delta = choice["delta"]
            piece = delta.get("reasoning") or delta.get("reasoning_content") or delta.get("content")
            if piece:
                first = first or time.monotonic() - began
                yield piece
    total = time.monotonic() - began
    yield Speed(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0), first or total, total)


def _events(url: str, body: dict[str, object], key: str | None) -> Iterator[dict[str, Any]]:
    limit = httpx.Timeout(_FIRST_TOKEN_LIMIT_S, connect=5)
    try:
        headers = _headers(key)
        with httpx.stream("POST", url, json=body, timeout=limit, verify=_tls(url), headers=headers) as answer:
            if answer.status_code != httpx.codes.OK:
                answer.read()
                _require_ok(answer, str(body["model"]))
            for line in answer.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield _event(line.removeprefix("data: "))
    except httpx.HTTPError as error:
        raise _unreachable(url, error) from error


def _event(text: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(text)
    if "error" in event:
        raise Problem(
            "the server broke off its answer", cause=str(event["error"])[:500], fix="read the engine's output"
        )
    return event


def base(url: str) -> str:
    """A server's base URL from what people write of it: with or without http:// and /v1."""
    whole = url if "://" in url else f"http://{url}"
    try:
        parsed = httpx.URL(whole)
    except httpx.InvalidURL as error:
        raise Problem(f"{url} is no address", cause=str(error), fix="--url http://HOST:PORT/v1") from error
    return whole.rstrip("/") + ("/v1" if parsed.path in {"", "/"} else "")


def models(url: str, key: str | None = None) -> list[str]:
    """The names a server serves."""
    return [card["id"] for card in cards(url, key)]


def cards(url: str, key: str | None = None) -> list[dict[str, Any]]:
    """What a server says of each model that it serves: `id`, and often `root` and `max_model_len`."""
    try:
        answer = httpx.get(f"{url}/models", timeout=5, verify=_tls(url), headers=_headers(key))
    except httpx.HTTPError as error:
        raise _unreachable(url, error) from error
    _require_ok(answer, "any")
    return list(answer.json()["data"])


def require_guarded(url: str) -> None:
    """Raise a Problem where a server answers strangers: its engine runs without `inside/api_guard.py`."""
    try:
        answer = httpx.get(
            httpx.URL(url).join("/"), headers={"Host": "medley.invalid"}, timeout=_LOOK_LIMIT_S
        )
    except httpx.HTTPError as error:
        raise _unreachable(url, error) from error
    if _MARK.decode() not in answer.headers:
        raise Problem(
            "the engine answers requests that nobody let in",
            cause=f"its server runs without medley's guard: GET / without a key gave {answer.status_code}",
            fix="leave out the engine's flags that change its server (SGLang: --enable-http2), or open it to "
            "everyone: --api-key none",
        )


def _headers(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _tls(url: str) -> bool:
    """Whether certificates matter; to load them takes longer than a request to a server on this host."""
    return url.startswith("https:")


def _unreachable(url: str, error: httpx.HTTPError) -> Problem:
    return Problem(
        f"no server answers at {url}",
        cause=in_words(error),
        fix="start one: medley serve demo (or name where it is: --url http://HOST:PORT/v1)",
    )


def _require_ok(answer: httpx.Response, model: str) -> None:
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise Problem(
            "the server wants another API key",
            cause=f"{answer.status_code}: {message(answer)}",
            fix="medley ask --api-key FILE, or: export OPENAI_API_KEY=…",
        )
    if answer.status_code != httpx.codes.OK:
        raise Problem(
            f"the server refused a request for {model!r}",
            cause=f"{answer.status_code}: {message(answer)}",
            fix=f"see what it serves: curl {answer.url.copy_with(path='/v1/models')}",
        )


def message(answer: httpx.Response) -> str:
    """What a refusal says."""
    try:
        said = answer.json()
        return str(said.get("error", said).get("message", said))[:500]
    except (ValueError, AttributeError):
        return answer.text[:500]
