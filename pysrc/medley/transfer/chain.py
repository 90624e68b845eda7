"""A chain is the order in which hosts pass a model on: each takes it from the one before.

All wires then carry the model once in each direction, however many hosts there are.
"""

from collections.abc import Collection, Mapping, Sequence

from medley.problem import Problem


def chain(hosts: Sequence[str], having: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Whom each host that lacks the model asks, first to last: those before it, then others that have it.

    With several that have it there are as many chains, of equal length. A host's sources never ask it.
    """
    heads = [host for host in hosts if host in having]
    lacking = [host for host in hosts if host not in having]
    if not heads:
        raise Problem(
            "no host has the model",
            cause=f"asked were {', '.join(hosts) or 'none'}",
            fix="fetch it on one of them first: hf download ORG/NAME, or copy its folder there",
        )
    found: dict[str, tuple[str, ...]] = {}
    for number, head in enumerate(heads):
        begin, end = (len(lacking) * at // len(heads) for at in (number, number + 1))
        before = (head, *(each for each in heads if each != head))
        own: tuple[str, ...] = ()
        for host in lacking[begin:end]:
            found[host] = (*own, *before)
            own = (host, *own)
    return found
