"""Doors are how others come in: what listens here, the firewall before it, what this host's name means."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from medley.facts.answers import first, lines
from medley.transcript import NO_ANSWER, Transcript

# Ports alone, with whether the loopback is all they are at: an address here is of one's own network.
LISTENING = (
    'cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk \'$4 == "0A" {split($2, a, ":");'
    ' print a[2], (a[1] ~ /7F$|^0*1000000$/ ? "loopback" : "all")}\' | sort -u'
)
UFW = "grep -hsE '^(ENABLED|DEFAULT_INPUT_POLICY)=' /etc/ufw/ufw.conf /etc/default/ufw"
# Of other rules than those that close or begin something a host may have thousands.
NFT = (
    "PATH=$PATH:/usr/sbin:/sbin; nft list ruleset 2>/dev/null"
    " | grep -E '^table|^[[:space:]]chain|hook input|(drop|reject)' | head -n 400"
)
IPTABLES = "PATH=$PATH:/usr/sbin:/sbin; iptables -w 2 -S INPUT 2>/dev/null"
OWN_NAME = "getent ahostsv4 \"$(uname -n)\" | awk '{print $1}' | sort -u"

QUESTIONS = (LISTENING, UFW, NFT, IPTABLES, OWN_NAME)


@dataclass(frozen=True)
class Doors:
    listening: tuple[tuple[int, bool], ...] = ()
    """Ports, each with whether others reach it."""
    ufw: bool | None = None
    """Whether it is on; None where there is none."""
    closing: tuple[str, ...] = ()
    """Rules of nftables or iptables that drop what comes in, without medley's own."""
    readable: bool = False
    """Whether rules could be read, which root alone can."""
    means: tuple[str, ...] = ()
    """The addresses that the host's own name has here."""


def doors(answers: Transcript) -> Doors | None:
    if LISTENING not in answers:
        return None
    ufw = dict(line.split("=", 1) for line in lines(answers, UFW))
    return Doors(
        listening=tuple(_listening(answers)),
        ufw=ufw["ENABLED"].strip('"') == "yes" if "ENABLED" in ufw else None,
        closing=(*_of_nft(answers), *_of_iptables(answers)),
        readable=any(first(answers, each) for each in (NFT, IPTABLES)),
        means=lines(answers, OWN_NAME),
    )


def _listening(answers: Transcript) -> Iterator[tuple[int, bool]]:
    for line in lines(answers, LISTENING):
        if match := re.fullmatch(r"([0-9A-F]{4}) (loopback|all)", line.strip()):
            yield int(match[1], 16), match[2] == "all"


def _of_nft(answers: Transcript) -> Iterator[str]:
    """As `FAMILY TABLE CHAIN: RULE`, of chains that see what comes in."""
    table, chain, hooked = "", "", False
    for line in lines(answers, NFT):
        words = line.strip().removesuffix("{").strip()
        if words.startswith("table "):
            table, hooked = words.removeprefix("table "), False
        elif words.startswith("chain "):
            chain, hooked = words.removeprefix("chain "), False
        elif "hook input" in words:
            hooked = table.split()[-1:] != ["medley"]
            if hooked and "policy drop" in words:
                yield f"{table} {chain}: policy drop"
        elif hooked:
            yield f"{table} {chain}: {words}"


def _of_iptables(answers: Transcript) -> Iterator[str]:
    for line in answers.get(IPTABLES, NO_ANSWER).text.splitlines():
        if re.search(r"-j (DROP|REJECT)\b", line) or line.strip() == "-P INPUT DROP":
            yield f"iptables: {line.strip()}"
