"""A host key is what a host proves itself by to ssh; people compare its fingerprint before they trust it."""

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from medley.command import Command
from medley.mention import SSH_PORT, is_plain

_LIMIT_S = 5
_PORT = re.compile(r"[0-9]{1,5}")
_FIELDS = 3
_LENGTH = 4
"""Bytes, in which the length of what follows stands."""
_ITS_OWN = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"


@dataclass(frozen=True)
class Peer:
    """Whom ssh means by a target, after all its configuration."""

    host: str
    port: int
    file: Path
    """Where ssh keeps the keys that it knows."""
    hashed: bool
    """Whether it hides the names there."""
    indirect: bool
    """It is reached by way of another host, or its key is filed under another name."""


def resolution(target: str) -> Command:
    """Asks ssh whom it means; nothing is sent."""
    return Command(("ssh", "-G", "--", target))


def peer(said: Iterable[str], home: Path) -> Peer:
    found: dict[str, str] = {}
    for line in said:
        key, _, value = line.partition(" ")
        found.setdefault(key, value)
    proxied = any(found.get(key, "none") != "none" for key in ("proxyjump", "proxycommand", "hostkeyalias"))
    host, port = found.get("hostname", ""), found.get("port", "")
    files = found.get("userknownhostsfile", "").split()
    return Peer(
        host,
        int(port) if _PORT.fullmatch(port) else SSH_PORT,
        Path(files[0].replace("~", str(home), 1) if files else home / ".ssh" / "known_hosts"),
        hashed=found.get("hashknownhosts") == "yes",
        indirect=proxied or not is_plain(host),
    )


def scan(peer: Peer) -> Command:
    """Asks the host for its keys."""
    hashed = ("-H",) if peer.hashed else ()
    return Command(("ssh-keyscan", *hashed, "-T", str(_LIMIT_S), "-p", str(peer.port), peer.host))


def scanned(said: Iterable[str]) -> tuple[str, ...]:
    """The lines that are for known_hosts."""
    return tuple(line for line in said if fingerprint(line))


def fingerprint(line: str) -> str | None:
    """Of such a line, as `ssh-keygen -lf` says it: the sort and the hash of the key."""
    words = line.split()
    if line.startswith("#") or len(words) < _FIELDS:
        return None
    try:
        key = base64.b64decode(words[2], validate=True)
    except ValueError:  # no base64, or no ASCII
        return None
    if not key[_LENGTH:].startswith(words[1].encode()):  # a key begins with its own sort
        return None
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
    return f"SHA256:{digest} ({words[1].removeprefix('ssh-').split('-')[0].upper()})"


def comparison(keys: Iterable[str]) -> str:
    """What a user is to compare, and with what."""
    shown = "\n".join(f"    {fingerprint(key)}" for key in keys)
    return f"{shown}\n  compare with what this says there, at its own screen: {_ITS_OWN}"
