"""A loss is a host or a rank that is gone while a model runs over Ray: found, and told by name."""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from medley import membership
from medley.membership import Membership
from medley.problem import Problem
from medley.spreading import environment

_LOOK_EVERY_S = 2
_ASK_LIMIT_S = 10
_DEAD_LIMIT_S = 25
# As vLLM says it, and inside/sglang_ray.py after it: RayWorkerProc rank=[1] died unexpectedly
_RANK = re.compile(r"rank=\[?(\d+)")


@contextlib.contextmanager
def told_of_loss(found: Membership | None, places: Mapping[int, str]) -> Iterator[None]:
    """An engine that ends because a host is gone: the Problem says so, and names it.

    `places`: the address of each rank, filled once they are known. The engine names a rank that died at once,
    Ray a host that is gone within half a minute.
    """
    try:
        yield
    except Problem as problem:
        lost = _RANK.search(problem.cause)
        address = places.get(int(lost[1])) if lost else None
        gone = _gone(found, address) if found else []
        if not gone:
            raise
        what = f", rank {lost[1]}, is lost" if lost else " is gone"
        raise Problem(
            f"{', '.join(gone)}{what}, and the model with it",
            cause=f"{problem.what}: {problem.cause}",
            fix="serve again over those that medley status shows; bring a host back: medley ray-worker HEAD",
            status=problem.status,
        ) from problem


def _gone(found: Membership, address: str | None) -> list[str]:
    """The host at `address`, by name; without one those that Ray holds for dead, which it sees late."""
    deadline = time.monotonic() + (_ASK_LIMIT_S if address else _DEAD_LIMIT_S)
    while time.monotonic() < deadline:
        with contextlib.suppress(Problem):
            said = membership.ask(environment(found), Path(found.token), "read", found.head)["nodes"]
            living = {node["address"] for node in said if node["alive"]}
            gone = [
                f"{node['name']} ({node['address']})"
                for node in said
                if (node["address"] == address if address else node["address"] not in living)
            ]
            if gone:
                return list(dict.fromkeys(gone))
        time.sleep(_LOOK_EVERY_S)
    return [address] if address else []
