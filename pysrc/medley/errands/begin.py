"""Begin: this host's part in the cluster, as a unit that outlives who asked for it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from medley import lasting, membership, own, ray, store, token, units
from medley.errands import gather
from medley.errands.prepare import Told, prepared
from medley.fabric import End
from medley.part import Part
from medley.ray import Node, Ports
from medley.reasoned import Reasoned
from medley.unit import Restart, Unit
from medley.variables import Variable

_STOP_LIMIT_S = 3
"""Ray ends its parts one after another, and gives each ten seconds; they keep nothing that matters."""


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """What `prepare` is asked, and `role`, `address`, `interface`, `head` (HOST:PORT), `variables`, `token`.

    With `dry` nothing is begun, and the answer is the command and its reasons. A head also gets `gathered`.
    """
    ours = prepared(asked, Told(note))
    secret = token.path() if asked["dry"] else _kept(asked["token"])
    start = _start(ours, asked)
    if asked["dry"]:
        return {"command": str(start.command), "why": start.why()}
    membership.stop()
    store.make(membership.folder())
    end = End(asked["interface"], asked["address"], None, 0)
    membership.note(ours.membership(asked["role"], asked["head"], end, secret))
    after = gather.command(ours, asked["head"], asked["gathered"]) if asked["role"] == "head" else None
    command = replace(start.command, env={**own.variables(), **start.command.env})
    title = f"Ray, {asked['role']} of the cluster at {asked['head']}"
    units.start(
        Unit(membership.UNIT, title, command, Restart(longest_s=30), after, _STOP_LIMIT_S, lasting.VITAL)
    )
    return {}


def _kept(text: str) -> Any:  # noqa: ANN401 - a path
    return token.keep(token.brought(text, "the host that brings this one up"))


def _start(ours: Part, asked: Mapping[str, Any]) -> Reasoned:
    node = Node(asked["address"], ours.slots, ours.threads, ours.memory_bytes)
    wired = (Variable(*each) for each in asked["variables"])
    more = (*ours.settings, *wired, *ours.named(asked["address"]))
    place, ports = ours.place(token.path()), Ports()
    return ours.kept(
        ray.head(place, node, ports, dashboard=False, more=more)
        if asked["role"] == "head"
        else ray.worker(place, node, ports, to=asked["head"], more=more)
    )
