"""Judge HTTP requests by their headers: their key, where they come from, and whether they cost anything."""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any

Message = MutableMapping[str, Any]

_DIGITS = 20
_ORIGIN = re.compile(rb"https?://([^/]*)", re.IGNORECASE)
_PAGE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)
_BEARER = re.compile(rb"bearer +(\S+) *", re.IGNORECASE)


def is_loopback(address: str) -> bool:
    name = address.strip("[]").lower()
    try:
        found = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return bool((getattr(found, "ipv4_mapped", None) or found).is_loopback)


def gives(headers: list[tuple[bytes, bytes]], key: str) -> bool:
    """Check for the key, and no other, in the headers of OpenAI's or Anthropic's clients."""
    bearers = (_BEARER.fullmatch(value) for name, value in headers if name == b"authorization")
    given = [found[1] if found else b"" for found in bearers]
    given += [value for name, value in headers if name == b"x-api-key"]
    wanted = hashlib.sha256(key.encode()).digest()
    # Of hashes, so that not even its length shows in the time that it takes.
    return bool(given) and all(hmac.compare_digest(hashlib.sha256(each).digest(), wanted) for each in given)


def proof(key: str, nonce: bytes) -> bytes:
    """Prove to a client that this server has the key, before the client gives it."""
    return hmac.digest(key.encode(), b"medley guard " + nonce, "sha256").hex().encode()


def length(headers: list[tuple[bytes, bytes]]) -> int:
    """Return the body's length by its header, else 0."""
    said = [value for name, value in headers if name == b"content-length"]
    return max((int(each) for each in said if each.isdigit() and len(each) < _DIGITS), default=0)


def needs_no_key(scope: Message) -> bool:
    """Allow /health, and a browser's preflight, which engines answer before any route."""
    if scope["type"] != "http":
        return False
    if scope["method"] == "OPTIONS":
        return {b"origin", b"access-control-request-method"} <= {name for name, _ in scope["headers"]}
    return scope["path"] == "/health" and scope["method"] in {"GET", "HEAD"}


def costs_nothing(scope: Message) -> bool:
    """Allow what a closed gate lets through: health, metrics, a browser's preflight."""
    return needs_no_key(scope) or (scope["path"] == "/metrics" and scope.get("method") == "GET")


def foreign(headers: list[tuple[bytes, bytes]]) -> tuple[HTTPStatus, str] | None:
    """Refuse a browser that another site's page sends to this host's loopback, by its own name or by ours."""
    hosts = [_host(value) for name, value in headers if name == b"host"]
    origins = [_ORIGIN.fullmatch(value) for name, value in headers if name == b"origin"]
    advice = (
        "without a key this server answers only http://127.0.0.1 on its own host: medley serve --api-key FILE"
    )
    if any(not is_loopback(host) for host in hosts) or len(hosts) > 1:
        return HTTPStatus.MISDIRECTED_REQUEST, advice
    if any(not found or not is_loopback(_host(found[1])) for found in origins) or _from_page(headers):
        return HTTPStatus.FORBIDDEN, advice
    return None


def _from_page(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a browser asks for another site's page: for a picture, for example, it sends no Origin."""
    if sites := {value.lower() for name, value in headers if name == b"sec-fetch-site"}:
        return not sites <= {b"same-origin", b"none"}
    pages = [_PAGE.match(value) for name, value in headers if name == b"referer"]
    return any(not found or not is_loopback(_host(found[1])) for found in pages)


def _host(value: bytes) -> str:
    text = value.decode("latin-1")
    return text[: text.find("]") + 1] if text.startswith("[") else text.partition(":")[0]
