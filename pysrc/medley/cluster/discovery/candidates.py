"""Decide which mentioned hosts `medley init` offers and selects by default; parse the user's selection."""

import re
from collections.abc import Collection, Iterable, Sequence
from ipaddress import IPv4Address

from medley.errors import Problem
from medley.values import Value

_HOST_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_TARGET_PATTERN = re.compile(
    r"(ssh://)?((?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?(?P<host>[^@:]+)(:(?P<port>[0-9]{1,5}))?"
)
_MAX_SOURCES = 4
SSH_PORT = 22
SSH_CONFIG_SOURCE = "ssh config"
_LOCAL_SUFFIXES = (".local", ".lan", ".home", ".home.arpa", ".internal", ".localdomain")


class HostMention(Value):
    """A mention of a host in a file or a neighbor table; `name` is what a user would type."""

    name: str
    source: str
    place: str
    aliases: tuple[str, ...] = ()
    port: int = SSH_PORT
    """The port of sshd; an alias in the ssh config carries its port itself."""
    is_likely: bool = False
    """Whether it is selected by default: a neighbor on a fast link, or `is_likely_alias`."""
    is_announced: bool = False
    """Whether anyone on the network can claim it, so that it neither joins nor names other mentions."""

    @property
    def target(self) -> str:
        return self.name if self.port == SSH_PORT else f"ssh://{self.name}:{self.port}"


def is_valid_host_name(name: str) -> bool:
    return _HOST_NAME_PATTERN.fullmatch(name) is not None


def is_address(word: str) -> bool:
    try:
        IPv4Address(word)
    except ValueError:
        return False
    return True


def is_local_name_or_address(word: str) -> bool:
    """Return whether a host is likely on the local network: it has no public name or address."""
    if is_address(word):
        return IPv4Address(word).is_private
    return "." not in word or word.endswith(_LOCAL_SUFFIXES)


def is_likely_alias(address: str, keywords: Collection[str]) -> bool:
    """Return whether a host of an ssh config is selected by default: local, and not behind a proxy."""
    return is_local_name_or_address(address) and not {"proxyjump", "proxycommand"} & set(keywords)


def split_target(target: str) -> tuple[str | None, str, str | None]:
    """Split a target of ssh into its user, host and port."""
    match = _TARGET_PATTERN.fullmatch(target)
    return (match["user"], match["host"], match["port"]) if match else (None, target, None)


def invalid_name_problem(mention: HostMention) -> Problem:
    return Problem(
        f"{mention.place}: {mention.name[:60]!r} is not a valid host name",
        cause="a name has letters, digits, dots, hyphens and _, at most 63 of them",
        fix=f"fix it in {mention.place}, or name the hosts yourself: medley init HOST HOST",
    )


class HostCandidate(Value):
    """A host that could join the cluster, merged from all its mentions."""

    name: str
    target: str
    sources: tuple[str, ...]
    addresses: tuple[str, ...] = ()
    is_likely: bool = False

    @property
    def description(self) -> str:
        others = [address for address in self.addresses if address != self.name]
        return ", ".join((*self.sources[:_MAX_SOURCES], *others[:1]))


def parse_host(word: str) -> HostCandidate:
    """Parse a host that the user names: HOST, USER@HOST or ssh://USER@HOST:PORT, as ssh takes it."""
    match = _TARGET_PATTERN.fullmatch(word)
    if (
        not match
        or not is_valid_host_name(match["host"])
        or (match["port"] and not word.startswith("ssh://"))
    ):
        raise Problem(
            f"{word[:60]!r} is not a host",
            cause="a host is HOST, USER@HOST or ssh://USER@HOST:PORT, in letters, digits, dots, hyphens, _",
            fix="medley init spark-1 nvidia@192.168.100.11",
        )
    return HostCandidate(match["host"], word, ("you",))


def merge_mentions(
    mentions: Iterable[HostMention], own_name: str, own_addresses: Collection[str]
) -> tuple[tuple[HostCandidate, ...], tuple[Problem, ...]]:
    """Return this host, named `own_name` at `own_addresses`, then all others; and the refused mentions."""
    all_mentions = tuple(mentions)
    problems = tuple(
        invalid_name_problem(mention) for mention in all_mentions if not is_valid_host_name(mention.name)
    )
    valid_mentions = tuple(mention for mention in all_mentions if is_valid_host_name(mention.name))
    own_words = {own_name, f"{own_name}.local", "localhost", "127.0.0.1", "127.0.1.1", *own_addresses}
    groups = _group_mentions(mention for mention in valid_mentions if not mention.is_announced)
    groups = [group for group in groups if not own_words & _list_names_and_addresses(group)]
    for mention in valid_mentions:
        if mention.is_announced and not own_words & _list_names_and_addresses([mention]):
            _add_announced(mention, groups)
    candidates: dict[str, HostCandidate] = {}
    for candidate in map(_merge_group, groups):
        candidates.setdefault(candidate.name, candidate)
    candidates.pop(own_name, None)
    own_candidate = (
        (HostCandidate(own_name, own_name, ("this host",), is_likely=True),)
        if is_valid_host_name(own_name)
        else ()
    )
    return (*own_candidate, *candidates.values()), problems


def select_default(candidates: Sequence[HostCandidate]) -> tuple[HostCandidate, ...]:
    return tuple(candidate for candidate in candidates if candidate.is_likely)


def parse_selection(answer: str, candidates: Sequence[HostCandidate]) -> tuple[HostCandidate, ...]:
    words = answer.replace(",", " ").split()
    selected = tuple(
        dict.fromkeys(_parse_selected_word(word, candidates) for word in words)
    ) or select_default(candidates)
    if not selected:
        raise Problem(
            "no host is selected",
            cause="there is no default",
            fix="type numbers, or names of other hosts",
        )
    return selected


def _parse_selected_word(word: str, candidates: Sequence[HostCandidate]) -> HostCandidate:
    if word.isdecimal():
        if not 0 < int(word) <= len(candidates):
            raise Problem(
                f"{word} is not in the list",
                cause=f"the numbers go from 1 to {len(candidates)}",
                fix="type numbers, names, or both, with a space between them",
            )
        return candidates[int(word) - 1]
    return next((candidate for candidate in candidates if candidate.name == word), None) or parse_host(word)


def _group_mentions(mentions: Iterable[HostMention]) -> list[list[HostMention]]:
    groups: list[list[HostMention]] = []
    for mention in mentions:
        words = _list_names_and_addresses([mention])
        matching = [group for group in groups if words & _list_names_and_addresses(group)]
        if matching:
            matching[0][:] = [*(other for group in matching for other in group), mention]
            groups = [group for group in groups if group is matching[0] or group not in matching]
        else:
            groups.append([mention])
    return groups


def _add_announced(mention: HostMention, groups: list[list[HostMention]]) -> None:
    """Add an announcement to the group that has its name; its address joins no host that others mention."""
    group = next((group for group in groups if mention.target in _list_names_and_addresses(group)), None)
    if group is None:
        groups.append([mention])
    elif all(other.is_announced for other in group):
        group.append(mention)
    else:
        group.append(mention.replace(aliases=()))


def _list_names_and_addresses(group: Iterable[HostMention]) -> set[str]:
    return {word for mention in group for word in (*mention.aliases, mention.target)}


def _merge_group(group: Sequence[HostMention]) -> HostCandidate:
    """Return the candidate of a group; an alias in the ssh config names it, else a name, else an address."""
    best = max(group, key=lambda mention: (mention.source == SSH_CONFIG_SOURCE, not is_address(mention.name)))
    return HostCandidate(
        best.name,
        best.target,
        tuple(dict.fromkeys(mention.source for mention in group)),
        tuple(dict.fromkeys(word for mention in group for word in mention.aliases if is_address(word))),
        is_likely=any(mention.is_likely for mention in group),
    )
