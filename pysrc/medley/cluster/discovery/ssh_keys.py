"""Give hosts the user's ssh key, learn their host keys, and name them in the ssh config.

Every change is shown before it is made; a host key is accepted only after the user has compared it.
"""

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from medley import process, storage, user
from medley.cluster import ssh
from medley.cluster.discovery import SSH_PORT, is_plain, parts
from medley.cluster.discovery.sources import ssh_config_candidates
from medley.command import Command
from medley.errors import Problem
from medley.network.link_backends import FileChange

_LIMIT_S = 30
_SCAN_LIMIT_S = 5
_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_ITS_OWN = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
_PORT = re.compile(r"[0-9]{1,5}")
_FIELDS = 3
_LENGTH = 4
"""Bytes of a length field."""
_BEGIN = "# medley: begin"
_END = "# medley: end"
_ABOUT = f"{_BEGIN} (from `medley init --keys`, which replaces this block)"
_BLOCK = re.compile(rf"^{_BEGIN}\b.*?^{_END}[^\n]*\n?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Manner:
    """How to show commands and changes to the user, and how to ask for consent."""

    show: Callable[[str], None]
    consents: Callable[[str], bool]
    trusts: Callable[[str], bool] | None
    """Asks whether the fingerprints are right; None without a user to ask."""
    dry: bool = False


def introduce(name: str, target: str, manner: Manner) -> None:
    """Set up ssh to a host without a password."""
    problem = barred(name, target)
    unknown = isinstance(problem, ssh.HostKeyUnknown)
    if problem and unknown:
        _learn(name, target, manner, problem)
        problem = barred(name, target)
    if isinstance(problem, ssh.KeyRefused) or (unknown and manner.dry):
        _give(name, target, manner)
    elif problem:
        raise problem


def barred(name: str, target: str) -> Problem | None:
    """Return the reason why ssh cannot log in without a question."""
    ended = process.run(ssh.command(target, (("true",),), ()), limit_s=_LIMIT_S)
    return ssh.problem(name, target, ended.lines, ended.status) if ended.status else None


def _learn(name: str, target: str, manner: Manner, problem: Problem) -> None:
    peer = resolved_peer(process.run(resolution(target), limit_s=_LIMIT_S).lines, user.home())
    if peer.indirect:
        raise problem  # through a proxy, the key may be another host's
    command = scan(peer)
    manner.show(f"{name}: ssh does not know its host key; fetching it: {command}")
    keys = scanned(process.run(command, limit_s=_LIMIT_S).lines)
    if not keys:
        raise problem
    manner.show(comparison(keys))
    old = _text(peer.known_hosts)
    gap = "" if not old or old.endswith("\n") else "\n"
    file = FileChange(peer.known_hosts, (old or "") + gap + "".join(f"{key}\n" for key in keys), old)
    manner.show(file.diff.rstrip())
    if manner.dry:
        return
    if manner.trusts is None:
        raise Problem(
            f"the host key of {name} is unknown, and --yes does not accept one",
            cause=" or ".join(filter(None, map(fingerprint, keys))),
            fix=problem.fix,
        )
    if not manner.trusts(f"are these the keys of {name}?"):
        raise Problem(
            f"the host key of {name} was not accepted", cause="you did not confirm it", fix=problem.fix
        )
    _write(file)


def _give(name: str, target: str, manner: Manner) -> None:
    key = _key(manner)
    command = copy_id(key, target)
    manner.show(str(command))
    if manner.dry:
        return
    if not manner.consents("run this? it asks for your password there"):
        raise Problem(f"{name} did not get the key", cause="you declined", fix=str(command))
    if process.find_program("ssh-copy-id") is None:
        raise Problem(
            "ssh-copy-id not found", cause="it is not on PATH", fix="sudo apt install openssh-client"
        )
    if status := process.attend(command):
        raise Problem(
            f"{name} did not take the key",
            cause=f"ssh-copy-id exited with {status}; its reason is above. Are password logins off?",
            fix=f"try it by hand: {command}; or log in there and put the key into ~/.ssh/authorized_keys",
        )
    if isinstance(problem := barred(name, target), ssh.KeyRefused):
        raise Problem(
            f"{name} has the key, and ssh still asks for a password",
            cause=f"{key} has a passphrase and no agent holds it, or the host refuses keys: {problem.cause}",
            fix=f"if it has a passphrase: eval $(ssh-agent); ssh-add {key}",
        )


def _key(manner: Manner) -> Path:
    folder = user.home() / ".ssh"
    for each in (folder / name for name in _KEYS):
        if each.is_file() and each.with_suffix(".pub").is_file():
            return each
    command = keygen(folder / _KEYS[0])
    manner.show(
        f"there is no ssh key yet; this makes one without a passphrase, because medley "
        f"cannot type it:\n{command}"
    )
    if manner.dry:
        return folder / _KEYS[0]
    if not manner.consents("run this?"):
        raise Problem("there is no ssh key", cause="you declined a new one", fix=str(command))
    with storage.explain_errors(folder, "made"):
        folder.mkdir(mode=0o700, exist_ok=True)
    if (ended := process.run(command, limit_s=_LIMIT_S)).status:
        raise Problem("no ssh key was made", cause=" ".join(ended.lines), fix=f"by hand: {command}")
    return folder / _KEYS[0]


def keygen(path: Path) -> Command:
    return Command(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)))


def copy_id(key: Path, target: str) -> Command:
    """Split ssh://, which ssh-copy-id does not take, into host and port."""
    from_url, _, port = target.removeprefix("ssh://").partition(":")
    at = ("-p", port) if port else ()
    return Command(("ssh-copy-id", "-i", f"{key}.pub", "-o", "StrictHostKeyChecking=yes", *at, from_url))


def name_in_config(targets: Mapping[str, str], manner: Manner) -> None:
    path = (user.home() / ".ssh" / "config").resolve()  # it may be a link to another place
    old = _text(path)
    file = FileChange(path, with_aliases(old or "", targets), old)
    if file.text == (old or ""):
        return
    manner.show(file.diff.rstrip())
    if not manner.dry and manner.consents(f"change {path}?"):
        _write(file)


def with_aliases(text: str, targets: Mapping[str, str]) -> str:
    """Add these names and their targets to a config, except those that the user's own part has."""
    before, *after = _BLOCK.split(text)
    own, block = "".join((before, *after)), "".join(_BLOCK.findall(text))
    if _BEGIN in own or _END in own:
        raise Problem(
            "the ssh config has only a part of medley's block",
            cause=f"the line {_BEGIN!r} or {_END!r} is missing",
            fix="remove the rest of the block from ~/.ssh/config",
        )
    named = {each.name for each in ssh_config_candidates(own, "", lambda _: ())}
    stanzas = _stanzas(block) | {
        name: _stanza(name, target)
        for name, target in targets.items()
        if name not in named and is_plain(name)
    }
    if not stanzas or stanzas == _stanzas(block):
        return text
    made = "\n".join((_ABOUT, *stanzas.values(), _END)) + "\n"
    if after:  # where it was: the first value that ssh finds holds
        return "".join((before, made, *after))
    gap = "" if not own else "\n" if own.endswith("\n") else "\n\n"
    return own + gap + made


def _stanza(name: str, target: str) -> str:
    user, host, port = parts(target)
    values = {"HostName": host, "User": user, "Port": port}
    return "\n".join((f"Host {name}", *(f"    {key} {value}" for key, value in values.items() if value)))


def _stanzas(block: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    name = ""
    for line in block.splitlines():
        if line.startswith("Host "):
            name = line.removeprefix("Host ").strip()
        if line.strip() and not line.startswith("#"):
            found.setdefault(name, []).append(line.rstrip())
    return {each: "\n".join(text) for each, text in found.items() if each}


@dataclass(frozen=True)
class Peer:
    """The host that ssh means by a target, after all its configuration."""

    host: str
    port: int
    known_hosts: Path
    hashed: bool
    """Whether ssh hides the names in known_hosts."""
    indirect: bool
    """Whether it is reached through a proxy, or has its key under another name."""


def resolution(target: str) -> Command:
    """Return the command that prints the ssh configuration of a target; nothing is sent."""
    return Command(("ssh", "-G", "--", target))


def resolved_peer(said: Iterable[str], home: Path) -> Peer:
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
    hashed = ("-H",) if peer.hashed else ()
    return Command(("ssh-keyscan", *hashed, "-T", str(_SCAN_LIMIT_S), "-p", str(peer.port), peer.host))


def scanned(said: Iterable[str]) -> tuple[str, ...]:
    return tuple(line for line in said if fingerprint(line))


def fingerprint(line: str) -> str | None:
    """Return the sort and the hash of a line's key, as `ssh-keygen -lf` prints them."""
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
    shown = "\n".join(f"    {fingerprint(key)}" for key in keys)
    return f"{shown}\n  compare with the output of this command at the host's own screen: {_ITS_OWN}"


def _write(file: FileChange) -> None:
    folder = file.path.parent
    with storage.explain_errors(folder, "made"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise Problem(
            f"{file.path} cannot be written",
            cause=f"{folder} is not writable; another program may manage it",
            fix=f"add these lines with that program:\n{file.diff}",
        )
    storage.write(file.path, file.text, secret=True)


def _text(path: Path) -> str | None:
    return storage.read_text(path)
