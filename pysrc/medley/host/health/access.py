"""Permissions, process limits, firewall, name, clock."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from medley.errors import Finding
from medley.transcript import NO_ANSWER, Transcript, assignments, first, lines

# Whether it opens, and not its owner: a group may be named after a person.
DEVICES = (
    "for f in /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia[0-9]* /dev/nvmap /dev/nvhost-gpu"
    " /dev/nvgpu/igpu0/ctrl /dev/infiniband/uverbs* /dev/infiniband/rdma_cm; do"
    ' [ -e "$f" ] || continue; m=no; [ -r "$f" ] && [ -w "$f" ] && m=yes; echo "$f $m"; done; :'
)
LIMITS = "grep -E '^Max (locked memory|open files|processes) ' /proc/self/limits"
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
SYNCHRONISED = "timedatectl show -p NTP -p NTPSynchronized"
CHARSET = 'printf "%s\\n" "$LANG"'

QUESTIONS = (DEVICES, LIMITS, LISTENING, UFW, NFT, IPTABLES, OWN_NAME, SYNCHRONISED, CHARSET)

_LIMITS = {"Max locked memory": "locked_bytes", "Max open files": "open_files", "Max processes": "processes"}
_LIMIT = re.compile(rf"^({'|'.join(_LIMITS)}) +(\S+) +(\S+)", re.MULTILINE)
_FEW_FILES = 65_536
"""Ray's and the engines' own advice; each connection of a rank is one."""


@dataclass(frozen=True)
class Firewall:
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


def firewall(answers: Transcript) -> Firewall:
    listening = re.findall(
        r"^([0-9A-F]{4}) (loopback|all)$", "\n".join(lines(answers, LISTENING)), re.MULTILINE
    )
    enabled = assignments(answers, UFW).get("ENABLED")
    return Firewall(
        listening=tuple((int(port, 16), at == "all") for port, at in listening),
        ufw=None if enabled is None else enabled == "yes",
        closing=(*_of_nft(answers), *_of_iptables(answers)),
        readable=any(first(answers, each) for each in (NFT, IPTABLES)),
        means=lines(answers, OWN_NAME),
    )


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


@dataclass(frozen=True)
class Clock:
    wanted: bool | None = None
    """Whether something is to keep it; None where there is no timedatectl."""
    right: bool | None = None
    """Whether it is kept now."""
    charset: str | None = None
    """Of the language that is set here, as in `UTF-8`."""


def clock(answers: Transcript) -> Clock:
    said = assignments(answers, SYNCHRONISED)
    charset = (first(answers, CHARSET) or "").partition(".")[2] or None
    flags = {"yes": True, "no": False}
    return Clock(flags.get(said.get("NTP", "")), flags.get(said.get("NTPSynchronized", "")), charset)


@dataclass(frozen=True)
class ProcessLimits:
    """The hard ones, to which a process can raise the others by itself; None is unlimited, or not told.

    `locked_bytes` is the soft one: what pins memory does not raise it.
    """

    locked_bytes: int | None = None
    open_files: int | None = None
    processes: int | None = None


def parse_limits(text: str) -> ProcessLimits:
    """Of what /proc/PID/limits says."""
    found: dict[str, int | None] = {}
    for title, soft, hard in _LIMIT.findall(text):
        value = soft if title == "Max locked memory" else hard
        found[_LIMITS[title]] = int(value) if value.isdecimal() else None
    return ProcessLimits(**found)


def limits_of(pid: int) -> ProcessLimits | None:
    """Of a process that runs; None where it does not, or is another user's."""
    try:
        return parse_limits(Path(f"/proc/{pid}/limits").read_text(encoding="ascii"))
    except OSError:
        return None


def low_limits(found: ProcessLimits, user: str, *, rdma: bool) -> Iterator[Finding]:
    """What will be in the way, and what mends it for all that this user starts from the next login on."""
    if rdma and found.locked_bytes is not None:
        yield Finding(
            f"Locked-memory limit is {found.locked_bytes >> 10} KiB (unlimited recommended)",
            "RDMA locks the memory that it sends from, so NCCL fails or uses TCP",
            _raised(user, "memlock", "unlimited"),
        )
    if found.open_files is not None and found.open_files < _FEW_FILES:
        yield Finding(
            f"Open-file limit is {found.open_files:,} ({_FEW_FILES:,} recommended)",
            "every connection in a cluster uses one descriptor",
            _raised(user, "nofile", "1048576"),
        )


def _raised(user: str, item: str, value: str) -> str:
    line = f"{user} - {item} {value}"
    return (
        f"echo '{line}' | sudo tee /etc/security/limits.d/medley-{item}.conf, then log in again; "
        "a unit of medley service install has it already"
    )


@dataclass(frozen=True)
class Access:
    closed: tuple[str, ...] = ()
    """Devices that are there and that this user may not open."""
    open: tuple[str, ...] = ()
    limits: ProcessLimits = field(default_factory=ProcessLimits)


def access(answers: Transcript) -> Access:
    said = [line.rpartition(" ") for line in lines(answers, DEVICES)]
    return Access(
        closed=tuple(path for path, _, may in said if may == "no"),
        open=tuple(path for path, _, may in said if may == "yes"),
        limits=parse_limits("\n".join(lines(answers, LIMITS))),
    )
