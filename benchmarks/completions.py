"""Ask a server's API for completions, as a client outside of medley does, and check what comes."""

import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SYLLABLES = tuple(left + right for left in "bcdfghjklmnpqrstvwxyz" for right in "aeiou")


@dataclass(frozen=True)
class Answer:
    """What a server sent; `tokens` is None where the stream has not come to its end."""

    status: int
    text: str
    tokens: int | None


def stream(
    port: int,
    body: Mapping[str, object],
    *,
    limit_s: float = 120,
    cut_after: int | None = None,
) -> Answer:
    """Stream one completion; `cut_after` closes the connection after so many pieces."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit_s)
    try:
        more = {"stream": True, "stream_options": {"include_usage": True}}
        connection.request(
            "POST", "/v1/completions", json.dumps({**body, **more}), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            return Answer(answer.status, answer.read().decode(errors="replace"), None)
        return _read(answer, cut_after)
    finally:
        if cut_after is not None and connection.sock:
            connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()


def _read(answer: http.client.HTTPResponse, cut_after: int | None) -> Answer:
    text, tokens, pieces, ended = "", None, 0, False
    for line in answer:
        if not line.startswith(b"data: "):
            continue
        if line.startswith(b"data: [DONE]"):
            ended = True
            continue
        piece = json.loads(line[6:])
        text += "".join(choice["text"] for choice in piece.get("choices", ()))
        tokens = (piece.get("usage") or {}).get("completion_tokens", tokens)
        pieces += 1
        if cut_after is not None and pieces >= cut_after:
            return Answer(answer.status, text, None)
    return Answer(answer.status, text, tokens if ended else None)


def prompt(number: int, words: int) -> str:
    """So many syllables, other ones for each number from the first on.

    The demo model's tokenizer has a token for each.
    """
    digits, rest = [], number
    for _ in range(4):
        rest, digit = divmod(rest, len(_SYLLABLES))
        digits.append(digit)
    order = (*digits, *((number * 31 + place * (7 + number % 11)) for place in range(max(0, words - 4))))
    return "".join(f" {_SYLLABLES[each % len(_SYLLABLES)]}" for each in order[:words])


def context(port: int, limit_s: float = 30) -> int:
    """The longest prompt and answer that the server takes, in tokens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit_s)
    try:
        connection.request("GET", "/v1/models")
        return int(json.load(connection.getresponse())["data"][0]["max_model_len"])
    finally:
        connection.close()


def whole(port: int, body: Mapping[str, object], limit_s: float = 120) -> tuple[int, str]:
    """The status and the text that come for one completion in one piece; `body` may be wrong."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit_s)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


def halves(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The benchmark's own words, and those for `serve`, which follow the first `--`."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]
