"""The token opens a Ray cluster: who has it may join and run code, so its file is for its owner alone."""

import re
import secrets
import stat
from pathlib import Path

from medley import store
from medley.problem import Problem

_LEAST = 32
"""Characters: a host that only pretends to be the head hears enough to guess a shorter one at leisure."""
_SHAPE = re.compile(rf"[0-9A-Za-z_.-]{{{_LEAST},256}}")


def path() -> Path:
    return store.state() / "token"


def made() -> Path:
    """The token's file, made with a new token if there is none."""
    file = path()
    if not file.exists():
        store.write(file, secrets.token_hex(32), secret=True)
    return _checked(file)


def brought(text: str, source: str) -> Path:
    """Write down a token that was brought here, beside the one there may be; returns its file.

    It takes its place once the cluster has answered (`keep`): a wrong one must not cost the right one.
    """
    token = text.strip()
    if not _SHAPE.fullmatch(token):
        raise Problem(
            f"{source} holds no token",
            cause="it is empty"
            if not token
            else f"{len(token)} characters that are not one word of {_LEAST} to 256",
            fix="copy the file that `medley ray-head` names on the head, and give it as --token-file",
        )
    file = path().with_name("token.new")
    store.write(file, token, secret=True)
    return file


def keep(file: Path) -> Path:
    """Make this the token of this host; returns its place."""
    return file.replace(path())


def present() -> Path:
    """The token's file on a host that was given one before."""
    file = path()
    if not file.exists():
        raise Problem(
            "this host has no token of a cluster",
            cause=f"{file} is not there",
            fix="bring it from the head: medley ray-worker HEAD --token-file FILE, or: ssh HEAD cat "
            ".local/state/medley/token | medley ray-worker HEAD --token-file -",
        )
    return _checked(file)


def _checked(file: Path) -> Path:
    """The file, closed to others if it was open: a copy by hand seldom keeps its mode."""
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        file.chmod(0o600)
    return file
