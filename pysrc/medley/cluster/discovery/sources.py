"""Find hosts in ssh's files and among the kernel's neighbors.

No address is tried to find one: the kernel's table is read, and avahi, where it runs, asks who announces ssh.
"""

import glob
import re
import shlex
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from medley import process
from medley.cluster import discovery
from medley.cluster.discovery import BY, SSH_PORT, HostCandidate, HostMention, is_address, is_near
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import Facts
from medley.host.kind import answers
from medley.network.fabric.endpoints import endpoint_candidates
from medley.network.fabric.types import NetworkOptions
from medley.transcript import Transcript, lines, objects

TABLE = "ip -json -4 neigh show"
ANNOUNCED = "avahi-browse --parsable --terminate --resolve --no-db-lookup _ssh._tcp"
NEIGHBOUR_QUESTIONS = (TABLE, ANNOUNCED)
_THERE = {"REACHABLE", "STALE", "DELAY", "PROBE"}
"""DELAY and PROBE are a stale one that is being asked again."""
_FAST_MBIT = 25_000
"""So fast a link is a cable between boxes like these, and no home's network."""
_ESCAPE = re.compile(r"\\(\d{3})")
_PATTERN = set("*?!")
_UNUSABLE = ("|", "@", "#")
"""Lines of known_hosts with hashed names, with a mark, and comments."""
_FIELDS = 3
"""Names, the sort of the key, the key."""
_DEEPEST = 16
"""Include in Include, as ssh itself has it."""
_LONGEST = 16_384
"""Characters of a line that is worth reading."""
Included = Callable[[str], Iterable[tuple[str, str]]]
"""From the pattern of an Include to the names and texts of the files that fit it."""


@dataclass(frozen=True)
class CandidateSearch:
    prospects: tuple[HostCandidate, ...]
    refused: tuple[Problem, ...]
    where: tuple[str, ...]
    """The files that were read, and the links that were looked at."""


def find_candidates() -> CandidateSearch:
    here = facts.facts(answers())
    links = tuple(neighbour_links(here))
    near = neighbour_candidates(process.ask(NEIGHBOUR_QUESTIONS), here)
    ours = [address.ip for link in here.net.links for address in link.addresses]
    every = (*named_by_ssh(), *near)
    known, refused = discovery.host_candidates(every, socket.gethostname().partition(".")[0], ours)
    where = ("~/.ssh/config", "~/.ssh/known_hosts", *(f"the neighbours on {link}" for link in links))
    return CandidateSearch(known, refused, where)


def named_by_ssh() -> Iterator[HostMention]:
    folder = Path.home() / ".ssh"
    for _, text in _files(folder / "config"):
        yield from ssh_config_candidates(text, "~/.ssh/config", _included)
    for _, text in _files(folder / "known_hosts"):
        yield from known_hosts_candidates(text, "~/.ssh/known_hosts")


def _included(pattern: str) -> Iterator[tuple[str, str]]:
    """Read the files of an Include, which is relative to ~/.ssh."""
    whole = Path.home() / ".ssh" / Path(pattern).expanduser()
    for name in sorted(glob.glob(str(whole))):  # noqa: PTH207 - Path.glob refuses an absolute pattern
        yield from _files(Path(name))


def _files(path: Path) -> Iterator[tuple[str, str]]:
    """Yield a file's name and text; nothing where it is not there or not ours to read."""
    try:
        yield str(path), path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return


def neighbour_links(facts: Facts) -> dict[str, bool]:
    """Return the interfaces that a cluster could use, and whether each is fast enough to be made for one."""
    found, _ = endpoint_candidates("this host", facts, NetworkOptions())
    return {way.link.name: way.mbit >= _FAST_MBIT for way in found if way.wired}


def neighbour_candidates(answers: Transcript, facts: Facts) -> tuple[HostMention, ...]:
    usable = neighbour_links(facts)
    gateways = {route.gateway for route in facts.net.routes}
    found = (*_announced(answers, usable), *_neighbours(answers, usable))
    return tuple(each for each in found if not {each.name, *each.also} & gateways)


def _neighbours(answers: Transcript, usable: Mapping[str, bool]) -> Iterator[HostMention]:
    for row in objects(answers, TABLE):
        match row:
            case {"dst": str(address), "dev": str(interface), "state": list(states)} if (
                interface in usable and is_address(address) and _THERE & {str(state) for state in states}
            ):
                likely = usable[interface]
                yield HostMention(address, f"neighbour on {interface}", interface, (address,), likely=likely)


def _announced(answers: Transcript, usable: Collection[str]) -> Iterator[HostMention]:
    """Read lines of `=;INTERFACE;IPv4;SERVICE;TYPE;DOMAIN;HOST;ADDRESS;PORT;TEXT`."""
    for line in lines(answers, ANNOUNCED):
        match line.split(";"):
            case ["=", interface, "IPv4", _, _, _, host, address, *_] if interface in usable:
                name = _ESCAPE.sub(lambda code: chr(int(code[1])), host)
                also = (address,) if is_address(address) else ()
                yield HostMention(name, f"announced on {interface}", interface, also)


def known_hosts_candidates(text: str, file: str) -> tuple[HostMention, ...]:
    """Return each line of known_hosts with names in plain letters; IPv6 addresses are of no use here."""
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
    """Return every alias of an ssh config that is no pattern, once; also those that are no plain names."""
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
    """Yield where each line of a config stands, its keyword in small letters, and its words.

    In the place of an Include come the lines of the files that it names.
    """
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#") or len(line) > _LONGEST:
            continue
        # `Keyword value`, `Keyword=value` or `Keyword = value`
        ((keyword, rest),) = re.findall(r"^([^ \t=]*)\s*=?\s*(.*)", line)
        keyword = keyword.lower()
        try:
            words = tuple(shlex.split(rest, comments=True))
        except ValueError:  # a quote without its end: ssh refuses it, and so does whoever takes the name
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
    # Two hosts behind one address have ports of their own: then the address alone says nothing.
    also = () if not address else (address,) if port == SSH_PORT else (f"{address}:{port}",)
    near = is_near(address or alias) and not {"proxyjump", "proxycommand"} & set(values)
    return HostMention(alias, BY, where, also, likely=near)
