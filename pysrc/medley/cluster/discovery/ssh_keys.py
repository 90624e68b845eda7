"""Give hosts the user's ssh key, learn their host keys, and name them in the ssh config.

Every change is shown before it is made; a host key is accepted only after the user has compared it.
"""

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from medley import process, storage, user
from medley.cluster import ssh
from medley.cluster.discovery.candidates import SSH_PORT, is_valid_host_name, split_target
from medley.cluster.discovery.sources import parse_ssh_config
from medley.command import Command
from medley.errors import Problem
from medley.network.link_backends import FileChange
from medley.values import Value

_COMMAND_LIMIT_S = 30
_SCAN_LIMIT_S = 5
_KEY_NAMES = ("id_ed25519", "id_ecdsa", "id_rsa")
_FINGERPRINT_COMMAND = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
_PORT_PATTERN = re.compile(r"[0-9]{1,5}")
_MIN_KEY_FIELDS = 3
_LENGTH_FIELD_BYTES = 4
"""Bytes of a length field."""
_SALT_BYTES = 20
"""Bytes of the salt of a hashed name, as ssh-keygen has them."""
_BLOCK_BEGIN = "# medley: begin"
_BLOCK_END = "# medley: end"
_BLOCK_TITLE = f"{_BLOCK_BEGIN} (from `medley init --keys`, which replaces this block)"
_BLOCK_PATTERN = re.compile(rf"^{_BLOCK_BEGIN}\b.*?^{_BLOCK_END}[^\n]*\n?", re.MULTILINE | re.DOTALL)


class UserDialog(Value):
    """The dialog that shows commands and changes to the user, and asks for consent."""

    show: Callable[[str], None]
    ask_consent: Callable[[str], bool]
    ask_trust: Callable[[str], bool] | None
    """Asks whether the fingerprints are right; None without a user to ask."""
    is_dry_run: bool = False


def set_up_ssh(name: str, target: str, dialog: UserDialog) -> None:
    """Set up ssh to a host without a password."""
    problem = find_ssh_problem(name, target)
    is_unknown = isinstance(problem, ssh.HostKeyUnknown)
    if problem and is_unknown:
        _accept_host_key(name, target, dialog, problem)
        problem = find_ssh_problem(name, target)
    if isinstance(problem, ssh.KeyRefused) or (is_unknown and dialog.is_dry_run):
        _install_key(name, target, dialog)
    elif problem:
        raise problem


def find_ssh_problem(name: str, target: str) -> Problem | None:
    """Return the reason why ssh cannot log in without a question."""
    finished = process.run(ssh.build_ssh_command(target, (("true",),), ()), limit_s=_COMMAND_LIMIT_S)
    return ssh.connection_problem(name, target, finished.lines, finished.status) if finished.status else None


def _accept_host_key(name: str, target: str, dialog: UserDialog, problem: Problem) -> None:
    peer = parse_peer(
        process.run(build_resolve_command(target), limit_s=_COMMAND_LIMIT_S).lines, user.find_home()
    )
    if peer.is_indirect:
        raise problem  # through a proxy, the key may be another host's
    command = build_scan_command(peer)
    dialog.show(f"{name}: ssh does not know its host key; fetching it: {command}")
    keys = select_key_lines(_scan_keys(command), peer)
    if not keys:
        raise problem
    dialog.show(format_comparison(keys))
    old_text = _read_text(peer.known_hosts)
    gap = "" if not old_text or old_text.endswith("\n") else "\n"
    change = FileChange(
        peer.known_hosts, (old_text or "") + gap + "".join(f"{key}\n" for key in keys), old_text
    )
    dialog.show(change.diff.rstrip())
    if dialog.is_dry_run:
        return
    if dialog.ask_trust is None:
        raise Problem(
            f"the host key of {name} is unknown, and --yes does not accept one",
            cause=" or ".join(filter(None, map(compute_fingerprint, keys))),
            fix=problem.fix,
        )
    if not dialog.ask_trust(f"are these the keys of {name}?"):
        raise Problem(
            f"the host key of {name} was not accepted", cause="you did not confirm it", fix=problem.fix
        )
    _write_change(change)


def _install_key(name: str, target: str, dialog: UserDialog) -> None:
    key = _choose_key(dialog)
    command = build_copy_id_command(key, target)
    dialog.show(str(command))
    if dialog.is_dry_run:
        return
    if not dialog.ask_consent("run this? it asks for your password there"):
        raise Problem(f"{name} did not get the key", cause="you declined", fix=str(command))
    if process.find_program("ssh-copy-id") is None:
        raise Problem(
            "ssh-copy-id not found", cause="it is not on PATH", fix="sudo apt install openssh-client"
        )
    if status := process.run_on_terminal(command):
        raise Problem(
            f"{name} did not take the key",
            cause=f"ssh-copy-id exited with {status}; its reason is above. Are password logins off?",
            fix=f"try it by hand: {command}; or log in there and put the key into ~/.ssh/authorized_keys",
        )
    if isinstance(problem := find_ssh_problem(name, target), ssh.KeyRefused):
        raise Problem(
            f"{name} has the key, and ssh still asks for a password",
            cause=f"{key} has a passphrase and no agent holds it, or the host refuses keys: {problem.cause}",
            fix=f"if it has a passphrase: eval $(ssh-agent); ssh-add {key}",
        )


def _choose_key(dialog: UserDialog) -> Path:
    folder = user.find_home() / ".ssh"
    for key_file in (folder / name for name in _KEY_NAMES):
        if key_file.is_file() and key_file.with_suffix(".pub").is_file():
            return key_file
    command = build_keygen_command(folder / _KEY_NAMES[0])
    dialog.show(
        f"there is no ssh key yet; this makes one without a passphrase, because medley "
        f"cannot type it:\n{command}"
    )
    if dialog.is_dry_run:
        return folder / _KEY_NAMES[0]
    if not dialog.ask_consent("run this?"):
        raise Problem("there is no ssh key", cause="you declined a new one", fix=str(command))
    with storage.explain_errors(folder, "made"):
        folder.mkdir(mode=0o700, exist_ok=True)
    if (finished := process.run(command, limit_s=_COMMAND_LIMIT_S)).status:
        raise Problem("no ssh key was made", cause=" ".join(finished.lines), fix=f"by hand: {command}")
    return folder / _KEY_NAMES[0]


def build_keygen_command(path: Path) -> Command:
    return Command(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)))


def build_copy_id_command(key: Path, target: str) -> Command:
    """Return the ssh-copy-id command; it takes no ssh://, so the target is split into host and port."""
    from_url, _, port = target.removeprefix("ssh://").partition(":")
    port_words = ("-p", port) if port else ()
    return Command(
        ("ssh-copy-id", "-i", f"{key}.pub", "-o", "StrictHostKeyChecking=yes", *port_words, from_url)
    )


def write_aliases(targets: Mapping[str, str], dialog: UserDialog) -> None:
    path = (user.find_home() / ".ssh" / "config").resolve()  # it may be a link to another place
    old_text = _read_text(path)
    change = FileChange(path, add_aliases(old_text or "", targets), old_text)
    if change.text == (old_text or ""):
        return
    dialog.show(change.diff.rstrip())
    if not dialog.is_dry_run and dialog.ask_consent(f"change {path}?"):
        _write_change(change)


def add_aliases(text: str, targets: Mapping[str, str]) -> str:
    """Return the config with these names and targets in medley's block, except names of the user's part."""
    before, *after = _BLOCK_PATTERN.split(text)
    own_text, block = "".join((before, *after)), "".join(_BLOCK_PATTERN.findall(text))
    if _BLOCK_BEGIN in own_text or _BLOCK_END in own_text:
        raise Problem(
            "the ssh config has only a part of medley's block",
            cause=f"the line {_BLOCK_BEGIN!r} or {_BLOCK_END!r} is missing",
            fix="remove the rest of the block from ~/.ssh/config",
        )
    own_names = {mention.name for mention in parse_ssh_config(own_text, "", lambda _: ())}
    stanzas = _parse_stanzas(block) | {
        name: _format_stanza(name, target)
        for name, target in targets.items()
        if name not in own_names and is_valid_host_name(name)
    }
    if not stanzas or stanzas == _parse_stanzas(block):
        return text
    new_block = "\n".join((_BLOCK_TITLE, *stanzas.values(), _BLOCK_END)) + "\n"
    if after:  # where it was: the first value that ssh finds holds
        return "".join((before, new_block, *after))
    if not own_text:
        return new_block
    gap = "\n" if own_text.endswith("\n") else "\n\n"
    return own_text + gap + new_block


def _format_stanza(name: str, target: str) -> str:
    user, host, port = split_target(target)
    values = {"HostName": host, "User": user, "Port": port}
    return "\n".join((f"Host {name}", *(f"    {key} {value}" for key, value in values.items() if value)))


def _parse_stanzas(block: str) -> dict[str, str]:
    lines_by_name: dict[str, list[str]] = {}
    name = ""
    for line in block.splitlines():
        if line.startswith("Host "):
            name = line.removeprefix("Host ").strip()
        if line.strip() and not line.startswith("#"):
            lines_by_name.setdefault(name, []).append(line.rstrip())
    return {host_name: "\n".join(lines) for host_name, lines in lines_by_name.items() if host_name}


class SshPeer(Value):
    """The host that ssh connects to for a target, as its whole configuration has it."""

    host: str
    port: int
    known_hosts: Path
    has_hashed_names: bool
    """Whether ssh hides the names in known_hosts."""
    is_indirect: bool
    """Whether it is reached through a proxy, or has its key under another name."""


def build_resolve_command(target: str) -> Command:
    """Return the command that prints the ssh configuration of a target; nothing is sent."""
    return Command(("ssh", "-G", "--", target))


def parse_peer(output: Iterable[str], home: Path) -> SshPeer:
    values: dict[str, str] = {}
    for line in output:
        key, _, value = line.partition(" ")
        values.setdefault(key, value)
    is_proxied = any(
        values.get(key, "none") != "none" for key in ("proxyjump", "proxycommand", "hostkeyalias")
    )
    host, port = values.get("hostname", ""), values.get("port", "")
    files = values.get("userknownhostsfile", "").split()
    return SshPeer(
        host,
        int(port) if _PORT_PATTERN.fullmatch(port) else SSH_PORT,
        Path(files[0].replace("~", str(home), 1) if files else home / ".ssh" / "known_hosts"),
        has_hashed_names=values.get("hashknownhosts") == "yes",
        is_indirect=is_proxied or not is_valid_host_name(host),
    )


def build_scan_command(peer: SshPeer) -> Command:
    return Command(("ssh-keyscan", "-T", str(_SCAN_LIMIT_S), "-p", str(peer.port), peer.host))


def _scan_keys(command: Command) -> list[str]:
    """Return the lines of ssh-keyscan's standard output; its errors may quote a text of the host."""
    lines: list[str] = []
    child = process.Process(command, lines.append, on_error=lambda _: None)
    if child.wait(_COMMAND_LIMIT_S) is None:
        child.stop(grace_s=_SCAN_LIMIT_S)
    return lines


def select_key_lines(output: Iterable[str], peer: SshPeer) -> tuple[str, ...]:
    """Return a line of known_hosts for each key, under the peer's own name: a host may print other names."""
    keys = dict.fromkeys(tuple(line.split()[1:3]) for line in output if compute_fingerprint(line))
    return tuple(" ".join((_format_known_name(peer), *key)) for key in keys)


def _format_known_name(peer: SshPeer) -> str:
    """Return a host's name as ssh writes it into known_hosts, hashed if ssh's configuration has it so."""
    name = peer.host.lower() if peer.port == SSH_PORT else f"[{peer.host.lower()}]:{peer.port}"
    if not peer.has_hashed_names:
        return name
    salt = os.urandom(_SALT_BYTES)
    digest = hmac.digest(salt, name.encode(), "sha1")
    return "|".join(("", "1", *(base64.b64encode(part).decode() for part in (salt, digest))))


def compute_fingerprint(line: str) -> str | None:
    """Return the hash and type of a line's key, as `ssh-keygen -lf` prints them; None for another line."""
    words = line.split()
    if line.startswith("#") or len(words) < _MIN_KEY_FIELDS:
        return None
    try:
        key = base64.b64decode(words[2], validate=True)
    except ValueError:  # no base64, or no ASCII
        return None
    if not key[_LENGTH_FIELD_BYTES:].startswith(words[1].encode()):  # a key begins with the name of its type
        return None
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
    return f"SHA256:{digest} ({words[1].removeprefix('ssh-').split('-')[0].upper()})"


def format_comparison(keys: Iterable[str]) -> str:
    fingerprints = "\n".join(f"    {compute_fingerprint(key)}" for key in keys)
    advice = "compare with the output of this command at the host's own screen"
    return f"{fingerprints}\n  {advice}: {_FINGERPRINT_COMMAND}"


def _write_change(change: FileChange) -> None:
    folder = change.path.parent
    with storage.explain_errors(folder, "made"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise Problem(
            f"{change.path} cannot be written",
            cause=f"{folder} is not writable; another program may manage it",
            fix=f"add these lines with that program:\n{change.diff}",
        )
    storage.write_text(change.path, change.text, secret=True)


def _read_text(path: Path) -> str | None:
    return storage.read_text(path)
