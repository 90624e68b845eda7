"""A prospect is another host, or this one, that might be in the cluster: all mentions of it in one."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from medley import ssh_config
from medley.mention import Mention, is_address, is_plain, refusal, typed
from medley.problem import Problem

_SOURCES = 2
"""So many are told of each."""


@dataclass(frozen=True)
class Prospect:
    name: str
    target: str
    """What ssh is told."""
    by: tuple[str, ...]
    addresses: tuple[str, ...] = ()
    likely: bool = False

    @property
    def nameless(self) -> bool:
        """Known by an address alone."""
        return is_address(self.name)

    @property
    def shown(self) -> str:
        others = [address for address in self.addresses if address != self.name]
        return ", ".join((*self.by[:_SOURCES], *others[:1]))


def of(mention: Mention) -> Prospect:
    return Prospect(mention.name, mention.target, (mention.by,), likely=mention.likely)


def prospects(
    mentions: Iterable[Mention], here: str, ours: Collection[str]
) -> tuple[tuple[Prospect, ...], tuple[Problem, ...]]:
    """First this host, named `here` and at the addresses `ours`, then all others; and what is refused."""
    every = tuple(mentions)
    refused = tuple(refusal(each) for each in every if not is_plain(each.name))
    groups = _groups(each for each in every if is_plain(each.name))
    own = {here, f"{here}.local", "localhost", "127.0.0.1", "127.0.1.1", *ours}
    others = (_prospect(group) for group in groups if not own & _words(group))
    named: dict[str, Prospect] = {}
    for each in others:
        named.setdefault(each.name, each)
    named.pop(here, None)
    first = (Prospect(here, here, ("this host",), likely=True),) if is_plain(here) else ()
    return (*first, *named.values()), refused


def default(found: Sequence[Prospect]) -> tuple[Prospect, ...]:
    return tuple(each for each in found if each.likely)


def chosen(answer: str, found: Sequence[Prospect]) -> tuple[Prospect, ...]:
    """Those that an answer names: by number, by name, or hosts of which nothing was known."""
    words = answer.replace(",", " ").split()
    picked = tuple(dict.fromkeys(_picked(word, found) for word in words)) or default(found)
    if not picked:
        raise Problem(
            "no host is chosen", cause="none is taken unasked", fix="give numbers, or names of others"
        )
    return picked


def _picked(word: str, found: Sequence[Prospect]) -> Prospect:
    if word.isdecimal():
        if not 0 < int(word) <= len(found):
            raise Problem(
                f"there is no number {word}",
                cause=f"they go from 1 to {len(found)}",
                fix="give numbers, names, or both, with a space between them",
            )
        return found[int(word) - 1]
    return next((each for each in found if each.name == word), None) or of(typed(word))


def _groups(mentions: Iterable[Mention]) -> list[list[Mention]]:
    """Those that share a name or an address are of one host."""
    groups: list[list[Mention]] = []
    for mention in mentions:
        words = _words([mention])
        same = [group for group in groups if words & _words(group)]
        if same:
            same[0][:] = [*(each for group in same for each in group), mention]
            groups = [group for group in groups if group is same[0] or group not in same]
        else:
            groups.append([mention])
    return groups


def _words(group: Iterable[Mention]) -> set[str]:
    return {word for each in group for word in (*each.also, each.target)}


def _prospect(group: Sequence[Mention]) -> Prospect:
    """An alias of ssh's own is the best name, for ssh knows more by it; then any that is no address."""
    best = max(group, key=lambda each: (each.by == ssh_config.BY, not is_address(each.name)))
    return Prospect(
        best.name,
        best.target,
        tuple(dict.fromkeys(each.by for each in group)),
        tuple(dict.fromkeys(_addresses(group))),
        likely=any(each.likely for each in group),
    )


def _addresses(group: Iterable[Mention]) -> Iterator[str]:
    yield from (word for each in group for word in each.also if is_address(word))
