"""Make and read the cluster's token and the API key: files that only their owner can read."""

import ipaddress
import os
import re
import secrets
import stat
from pathlib import Path

from medley import storage
from medley.errors import Problem, in_words

NONE = "none"
API_KEY_VARIABLE = "MEDLEY_API_KEY"
"""Not OpenAI's variable, because any server on this host would get the key of an account."""
_SECRET_NAME = re.compile(r"\w*(TOKEN|KEY|SECRET|PASSWORD|PASSWD)", re.IGNORECASE)
_API_KEY_SHAPE = re.compile(r"[A-Za-z0-9_-]{24,128}")
"""Caddy reads `*` and braces in a key as its own signs."""
_ORIGIN = re.compile(r"https?://[^/\s]+")
_LEAST = 32
"""Characters, because a false head could brute-force a shorter token."""
_TOKEN_SHAPE = re.compile(rf"[0-9A-Za-z_.-]{{{_LEAST},256}}")


def is_secret(name: str) -> bool:
    """Whether an environment variable of this name holds a secret, not the name of its file."""
    return _SECRET_NAME.fullmatch(name) is not None


def token_path() -> Path:
    return storage.state() / "token"


def made_token() -> Path:
    """Return the token's file; make a new token if there is none."""
    file = token_path()
    if not file.exists():
        storage.write(file, secrets.token_hex(32), secret=True)
    return _closed(file)


def given_token(text: str, source: str) -> Path:
    """Store a copied token next to the present one, which `keep_token` replaces once it works."""
    token = text.strip()
    if not _TOKEN_SHAPE.fullmatch(token):
        raise Problem(
            f"{source} is not a token",
            cause="it is empty"
            if not token
            else f"it has {len(token)} characters; a token is one word of {_LEAST} to 256",
            fix="copy the file that `medley ray-head` names on the head, then: --token-file FILE",
        )
    file = token_path().with_name("token.new")
    storage.write(file, token, secret=True)
    return file


def keep_token(file: Path) -> Path:
    return file.replace(token_path())


def present_token() -> Path:
    """Return the token's file, which must exist."""
    file = token_path()
    if not file.exists():
        raise Problem(
            "this host does not have the cluster's token",
            cause=f"{file} does not exist",
            fix="copy it from the head: medley ray-worker HEAD --token-file FILE, or: ssh HEAD cat "
            ".local/state/medley/token | medley ray-worker HEAD --token-file -",
        )
    return _closed(file)


def api_key_path() -> Path:
    return storage.state() / "api-key"


def is_open(address: str) -> bool:
    """Whether other hosts can reach a server at this address."""
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address != "localhost"


def chosen_api_key(asked: str | None, address: str, *, make: bool) -> Path | None:
    """Return the file of the API key; `asked`: a file or `none`, default: medley's if others reach it."""
    if asked == NONE or (asked is None and not is_open(address)):
        return None
    if asked is not None:
        return _given_api_key(Path(asked).expanduser().absolute())
    file = api_key_path()
    if make and not file.exists():
        storage.write(file, f"sk-{secrets.token_hex(24)}", secret=True)
    return _closed(file) if file.exists() else file


def require_origins(origins: tuple[str, ...], key: str | None) -> None:
    """Raise a Problem for a word that is not an origin, or where requests of web pages would need no key."""
    wrong = next((each for each in origins if not _ORIGIN.fullmatch(each)), None)
    if wrong is not None:
        raise Problem(
            f"{wrong} is not the origin of a web page",
            cause="an origin is scheme, name and port, without a path",
            fix="--allow-origin https://chat.example:3000",
        )
    if key == NONE:
        raise Problem(
            "--allow-origin needs an API key",
            cause="without a key every page that a browser of this host shows could ask",
            fix="leave --api-key none out: medley then makes a key",
        )


def client_key(asked: str | None) -> str | None:
    """Return the API key to send: from the file `asked`, else of the variable."""
    file = chosen_api_key(asked, "127.0.0.1", make=False) if asked else None
    return read_api_key(file) if file else os.environ.get(API_KEY_VARIABLE)


def _given_api_key(file: Path) -> Path:
    try:
        key = read_api_key(file)
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{file} cannot be read",
            cause=in_words(error),
            fix="name a file with the key, or leave --api-key out to make one",
        ) from error
    if not _API_KEY_SHAPE.fullmatch(key):
        raise Problem(
            f"{file} is not an API key",
            cause="it is empty"
            if not key
            else f"it has {len(key)} characters; a key is 24 to 128 letters, digits, - or _",
            fix=f"openssl rand -hex 24 > {file}",
        )
    return _closed(file)


def read_api_key(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip()


def _closed(file: Path) -> Path:
    """Remove other users' access to the file, which a copy by hand often has.

    A file of another owner is unchanged: systemd passes credentials as root's, readable by an ACL, which
    shows as the group's mode.
    """
    status = file.stat()
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
        file.chmod(0o600)
    return file
