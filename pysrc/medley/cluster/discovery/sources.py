"""Find hosts in ssh's files and among the kernel's neighbors.

No address is scanned: the kernel's neighbor table is read, and avahi lists hosts that announce ssh.
"""

import glob
import re
import shlex
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from medley import process, user
from medley.cluster import discovery
from medley.cluster.discovery import BY, SSH_PORT, HostCandidate, HostMention, is_address, is_near
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import Facts
from medley.host.kind import load_answers
from medley.network.fabric.endpoints import find_endpoint_candidates
from medley.network.fabric.types import NetworkOptions
from medley.transcript import Transcript, lines, objects

TABLE = "ip -json -4 neigh show"
ANNOUNCED = "avahi-browse --parsable --terminate --resolve --no-db-lookup _ssh._tcp"
NEIGHBOR_QUESTIONS = (TABLE, ANNOUNCED)
_THERE = {"REACHABLE", "STALE", "DELAY", "PROBE"}
"""DELAY and PROBE: a stale neighbor that the kernel asks again."""
_FAST_MBIT = 25_000
"""A link this fast is a cable between GPU hosts, not a home network."""
_ESCAPE = re.compile(r"\\(\d{3})")
_PATTERN = set("*?!")
_UNUSABLE = ("|", "@", "#")
"""Lines of known_hosts with hashed names, with a mark, and comments."""
_FIELDS = 3
_DEEPEST = 16
_LONGEST = 16_384
Included = Callable[[str], Iterable[tuple[str, str]]]


@dataclass(frozen=True)
class CandidateSearch:
    prospects: tuple[HostCandidate, ...]
    refused: tuple[Problem, ...]
    where: tuple[str, ...]


def find_candidates() -> CandidateSearch:
    here = facts.read_facts(load_answers())
    links = tuple(neighbor_links(here))
    near = neighbor_candidates(process.ask(NEIGHBOR_QUESTIONS), here)
    ours = [address.ip for link in here.net.links for address in link.addresses]
    every = (*named_by_ssh(), *near)
    known, refused = discovery.host_candidates(every, socket.gethostname().partition(".")[0], ours)
    where = ("~/.ssh/config", "~/.ssh/known_hosts", *(f"the neighbors on {link}" for link in links))
    return CandidateSearch(known, refused, where)


def named_by_ssh() -> Iterator[HostMention]:
    folder = user.home() / ".ssh"
    for _, text in _files(folder / "config"):
        yield from ssh_config_candidates(text, "~/.ssh/config", _included)
    for _, text in _files(folder / "known_hosts"):
        yield from known_hosts_candidates(text, "~/.ssh/known_hosts")


def _included(pattern: str) -> Iterator[tuple[str, str]]:
    whole = user.home() / ".ssh" / user.expand(pattern)
    for name in sorted(glob.glob(str(whole))):  # noqa: PTH207 - Path.glob refuses an absolute pattern
        yield from _files(Path(name))


def _files(path: Path) -> Iterator[tuple[str, str]]:
    try:
        yield str(path), path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return


def neighbor_links(facts: Facts) -> dict[str, bool]:
    """Return the interfaces that a cluster could use, and whether each is fast."""
    found, _ = find_endpoint_candidates("this host", facts, NetworkOptions())
    return {way.link.name: way.mbit >= _FAST_MBIT for way in found if way.is_wired}


def neighbor_candidates(answers: Transcript, facts: Facts) -> tuple[HostMention, ...]:
    usable = neighbor_links(facts)
    gateways = {route.gateway for route in facts.net.routes}
    found = (*_announced(answers, usable), *_neighbors(answers, usable))
    return tuple(each for each in found if not {each.name, *each.also} & gateways)


def _neighbors(answers: Transcript, usable: Mapping[str, bool]) -> Iterator[HostMention]:
    for row in objects(answers, TABLE):
        match row:
            case {"dst": str(address), "dev": str(interface), "state": list(states)} if (
                interface in usable and is_address(address) and _THERE & {str(state) for state in states}
            ):
                likely = usable[interface]
                yield HostMention(address, f"neighbor on {interface}", interface, (address,), likely=likely)


def _announced(answers: Transcript, usable: Collection[str]) -> Iterator[HostMention]:
    """Read lines of `=;INTERFACE;IPv4;SERVICE;TYPE;DOMAIN;HOST;ADDRESS;PORT;TEXT`."""
    for line in lines(answers, ANNOUNCED):
        match line.split(";"):
            case ["=", interface, "IPv4", _, _, _, host, address, *_] if interface in usable:
                name = _ESCAPE.sub(lambda code: chr(int(code[1])), host)
                also = (address,) if is_address(address) else ()
                yield HostMention(name, f"announced on {interface}", interface, also)


def known_hosts_candidates(text: str, file: str) -> tuple[HostMention, ...]:
    """Return the hosts of known_hosts whose names are not hashed; IPv6 addresses are left out."""
    found: dict[tuple[str, int], HostMention] = {}  # there is a line for each sort of key
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if len(words) < _FIELDS or words[0].startswith(_UNUSABLE):
            continue
        for port, names in _by_port(words[0]).items():
            first = next((name for name in names if not is_address(name)), names[0])
            also = names if port == SSH_PORT else tuple(f"{name}:{port}" for name in names)
            mention = HostMention(first, "known_hosts", f"{file}:{number}", also, port)
            found.setdefault((first, port), mention)
    return tuple(found.values())


def _by_port(field: str) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for word in field.split(","):
        name, port = word, SSH_PORT
        if word.startswith("["):  # `[name]:2222`
            name, _, number = word[1:].partition("]:")
            name, port = (name, int(number)) if number.isdecimal() else ("", 0)
        if name and ":" not in name and not _PATTERN & set(name):
            found[port] = (*found.get(port, ()), name)
    return found


def ssh_config_candidates(text: str, file: str, included: Included) -> tuple[HostMention, ...]:
    """Return every alias of an ssh config once, without patterns; also those that are not valid names."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    block: list[dict[str, str]] = []
    for where, keyword, words in config_lines(text, file, included):
        if keyword in {"host", "match"}:
            names = words if keyword == "host" else ()
            aliases = (name for name in names if name and not _PATTERN & set(name))
            block = [found.setdefault(alias, (where, {}))[1] for alias in aliases]
        elif words:
            for values in block:
                values.setdefault(keyword, words[0])  # the first value of a keyword holds
    mentions = (_mention(alias, *each) for alias, each in found.items())
    return tuple(each for each in mentions if each)


def config_lines(
    text: str, file: str, included: Included, depth: int = 0
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the place, the keyword and the words of each line of a config and of its Includes."""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#") or len(line) > _LONGEST:
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
        elif depth < _DEEPEST:
            for name, more in (each for pattern in words for each in included(pattern)):
                yield from config_lines(more, name, included, depth + 1)


def _mention(alias: str, where: str, values: Mapping[str, str]) -> HostMention | None:
    if values.get("user") == "git":
        return None  # a server of repositories
    address = values.get("hostname", "").replace("%h", alias)
    port = int(values["port"]) if values.get("port", "").isdecimal() else SSH_PORT
    # Two hosts behind one address differ by their ports, so an address needs its port.
    also = () if not address else (address,) if port == SSH_PORT else (f"{address}:{port}",)
    near = is_near(address or alias) and not {"proxyjump", "proxycommand"} & set(values)
    return HostMention(alias, BY, where, also, likely=near)
