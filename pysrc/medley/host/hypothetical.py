"""Build hosts that the user need not own: `spark:2` from typical transcripts, with other addresses."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import lru_cache
from ipaddress import IPv4Interface

from medley import config
from medley.errors import Problem
from medley.host.facts import Facts, read_facts
from medley.host.facts.network import Interface
from medley.host.facts.rdma import RdmaPort
from medley.transcript import parse_transcript

MAX_HOSTS = 64
_FIRST_NUMBER = 10
"""The number of the first host in each network, above the numbers of gateways."""


def build_hosts(hosts_option: str) -> dict[str, Facts]:
    """Return the hosts of `spark:2,thor:1` by name: spark-1, spark-2, thor-1, all on the same networks.

    Raise a Problem for an unknown kind, or too many hosts.
    """
    files = config.find_table_files("hosts/typical", ".txt")
    kinds = [
        kind
        for word in hosts_option.split(",")
        for kind in _list_kinds(word.strip(), tuple(files), hosts_option)
    ]
    if len(kinds) > MAX_HOSTS:
        raise Problem(
            f"--hosts {hosts_option} is too many",
            cause=f"{len(kinds)} hosts; {MAX_HOSTS} at most",
            fix="name fewer",
        )
    typical = {kind: _read_facts(files[kind].read_text(encoding="utf-8")) for kind in set(kinds)}
    hosts = {}
    for place, kind in enumerate(kinds):
        number = kinds[: place + 1].count(kind)
        hosts[f"{kind}-{number}"] = _number_addresses(typical[kind], _FIRST_NUMBER + place)
    return hosts


@lru_cache(maxsize=64)
def _read_facts(transcript: str) -> Facts:
    """Parse a transcript once per process, because remedies plan on many hypothetical hosts."""
    return read_facts(parse_transcript(transcript))


def _list_kinds(word: str, kinds: tuple[str, ...], hosts_option: str) -> list[str]:
    match = re.fullmatch(r"([\w.-]+?)(?::([1-9]\d{0,2}))?", word.lower())
    if match is None or match[1] not in kinds:
        is_any = word.lower().partition(":")[0] == "cuda"
        why = "is any NVIDIA GPU: name one" if is_any else "is not KIND:NUMBER"
        cause = f"{word!r} {why}, such as spark:2; kinds: {', '.join(kinds)}"
        suggestion = _suggest_hosts(hosts_option, kinds) or "spark:2,thor:2"
        fix = f"--hosts {suggestion}; or leave --hosts out, for your own hosts"
        raise Problem(f"--hosts {hosts_option} names no hosts", cause=cause, fix=fix)
    return [match[1]] * int(match[2] or 1)


def _suggest_hosts(hosts_option: str, kinds: tuple[str, ...]) -> str:
    """Return a valid value for --hosts near to the given one; empty if a word is like no kind."""
    counts: dict[str, int] = {}
    for word in hosts_option.lower().split(","):
        # spark:2, and spark=2, spark-2, spark 2, sparkx2, spark
        match = re.fullmatch(r"(.*?)(?:\s*(?::|=|\*|x|\s|-)\s*(\d{0,2}))?", word.strip())
        host_word, name, number = word.strip(), match[1] if match else "", match[2] if match else None
        if host_word in kinds:
            kind, count = host_word, 1
        else:
            close_names = ["rtx-5090"] if name == "cuda" else get_close_matches(name, kinds, 1)
            if not close_names:
                return ""
            is_own_name = f"{close_names[0]}-{number}" == host_word  # as plan names hosts: spark-1, spark-2
            kind, count = close_names[0], 1 if is_own_name else int(number or 1) or 1
        counts[kind] = counts.get(kind, 0) + count
    return ",".join(f"{kind}:{min(count, MAX_HOSTS)}" for kind, count in counts.items())


def _number_addresses(host: Facts, number: int) -> Facts:
    """Return the host with this number in each of its networks."""

    def choose_address(current: IPv4Interface) -> str:
        return str(current.network[number]) if current.network.num_addresses > number + 1 else str(current.ip)

    return change_addresses(host, choose_address)


def change_addresses(facts: Facts, choose_address: Callable[[IPv4Interface], str]) -> Facts:
    """Return the facts with other addresses; `choose_address` returns the new one in each network."""
    links = facts.net.links
    new_ips = {old.ip: choose_address(old.cidr) for link in links for old in link.addresses}

    def change_link(link: Interface) -> Interface:
        return link.replace(addresses=tuple(old.replace(ip=new_ips[old.ip]) for old in link.addresses))

    def change_port(port: RdmaPort) -> RdmaPort:
        gids = (gid.replace(address=new_ips.get(gid.address or "", gid.address)) for gid in port.gids)
        return port.replace(gids=tuple(gids))

    net = facts.net.replace(links=tuple(map(change_link, links)))
    return facts.replace(net=net, rdma=tuple(map(change_port, facts.rdma)))
