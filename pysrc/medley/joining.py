"""Joining is what two hosts must agree on before one takes part in the other's Ray cluster."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from medley.problem import Problem

# Ray itself compares versions, but says so in a log alone, and RAY_IGNORE_VERSION_MISMATCH does not help.
# Libc, machine and what is preloaded may differ between hosts of different kinds, and do.
_ALIKE = {
    "ray": "Ray",
    "python": "Python",
    "engine": "the engine",
}


def terms(parts: Mapping[str, Any], versions: Mapping[str, str], host: str) -> dict[str, Any]:
    """What the head keeps for those who come: its versions, and all that its environment is made of.

    The head adds `address`, its own in the cluster.
    """
    return {"host": host, "parts": dict(parts), "python": parts["python"], **versions}


def require_alike(ours: Mapping[str, Any], heads: Mapping[str, Any] | None, address: str) -> None:
    """A Problem that names both sides, unless this host and the head can share a cluster."""
    if heads is None:
        raise Problem(
            f"the Ray cluster at {address} is not medley's",
            cause="its head keeps no note of what it runs, so nothing can be compared",
            fix="end it there (ray stop), then: medley ray-head",
        )
    _require_same_image(ours, heads)
    differ = list(_differences(ours, heads))
    if differ:
        raise Problem(
            f"this host ({ours['host']}) and the head ({heads['host']}) do not run the same",
            cause="\n".join(differ),
            fix=_fix(ours, heads),
        )


def _fix(ours: Mapping[str, Any], heads: Mapping[str, Any]) -> str:
    if any(side["parts"].get("image") for side in (ours, heads)):
        return "both out of one image (--image NAME), or both without one; a Jetson Orin: docs/orin.md"
    return "use the same medley on both: git pull, or the same flake; then: medley env build"


def _require_same_image(ours: Mapping[str, Any], heads: Mapping[str, Any]) -> None:
    """Two images of one architecture must be the same; of two, what is in them is compared."""
    here, there = (side["parts"].get("image") for side in (ours, heads))
    if not here or not there or here["id"] == there["id"] or set(here["digests"]) & set(there["digests"]):
        return
    if ours["parts"].get("machine") != heads["parts"].get("machine"):
        return
    name = shlex.quote(there["name"])
    raise Problem(
        f"this host ({ours['host']}) and the head ({heads['host']}) do not run the same image",
        cause=f"{here['name']} is {here['id'][:12]} here, {there['name']} is {there['id'][:12]} on the head",
        fix=f"bring the head's: ssh {heads['host']} {there['runtime']} save {name} | {here['runtime']} load; "
        f"then: --image {name}",
    )


def _differences(ours: Mapping[str, Any], heads: Mapping[str, Any]) -> Iterator[str]:
    for key, name in _ALIKE.items():
        if ours.get(key) != heads.get(key):
            yield f"{name} is {ours.get(key)} here and {heads.get(key)} on the head"
    alike = ours["parts"].get("machine") == heads["parts"].get("machine")
    if alike and ours["parts"].get("lock") != heads["parts"].get("lock"):
        here, there = (str(side["parts"].get("lock"))[:12] for side in (ours, heads))
        yield f"the engine environment's lock is {here} here and {there} on the head"
