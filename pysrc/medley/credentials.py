"""Make and read the cluster's token and the API key: files that only their owner can read."""

import ipaddress
import json
import os
import re
import secrets
import stat
from pathlib import Path

from medley import storage
from medley.errors import Problem, in_words

NONE = "none"
API_KEY_VARIABLE = "MEDLEY_API_KEY"
"""Not OpenAI's: whoever listens at a port of this host would be sent the key of an account."""
_SECRET_NAME = re.compile(r"\w*(TOKEN|KEY|SECRET|PASSWORD|PASSWD)", re.IGNORECASE)
_API_KEY_SHAPE = re.compile(r"[!-~]{8,512}")
_LEAST = 32
"""Characters: a host that only pretends to be the head hears enough to guess a shorter one at leisure."""
_TOKEN_SHAPE = re.compile(rf"[0-9A-Za-z_.-]{{{_LEAST},256}}")


def is_secret(name: str) -> bool:
    """Whether an environment variable of this name holds a secret; one that names its file does not."""
    return _SECRET_NAME.fullmatch(name) is not None


def token_path() -> Path:
    return storage.state() / "token"


def made_token() -> Path:
    """The token's file, made with a new token if there is none."""
    file = token_path()
    if not file.exists():
        storage.write(file, secrets.token_hex(32), secret=True)
    return _closed(file)


def given_token(text: str, source: str) -> Path:
    """Write down a token that was brought here, beside the one there may be; returns its file.

    It takes its place once the cluster has answered (`keep`): a wrong one must not cost the right one.
    """
    token = text.strip()
    if not _TOKEN_SHAPE.fullmatch(token):
        raise Problem(
            f"{source} holds no token",
            cause="it is empty"
            if not token
            else f"{len(token)} characters that are not one word of {_LEAST} to 256",
            fix="copy the file that `medley ray-head` names on the head, and give it as --token-file",
        )
    file = token_path().with_name("token.new")
    storage.write(file, token, secret=True)
    return file


def keep_token(file: Path) -> Path:
    """Make this the token of this host; returns its place."""
    return file.replace(token_path())


def present_token() -> Path:
    """The token's file on a host that was given one before."""
    file = token_path()
    if not file.exists():
        raise Problem(
            "this host has no token of a cluster",
            cause=f"{file} is not there",
            fix="bring it from the head: medley ray-worker HEAD --token-file FILE, or: ssh HEAD cat "
            ".local/state/medley/token | medley ray-worker HEAD --token-file -",
        )
    return _closed(file)


def api_key_path() -> Path:
    return storage.state() / "api-key"


def is_open(address: str) -> bool:
    """Whether who listens there is reached from other hosts."""
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address != "localhost"


def chosen_api_key(asked: str | None, address: str, *, make: bool) -> Path | None:
    """The file of the key that requests must give: as asked, or one of our own where others reach the server.

    `asked`: a file, or `none`. Without `make` nothing is written.
    """
    if asked == NONE or (asked is None and not is_open(address)):
        return None
    if asked is not None:
        return _given_api_key(Path(asked).expanduser().absolute())
    file = api_key_path()
    if make and not file.exists():
        storage.write(file, f"sk-{secrets.token_hex(24)}", secret=True)
    return _closed(file) if file.exists() else file


def client_key(asked: str | None, own: str | None = None) -> str | None:
    """Return the API key to send: from the file `asked`, else of the server here, else of the variable."""
    file = chosen_api_key(asked, "127.0.0.1", make=False) if asked else own and Path(own)
    return read_api_key(file) if file else os.environ.get(API_KEY_VARIABLE)


def _given_api_key(file: Path) -> Path:
    try:
        key = read_api_key(file)
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{file} cannot be read",
            cause=in_words(error),
            fix="name a file that holds the key, or leave --api-key out: then one is made",
        ) from error
    if not _API_KEY_SHAPE.fullmatch(key):
        raise Problem(
            f"{file} holds no key",
            cause="it is empty" if not key else f"{len(key)} characters that are not one word of 8 or more",
            fix=f"openssl rand -hex 24 > {file}",
        )
    return _closed(file)


def api_key_config_path(port: int) -> Path:
    """Where the key of the server on this port stands as SGLang's configuration."""
    return storage.state() / f"sglang-{port}.yaml"


def write_api_key_config(file: Path, key: str) -> None:
    """Write that configuration; a key has no sign that YAML would take for another thing in these quotes."""
    storage.write(file, f"api-key: {json.dumps(key)}\n", secret=True)


def require_no_other_config(flags: tuple[str, ...]) -> None:
    """A Problem where the user's flags name a configuration of their own, for SGLang takes only one."""
    if any(word.partition("=")[0] == "--config" for word in flags):
        raise Problem(
            "SGLang takes one --config, and the API key comes to it by one",
            cause="a key in a flag could be read by every user of this host",
            fix="say what your file says as flags after --, or: --api-key none",
        )


def read_api_key(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip()


def _closed(file: Path) -> Path:
    """The file, closed to others if it was open: a copy by hand seldom keeps its mode.

    A file of another owner stays as it is: systemd hands over a credential as root's, readable by an ACL,
    which shows as the mode of a group.
    """
    status = file.stat()
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
        file.chmod(0o600)
    return file
