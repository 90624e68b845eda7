"""Find mentions of hosts in ssh's files and the kernel's neighbors, of which candidates.py chooses.

No address is scanned: the kernel's neighbor table is read, and avahi lists hosts that announce ssh.
"""

import glob
import re
import shlex
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from medley import process, user
from medley.cluster.discovery.candidates import (
    SSH_CONFIG_SOURCE,
    SSH_PORT,
    HostCandidate,
    HostMention,
    is_address,
    is_likely_alias,
    merge_mentions,
)
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import Facts
from medley.host.kind import load_answers
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.endpoints import find_endpoint_candidates
from medley.network.fabric.speed import FAST_MBIT
from medley.transcript import Transcript, read_json_objects, read_lines
from medley.values import Value

NEIGHBOR_COMMAND = "ip -json -4 neigh show"
ANNOUNCED_COMMAND = "avahi-browse --parsable --terminate --resolve --no-db-lookup _ssh._tcp"
NEIGHBOR_COMMANDS = (NEIGHBOR_COMMAND, ANNOUNCED_COMMAND)
_PRESENT_STATES = {"REACHABLE", "STALE", "DELAY", "PROBE"}
"""The states of neighbors that answered lately; in DELAY and PROBE the kernel asks a stale one again."""
_ESCAPE_PATTERN = re.compile(r"\\(\d{3})")
_PATTERN_CHARS = set("*?!")
_UNUSABLE_PREFIXES = ("|", "@", "#")
"""The beginnings of lines of known_hosts without a readable name: hashed names, markers, comments."""
_MIN_KNOWN_HOSTS_FIELDS = 3
_MAX_INCLUDE_DEPTH = 16
_MAX_LINE_CHARS = 16_384
ReadIncluded = Callable[[str], Iterable[tuple[str, str]]]


class CandidateSearch(Value):
    """The hosts that a search found, with problems of mentions and the searched places."""

    candidates: tuple[HostCandidate, ...]
    problems: tuple[Problem, ...]
    places: tuple[str, ...]


def find_candidates() -> CandidateSearch:
    own_facts = facts.read_facts(load_answers())
    interfaces = tuple(find_neighbor_links(own_facts))
    neighbors = list_neighbors(process.ask_host(NEIGHBOR_COMMANDS), own_facts)
    own_addresses = [address.ip for link in own_facts.net.links for address in link.addresses]
    mentions = (*list_ssh_mentions(), *neighbors)
    candidates, problems = merge_mentions(mentions, socket.gethostname().partition(".")[0], own_addresses)
    places = ("~/.ssh/config", "~/.ssh/known_hosts", *(f"the neighbors on {link}" for link in interfaces))
    return CandidateSearch(candidates, problems, places)


def list_ssh_mentions() -> Iterator[HostMention]:
    folder = user.find_home() / ".ssh"
    for _, text in _read_file(folder / "config"):
        yield from parse_ssh_config(text, "~/.ssh/config", _read_included)
    for _, text in _read_file(folder / "known_hosts"):
        yield from parse_known_hosts(text, "~/.ssh/known_hosts")


def _read_included(pattern: str) -> Iterator[tuple[str, str]]:
    full_pattern = user.find_home() / ".ssh" / user.expand_home(pattern)
    for name in sorted(glob.glob(str(full_pattern))):  # noqa: PTH207 - Path.glob refuses an absolute pattern
        yield from _read_file(Path(name))


def _read_file(path: Path) -> Iterator[tuple[str, str]]:
    try:
        yield str(path), path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return


def find_neighbor_links(host_facts: Facts) -> dict[str, bool]:
    """Return the interfaces that a cluster could use, and whether each is fast."""
    candidates, _ = find_endpoint_candidates("this host", host_facts, NetworkOptions())
    return {
        candidate.link.name: candidate.mbit >= FAST_MBIT for candidate in candidates if candidate.is_wired
    }


def list_neighbors(answers: Transcript, host_facts: Facts) -> tuple[HostMention, ...]:
    is_fast_by_interface = find_neighbor_links(host_facts)
    gateways = {route.gateway for route in host_facts.net.routes}
    mentions = (
        *_parse_announced(answers, is_fast_by_interface),
        *_parse_neighbor_table(answers, is_fast_by_interface),
    )
    return tuple(mention for mention in mentions if not {mention.name, *mention.aliases} & gateways)


def _parse_neighbor_table(
    answers: Transcript, is_fast_by_interface: Mapping[str, bool]
) -> Iterator[HostMention]:
    for row in read_json_objects(answers, NEIGHBOR_COMMAND):
        match row:
            case {"dst": str(address), "dev": str(interface), "state": list(states)} if (
                interface in is_fast_by_interface
                and is_address(address)
                and _PRESENT_STATES & {str(state) for state in states}
            ):
                is_likely = is_fast_by_interface[interface]
                yield HostMention(
                    address, f"neighbor on {interface}", interface, (address,), is_likely=is_likely
                )


def _parse_announced(answers: Transcript, interfaces: Collection[str]) -> Iterator[HostMention]:
    """Yield the hosts of lines `=;INTERFACE;IPv4;SERVICE;TYPE;DOMAIN;HOST;ADDRESS;PORT;TEXT`."""
    for line in read_lines(answers, ANNOUNCED_COMMAND):
        match line.split(";"):
            case ["=", interface, "IPv4", _, _, _, host, address, *_] if interface in interfaces:
                name = _ESCAPE_PATTERN.sub(lambda code: chr(int(code[1])), host)
                aliases = (address,) if is_address(address) else ()
                source = f"announced on {interface} at {address}" if aliases else f"announced on {interface}"
                yield HostMention(name, source, interface, aliases, is_announced=True)


def parse_known_hosts(text: str, file: str) -> tuple[HostMention, ...]:
    """Return the hosts of known_hosts whose names are not hashed; IPv6 addresses are left out."""
    mentions: dict[tuple[str, int], HostMention] = {}  # there is a line for each sort of key
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if len(words) < _MIN_KNOWN_HOSTS_FIELDS or words[0].startswith(_UNUSABLE_PREFIXES):
            continue
        for port, names in _group_by_port(words[0]).items():
            first_name = next((name for name in names if not is_address(name)), names[0])
            aliases = names if port == SSH_PORT else tuple(f"{name}:{port}" for name in names)
            mention = HostMention(first_name, "known_hosts", f"{file}:{number}", aliases, port)
            mentions.setdefault((first_name, port), mention)
    return tuple(mentions.values())


def _group_by_port(field: str) -> dict[int, tuple[str, ...]]:
    names_by_port: dict[int, tuple[str, ...]] = {}
    for word in field.split(","):
        name, port = word, SSH_PORT
        if word.startswith("["):  # `[name]:2222`
            name, _, number = word[1:].partition("]:")
            name, port = (name, int(number)) if number.isdecimal() else ("", 0)
        if name and ":" not in name and not _PATTERN_CHARS & set(name):
            names_by_port[port] = (*names_by_port.get(port, ()), name)
    return names_by_port


def parse_ssh_config(text: str, file: str, read_included: ReadIncluded) -> tuple[HostMention, ...]:
    """Return every alias of an ssh config once, without patterns; also those that are not valid names."""
    values_by_alias: dict[str, tuple[str, dict[str, str]]] = {}
    block: list[dict[str, str]] = []
    for place, keyword, words in read_config_lines(text, file, read_included):
        if keyword in {"host", "match"}:
            names = words if keyword == "host" else ()
            aliases = (name for name in names if name and not _PATTERN_CHARS & set(name))
            block = [values_by_alias.setdefault(alias, (place, {}))[1] for alias in aliases]
        elif words:
            for values in block:
                values.setdefault(keyword, words[0])  # the first value of a keyword holds
    mentions = (
        _build_mention(alias, *place_and_values) for alias, place_and_values in values_by_alias.items()
    )
    return tuple(mention for mention in mentions if mention)


def read_config_lines(
    text: str, file: str, read_included: ReadIncluded, depth: int = 0
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the place, the keyword and the words of each line of a config and of its Includes."""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#") or len(line) > _MAX_LINE_CHARS:
            continue
        # `Keyword value`, `Keyword=value` or `Keyword = value`
        ((keyword, rest),) = re.findall(r"^([^ \t=]*)\s*=?\s*(.*)", line)
        keyword = keyword.lower()
        try:
            words = tuple(shlex.split(rest, comments=True))
        except ValueError:  # a quote without its end, which ssh refuses
            words = (rest,)
        if keyword != "include":
            yield f"{file}:{number}", keyword, words
        elif depth < _MAX_INCLUDE_DEPTH:
            for name, included_text in (
                named_text for pattern in words for named_text in read_included(pattern)
            ):
                yield from read_config_lines(included_text, name, read_included, depth + 1)


def _build_mention(alias: str, place: str, values: Mapping[str, str]) -> HostMention | None:
    if values.get("user") == "git":
        return None  # a server of repositories
    address = values.get("hostname", "").replace("%h", alias)
    port = int(values["port"]) if values.get("port", "").isdecimal() else SSH_PORT
    # Two hosts behind one address differ by their ports, so an address needs its port.
    aliases: tuple[str, ...] = ()
    if address:
        aliases = (address if port == SSH_PORT else f"{address}:{port}",)
    is_likely = is_likely_alias(address or alias, values)
    return HostMention(alias, SSH_CONFIG_SOURCE, place, aliases, is_likely=is_likely)
