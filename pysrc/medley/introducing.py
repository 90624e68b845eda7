"""Introducing makes this host and another known to each other for ssh: keys, and a name.

Every change is shown before it is made; a host key is taken only when a person has compared it.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from medley import host_key, machine, ssh, ssh_alias, store
from medley.command import Command
from medley.link.change import File
from medley.problem import Problem, in_words

_LIMIT_S = 30
_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")


@dataclass(frozen=True)
class Manner:
    """How it goes on: who is told, and who is asked."""

    show: Callable[[str], None]
    consents: Callable[[str], bool]
    trusts: Callable[[str], bool] | None
    """Asks whether the fingerprints shown are right; None where nobody can say."""
    dry: bool = False


def introduce(name: str, target: str, manner: Manner) -> None:
    """Until ssh gets in; a Problem where it does not."""
    problem = barred(name, target)
    unknown = isinstance(problem, ssh.Unknown)
    if problem and unknown:
        _learn(name, target, manner, problem)
        problem = barred(name, target)
    if isinstance(problem, ssh.Refused) or (unknown and manner.dry):
        _give(name, target, manner)
    elif problem:
        raise problem


def barred(name: str, target: str) -> Problem | None:
    """What keeps ssh out, without a question asked."""
    ended = machine.run(ssh.command(target, (("true",),), ()), limit_s=_LIMIT_S)
    return ssh.problem(name, target, ended.lines, ended.status) if ended.status else None


def _learn(name: str, target: str, manner: Manner, problem: Problem) -> None:
    """Its host key, which the user compares."""
    peer = host_key.peer(machine.run(host_key.resolution(target), limit_s=_LIMIT_S).lines, Path.home())
    if peer.indirect:
        raise problem  # what is seen from here need not be the key of that host
    command = host_key.scan(peer)
    manner.show(f"{name}: ssh does not know its host key; asking for it: {command}")
    keys = host_key.scanned(machine.run(command, limit_s=_LIMIT_S).lines)
    if not keys:
        raise problem
    manner.show(host_key.comparison(keys))
    old = _text(peer.file)
    file = File(peer.file, (old or "") + _gap(old) + "".join(f"{key}\n" for key in keys), old)
    manner.show(file.diff.rstrip())
    if manner.dry:
        return
    if manner.trusts is None:
        raise Problem(
            f"the host key of {name} is not known, and --yes does not take one",
            cause=" or ".join(filter(None, map(host_key.fingerprint, keys))),
            fix=problem.fix,
        )
    if not manner.trusts(f"are these the keys of {name}?"):
        raise Problem(
            f"the host key of {name} was not taken", cause="you did not know it for its own", fix=problem.fix
        )
    _write(file)


def _give(name: str, target: str, manner: Manner) -> None:
    """It our key, for which it asks the user for a password."""
    key = _key(manner)
    command = copy_id(key, target)
    manner.show(str(command))
    if manner.dry:
        return
    if not manner.consents("run this? it asks for your password there"):
        raise Problem(f"{name} was not given the key", cause="you said no", fix=str(command))
    _require("ssh-copy-id")
    if status := machine.attend(command):
        raise Problem(
            f"{name} did not take the key",
            cause=f"ssh-copy-id ended with {status}; above it says why. A host with passwords off takes none",
            fix=f"try it by hand: {command}; or log in there and put the key into ~/.ssh/authorized_keys",
        )
    if isinstance(problem := barred(name, target), ssh.Refused):
        raise Problem(
            f"{name} has the key, and ssh still does not get in without a question",
            cause=f"{key} has a passphrase that no agent holds, or that host takes no keys: {problem.cause}",
            fix=f"if it has a passphrase: eval $(ssh-agent); ssh-add {key}",
        )


def _key(manner: Manner) -> Path:
    """The user's own, or a new one."""
    folder = Path.home() / ".ssh"
    both = (
        each for name in _KEYS if (each := folder / name).is_file() and each.with_suffix(".pub").is_file()
    )
    found = next(both, None)
    if found:
        return found
    command = keygen(folder / _KEYS[0])
    manner.show(f"there is no ssh key yet; one without a passphrase, for medley cannot type it:\n{command}")
    if manner.dry:
        return folder / _KEYS[0]
    if not manner.consents("run this?"):
        raise Problem("there is no ssh key", cause="you said no to a new one", fix=str(command))
    folder.mkdir(mode=0o700, exist_ok=True)
    ended = machine.run(command, limit_s=_LIMIT_S)
    if ended.status:
        raise Problem("no ssh key was made", cause=" ".join(ended.lines), fix=f"by hand: {command}")
    return folder / _KEYS[0]


def keygen(path: Path) -> Command:
    return Command(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)))


def copy_id(key: Path, target: str) -> Command:
    """It takes no ssh://, so a port is told apart."""
    from_url, _, port = target.removeprefix("ssh://").partition(":")
    at = ("-p", port) if port else ()
    return Command(("ssh-copy-id", "-i", f"{key}.pub", "-o", "StrictHostKeyChecking=yes", *at, from_url))


def name_in_config(targets: Mapping[str, str], manner: Manner) -> None:
    """Short names for hosts that are known by an address alone."""
    path = (Path.home() / ".ssh" / "config").resolve()  # it may be kept elsewhere, and linked to
    old = _text(path)
    file = File(path, ssh_alias.with_aliases(old or "", targets), old)
    if file.text == (old or ""):
        return
    manner.show(file.diff.rstrip())
    if not manner.dry and manner.consents(f"change {path}?"):
        _write(file)


def _write(file: File) -> None:
    """For the user alone, as ssh wants it."""
    folder = file.path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise Problem(
            f"{file.path} cannot be written",
            cause=f"{folder} is not yours to change; another program may keep it",
            fix=f"put these lines there by its means:\n{file.diff}",
        )
    store.write(file.path, file.text, secret=True)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{path} cannot be read", cause=in_words(error), fix=f"mend it, or leave --keys out: file {path}"
        ) from error


def _gap(old: str | None) -> str:
    return "" if not old or old.endswith("\n") else "\n"


def _require(program: str) -> None:
    if machine.program(program) is None:
        raise Problem(
            f"there is no {program}", cause="it is not on PATH", fix="sudo apt install openssh-client"
        )
