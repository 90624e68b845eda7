"""Token: the cluster's secret, from its head to who brings another host to it."""

from collections.abc import Callable, Mapping
from typing import Any

from medley import token


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    del asked, note
    return {"token": token.present().read_text(encoding="utf-8").strip()}
