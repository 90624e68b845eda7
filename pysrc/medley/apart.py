"""Apart are hosts whose engines cannot be in one cluster: said before anything starts, with the way round."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from medley.layout.shapes import Link
from medley.layout.wires import LinkOf
from medley.layout.words import listed
from medley.origin import OWN, Origin


def joined(link_of: LinkOf, of: Mapping[str, Origin]) -> LinkOf:
    """The links of those that can be in one cluster; of others, what differs."""

    def link(one: str, other: str) -> Link | str | None:
        differ = of[one].differences(of[other]) if one in of and other in of else []
        return f"cannot be in one cluster: {', '.join(differ)}" if differ else link_of(one, other)

    return link


def warnings(of: Mapping[str, Origin]) -> Iterator[str]:
    """What the user should know of hosts with GPUs that cannot be in one cluster, and the way round."""
    for one, other, differ in _parted(of):
        yield (
            f"{listed(one)} and {listed(other)} cannot be in one cluster: {', '.join(differ)} "
            f"({of[one[0]].name}, {of[other[0]].name}); together they need {_way(of, one, other)}"
        )


def remedies(of: Mapping[str, Origin]) -> Iterator[str]:
    """The same, for who asked for a layout over them."""
    yield from (
        f"{listed(one)} with {listed(other)}: {_way(of, one, other)}" for one, other, _ in _parted(of)
    )
    for names in groups({name: each for name, each in of.items() if each.lacks}):
        upgrade = of[names[0]].upgrade
        yield f"on {listed(names)}: {f'{upgrade}, or ' if upgrade else ''}--image NAME of a newer one"


def _parted(of: Mapping[str, Origin]) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Each two groups of hosts with the same device that cannot be in one cluster, and what differs."""
    found = groups(of)
    alike = ((names[:1], names[1:]) for names in found if len(names) > 1)
    for one, other in (*combinations(found, 2), *alike):
        first, second = of[one[0]], of[other[0]]
        if first.device == second.device and (differ := first.differences(second)):
            yield one, other, differ


def groups(of: Mapping[str, Origin]) -> list[list[str]]:
    """Hosts of one origin, in the order of names."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(of):
        found.setdefault((of[name].name, *of[name].typed, of[name].device), []).append(name)
    return list(found.values())


def _way(of: Mapping[str, Origin], *pair: list[str]) -> str:
    able = dict.fromkeys(each.able for names in pair if (each := of[names[0]]).alone and each.able)
    if able:
        return "; ".join(able)
    ways = [
        f"{upgrade} on {listed(names)}" for names in pair if (upgrade := of[names[0]].upgrade) is not None
    ]
    return " or ".join((*ways, "one image on all of them (--image NAME)"))


def reasons(of: Mapping[str, Origin], used: Iterable[str]) -> Iterator[str]:
    """For a plan: which image its hosts run out of, and who says what is in it."""
    for names in groups({name: of[name] for name in used if name in of}):
        found = of[names[0]]
        if found.image:
            source = f", by {found.source}" if found.source else ""
            unsaid = f"; nobody says which {' and '.join(found.unsaid)} it has" if found.unsaid else ""
            yield f"{listed(names)}: out of the image {found}{source}{unsaid}"
        elif found.name == OWN:
            yield f"{listed(names)}: no lock has this engine for it; VENV is a virtualenv of your own"
