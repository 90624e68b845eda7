"""A case is made of what hosts answered: their facts, conditions, kinds, and the fabric they would have."""

from collections.abc import Callable, Mapping
from typing import Any

from medley import facts
from medley.cluster import Member
from medley.condition import condition
from medley.doctor.shapes import GROUP, Case, Host
from medley.fabric import Fabric, Wishes, fabric
from medley.kind import Kind
from medley.problem import Problem
from medley.transcript import Transcript

_PAIR = 2
KindOf = Callable[[facts.Facts, str | None], Kind]


def host(
    name: str,
    answers: Transcript,
    kind_of: KindOf,
    *,
    member: Member | None = None,
    told: Mapping[str, Any] | None = None,
) -> Host:
    """`kind_of` knows the tables of kinds."""
    found, member = facts.facts(answers), member or Member()
    kind, trouble = None, None
    try:
        kind = kind_of(found, member.kind)
    except Problem as problem:
        trouble = problem
    return Host(name, found, condition(answers), kind, trouble, member, told or {})


def case(hosts: Mapping[str, Host], wishes: Wishes | None = None, **more: Any) -> Case:  # noqa: ANN401 - the case's own
    """With the wire of those that share one; without which the others would, is named."""
    wishes = wishes or Wishes()
    found, apart = _wired(
        {name: each.facts for name, each in hosts.items() if each.facts.net.links}, wishes, more.get("head")
    )
    return Case(hosts, wishes, found, apart, **more)


def _wired(
    hosts: Mapping[str, facts.Facts], wishes: Wishes, head: str | None
) -> tuple[Fabric | None, dict[str, Problem]]:
    if len(hosts) < _PAIR:
        return None, {}
    try:
        return fabric(hosts, wishes), {}
    except Problem as problem:
        for name in hosts:
            rest = {other: each for other, each in hosts.items() if other != name}
            if name == head or len(rest) < _PAIR or not _agree(rest, wishes):
                continue
            return fabric(rest, wishes), {name: problem}
        return None, {GROUP: problem}


def _agree(hosts: Mapping[str, facts.Facts], wishes: Wishes) -> bool:
    try:
        fabric(hosts, wishes)
    except Problem:
        return False
    return True
