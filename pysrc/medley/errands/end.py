"""End: everything of medley's that runs on this host, and the files that it needed."""

from collections.abc import Callable, Mapping
from typing import Any

from medley import membership, serving, store, token, units


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """With `part` only its part in a cluster; else what is served too, and what only a cluster needs."""
    ended = 0
    if not asked["part"]:
        ended += serving.end(None, note)
    note("end Ray …")
    ended += membership.stop()
    store.remove(membership.folder())
    if not asked["part"]:
        for file in (
            token.path(),
            *store.state().glob("gathered.json"),
            *store.state().glob("sglang-*.yaml"),
        ):
            file.unlink(missing_ok=True)
        for folder in (units.folder(), serving.folder(), store.state() / "vllm"):
            store.remove(folder)
    return {"ended": ended, "left": sorted(membership.processes())}
