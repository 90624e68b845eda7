"""Read the health of permissions, process limits, firewall, name and clock."""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import field

from medley.errors import Finding
from medley.transcript import NO_ANSWER, Transcript, read_assignments, read_first_line, read_lines
from medley.values import Value

# Only whether it opens, and not its owner: a group may be named after a person.
DEVICES_QUESTION = (
    "for f in /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia[0-9]* /dev/nvmap /dev/nvhost-gpu"
    " /dev/nvgpu/igpu0/ctrl /dev/infiniband/uverbs* /dev/infiniband/rdma_cm; do"
    ' [ -e "$f" ] || continue; m=no; [ -r "$f" ] && [ -w "$f" ] && m=yes; echo "$f $m"; done; :'
)
LIMITS_QUESTION = "grep -E '^Max (locked memory|open files|processes) ' /proc/self/limits"
# Only ports, and whether they are at the loopback only: an address would show the user's network.
LISTENING_QUESTION = (
    'cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk \'$4 == "0A" {split($2, a, ":");'
    ' print a[2], (a[1] ~ /7F$|^0*1000000$/ ? "loopback" : "all")}\' | sort -u'
)
UFW_QUESTION = "grep -hsE '^(ENABLED|DEFAULT_INPUT_POLICY)=' /etc/ufw/ufw.conf /etc/default/ufw"
# Only rules that close or begin something, because a host may have thousands of others.
NFT_QUESTION = (
    "PATH=$PATH:/usr/sbin:/sbin; nft list ruleset 2>/dev/null"
    " | grep -E '^table|^[[:space:]]chain|hook input|(drop|reject)' | head -n 400"
)
IPTABLES_QUESTION = "PATH=$PATH:/usr/sbin:/sbin; iptables -w 2 -S INPUT 2>/dev/null"
LOCAL_ADDRESSES_QUESTION = "getent ahostsv4 \"$(uname -n)\" | awk '{print $1}' | sort -u"
SYNCHRONISED_QUESTION = "timedatectl show -p NTP -p NTPSynchronized"
CHARSET_QUESTION = 'printf "%s\\n" "$LANG"'

QUESTIONS = (
    DEVICES_QUESTION,
    LIMITS_QUESTION,
    LISTENING_QUESTION,
    UFW_QUESTION,
    NFT_QUESTION,
    IPTABLES_QUESTION,
    LOCAL_ADDRESSES_QUESTION,
    SYNCHRONISED_QUESTION,
    CHARSET_QUESTION,
)

_LIMITS = {"Max locked memory": "locked_bytes", "Max open files": "open_files", "Max processes": "processes"}
_LIMIT_PATTERN = re.compile(rf"^({'|'.join(_LIMITS)}) +(\S+) +(\S+)", re.MULTILINE)
_MIN_OPEN_FILES = 65_536
"""The open files that Ray and the engines recommend; each connection of a rank is one."""


class Firewall(Value):
    """The open ports and firewall rules of a host."""

    listening: tuple[tuple[int, bool], ...] = ()
    """The ports with a listener, each with whether other hosts reach it."""
    ufw: bool | None = None
    """Whether ufw is on; None without ufw."""
    closing_rules: tuple[str, ...] = ()
    """The rules of nftables or iptables that drop incoming packets, without medley's own."""
    is_readable: bool = False
    """Whether rules could be read, which only root can."""
    local_addresses: tuple[str, ...] = ()
    """The addresses to which the host's own name resolves here."""


def read_firewall(answers: Transcript) -> Firewall:
    listening = re.findall(
        r"^([0-9A-F]{4}) (loopback|all)$", "\n".join(read_lines(answers, LISTENING_QUESTION)), re.MULTILINE
    )
    enabled = read_assignments(answers, UFW_QUESTION).get("ENABLED")
    return Firewall(
        listening=tuple((int(port, 16), reach == "all") for port, reach in listening),
        ufw=None if enabled is None else enabled == "yes",
        closing_rules=(*_list_nft_rules(answers), *_list_iptables_rules(answers)),
        is_readable=any(read_first_line(answers, question) for question in (NFT_QUESTION, IPTABLES_QUESTION)),
        local_addresses=read_lines(answers, LOCAL_ADDRESSES_QUESTION),
    )


def _list_nft_rules(answers: Transcript) -> Iterator[str]:
    """Yield the rules of chains that see incoming packets, as `FAMILY TABLE CHAIN: RULE`."""
    table, chain, is_input_chain = "", "", False
    for line in read_lines(answers, NFT_QUESTION):
        words = line.strip().removesuffix("{").strip()
        if words.startswith("table "):
            table, is_input_chain = words.removeprefix("table "), False
        elif words.startswith("chain "):
            chain, is_input_chain = words.removeprefix("chain "), False
        elif "hook input" in words:
            is_input_chain = table.split()[-1:] != ["medley"]
            if is_input_chain and "policy drop" in words:
                yield f"{table} {chain}: policy drop"
        elif is_input_chain:
            yield f"{table} {chain}: {words}"


def _list_iptables_rules(answers: Transcript) -> Iterator[str]:
    for line in answers.get(IPTABLES_QUESTION, NO_ANSWER).text.splitlines():
        if re.search(r"-j (DROP|REJECT)\b", line) or line.strip() == "-P INPUT DROP":
            yield f"iptables: {line.strip()}"


class Clock(Value):
    """The state of the clock, and the character set."""

    is_synchronization_on: bool | None = None
    """Whether its synchronization is on; None without timedatectl."""
    is_synchronized: bool | None = None
    """Whether it is synchronized now; None without timedatectl."""
    charset: str | None = None
    """The character set of LANG, as in `UTF-8`."""


def read_clock(answers: Transcript) -> Clock:
    """Return the state of the clock."""
    states = read_assignments(answers, SYNCHRONISED_QUESTION)
    charset = (read_first_line(answers, CHARSET_QUESTION) or "").partition(".")[2] or None
    flags = {"yes": True, "no": False}
    return Clock(flags.get(states.get("NTP", "")), flags.get(states.get("NTPSynchronized", "")), charset)


class ProcessLimits(Value):
    """The hard limits, to which a process can raise the soft ones by itself; None: unlimited, or unknown.

    `locked_bytes` is the soft limit: programs that pin memory do not raise it.
    """

    locked_bytes: int | None = None
    open_files: int | None = None
    processes: int | None = None


def parse_limits(text: str) -> ProcessLimits:
    """Return the limits in the text of /proc/PID/limits."""
    limits: dict[str, int | None] = {}
    for title, soft, hard in _LIMIT_PATTERN.findall(text):
        value = soft if title == "Max locked memory" else hard
        limits[_LIMITS[title]] = int(value) if value.isdecimal() else None
    return ProcessLimits(**limits)


def read_limits(pid: int) -> ProcessLimits | None:
    """Return the limits of a running process; None if it has ended, or is another user's."""
    try:
        return parse_limits(Path(f"/proc/{pid}/limits").read_text(encoding="ascii"))
    except OSError:
        return None


def list_low_limits(limits: ProcessLimits, user: str, *, rdma: bool) -> Iterator[Finding]:
    """Yield each limit that is too low, with a fix that holds from this user's next login on."""
    if rdma and limits.locked_bytes is not None:
        yield Finding(
            f"Locked-memory limit is {limits.locked_bytes >> 10} KiB (unlimited recommended)",
            "RDMA locks the memory that it sends from, so NCCL fails or uses TCP",
            _build_limit_fix(user, "memlock", "unlimited"),
        )
    if limits.open_files is not None and limits.open_files < _MIN_OPEN_FILES:
        yield Finding(
            f"Open-file limit is {limits.open_files:,} ({_MIN_OPEN_FILES:,} recommended)",
            "every connection in a cluster uses one descriptor",
            _build_limit_fix(user, "nofile", "1048576"),
        )


def _build_limit_fix(user: str, item: str, value: str) -> str:
    line = f"{user} - {item} {value}"
    return (
        f"echo '{line}' | sudo tee /etc/security/limits.d/medley-{item}.conf, then log in again; "
        "a unit of medley service install has it already"
    )


class Access(Value):
    """The devices that this user may open, and the limits of processes."""

    closed_devices: tuple[str, ...] = ()
    """The devices that exist and that this user may not open."""
    open_devices: tuple[str, ...] = ()
    limits: ProcessLimits = field(default_factory=ProcessLimits)


def read_access(answers: Transcript) -> Access:
    """Return the devices that this user may and may not open."""
    devices = [line.rpartition(" ") for line in read_lines(answers, DEVICES_QUESTION)]
    return Access(
        closed_devices=tuple(path for path, _, can_open in devices if can_open == "no"),
        open_devices=tuple(path for path, _, can_open in devices if can_open == "yes"),
        limits=parse_limits("\n".join(read_lines(answers, LIMITS_QUESTION))),
    )
