"""Connect: which places on other hosts this one reaches."""

import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from medley.problem import in_words

_LIMIT_S = 2.5


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """`asked`: our own `address`, and `places`, each [host, address, port]; which are closed, and why."""
    del note
    own, places = asked["address"], asked["places"]
    with ThreadPoolExecutor(max(1, min(64, len(places)))) as pool:
        said = list(pool.map(lambda place: _refusal(own, place[1], place[2]), places))
    return {"closed": [[*place, why] for place, why in zip(places, said, strict=True) if why]}


def _refusal(own: str, address: str, port: int) -> str | None:
    try:
        socket.create_connection((address, port), timeout=_LIMIT_S, source_address=(own, 0)).close()
    except OSError as error:
        return in_words(error)
    return None
