"""Merge the mentions of hosts that could join a cluster, and parse the user's choice."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from medley.errors import Problem

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_TARGET = re.compile(
    r"(ssh://)?((?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?(?P<host>[^@:]+)(:(?P<port>[0-9]{1,5}))?"
)
SSH_PORT = 22
BY = "ssh config"
_NEAR = (".local", ".lan", ".home", ".home.arpa", ".internal", ".localdomain")


@dataclass(frozen=True)
class HostMention:
    """Where a host is named; `name` is what a user would type, `also` its other names and addresses."""

    name: str
    by: str
    where: str
    also: tuple[str, ...] = ()
    port: int = SSH_PORT
    """The port of sshd; an alias in the ssh config carries its port itself."""
    likely: bool = False
    """Whether it is selected by default."""

    @property
    def target(self) -> str:
        return self.name if self.port == SSH_PORT else f"ssh://{self.name}:{self.port}"


def is_plain(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None


def is_address(word: str) -> bool:
    try:
        IPv4Address(word)
    except ValueError:
        return False
    return True


def is_near(word: str) -> bool:
    """Whether a host is likely on the local network: it has no public name or address."""
    if is_address(word):
        return IPv4Address(word).is_private
    return "." not in word or word.endswith(_NEAR)


def parts(target: str) -> tuple[str | None, str, str | None]:
    """Split a target of ssh into its user, host and port."""
    found = _TARGET.fullmatch(target)
    return (found["user"], found["host"], found["port"]) if found else (None, target, None)


def refusal(mention: HostMention) -> Problem:
    return Problem(
        f"{mention.where}: {mention.name[:60]!r} is not a valid host name",
        cause="a name has letters, digits, dots, hyphens and _, at most 63 of them",
        fix=f"fix it in {mention.where}, or name the hosts yourself: medley init HOST HOST",
    )


@dataclass(frozen=True)
class HostCandidate:
    name: str
    target: str
    by: tuple[str, ...]
    addresses: tuple[str, ...] = ()
    likely: bool = False

    @property
    def shown(self) -> str:
        others = [address for address in self.addresses if address != self.name]
        return ", ".join((*self.by[:2], *others[:1]))


def typed_host(word: str) -> HostCandidate:
    """Parse a host that the user names: HOST, USER@HOST or ssh://USER@HOST:PORT, as ssh takes it."""
    found = _TARGET.fullmatch(word)
    if not found or not is_plain(found["host"]) or (found["port"] and not word.startswith("ssh://")):
        raise Problem(
            f"{word[:60]!r} is not a host",
            cause="a host is HOST, USER@HOST or ssh://USER@HOST:PORT, in letters, digits, dots, hyphens, _",
            fix="medley init spark-1 nvidia@192.168.100.11",
        )
    return HostCandidate(found["host"], word, ("you",))


def host_candidates(
    mentions: Iterable[HostMention], here: str, ours: Collection[str]
) -> tuple[tuple[HostCandidate, ...], tuple[Problem, ...]]:
    """Return this host, named `here` at the addresses `ours`, then all others; and the refused mentions."""
    every = tuple(mentions)
    refused = tuple(refusal(each) for each in every if not is_plain(each.name))
    groups = _groups(each for each in every if is_plain(each.name))
    own = {here, f"{here}.local", "localhost", "127.0.0.1", "127.0.1.1", *ours}
    others = (_merged(group) for group in groups if not own & _words(group))
    named: dict[str, HostCandidate] = {}
    for each in others:
        named.setdefault(each.name, each)
    named.pop(here, None)
    first = (HostCandidate(here, here, ("this host",), likely=True),) if is_plain(here) else ()
    return (*first, *named.values()), refused


def default_choice(found: Sequence[HostCandidate]) -> tuple[HostCandidate, ...]:
    return tuple(each for each in found if each.likely)


def chosen_hosts(answer: str, found: Sequence[HostCandidate]) -> tuple[HostCandidate, ...]:
    words = answer.replace(",", " ").split()
    picked = tuple(dict.fromkeys(_picked(word, found) for word in words)) or default_choice(found)
    if not picked:
        raise Problem(
            "no host is selected",
            cause="there is no default",
            fix="type numbers, or names of other hosts",
        )
    return picked


def _picked(word: str, found: Sequence[HostCandidate]) -> HostCandidate:
    if word.isdecimal():
        if not 0 < int(word) <= len(found):
            raise Problem(
                f"{word} is not in the list",
                cause=f"the numbers go from 1 to {len(found)}",
                fix="type numbers, names, or both, with a space between them",
            )
        return found[int(word) - 1]
    return next((each for each in found if each.name == word), None) or typed_host(word)


def _groups(mentions: Iterable[HostMention]) -> list[list[HostMention]]:
    groups: list[list[HostMention]] = []
    for mention in mentions:
        words = _words([mention])
        same = [group for group in groups if words & _words(group)]
        if same:
            same[0][:] = [*(each for group in same for each in group), mention]
            groups = [group for group in groups if group is same[0] or group not in same]
        else:
            groups.append([mention])
    return groups


def _words(group: Iterable[HostMention]) -> set[str]:
    return {word for each in group for word in (*each.also, each.target)}


def _merged(group: Sequence[HostMention]) -> HostCandidate:
    """Take the alias in the ssh config as its name, else any name that is not an address."""
    best = max(group, key=lambda each: (each.by == BY, not is_address(each.name)))
    return HostCandidate(
        best.name,
        best.target,
        tuple(dict.fromkeys(each.by for each in group)),
        tuple(dict.fromkeys(word for each in group for word in each.also if is_address(word))),
        likely=any(each.likely for each in group),
    )
