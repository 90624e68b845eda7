"""Make, store and read the cluster's token and the API keys: files that only their owner can read.

Caddy checks the key of a request: `serving/edge.py` writes its rules.
"""

import ipaddress
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from medley import storage, user
from medley.command import quote_path
from medley.errors import Problem
from medley.unusable_file import skip_unusable_file

NONE = "none"
API_KEY_VARIABLE = "MEDLEY_API_KEY"
"""Not OpenAI's variable, because any server on this host would get the key of an account."""
_SECRET_NAME_PATTERN = re.compile(r"\w*(TOKEN|KEY|SECRET|PASSWORD|PASSWD)", re.IGNORECASE)
_API_KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]{24,128}")
"""Caddy reads `*` and braces in a key as its own signs."""
DEFAULT_KEY = "default"
"""The name of the key that medley makes by itself."""
_KEY_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_ORIGIN_PATTERN = re.compile(r"https?://[^/\s]+")
_MIN_TOKEN_CHARS = 32
"""Characters, because a false head could brute-force a shorter token."""
_TOKEN_PATTERN = re.compile(rf"[0-9A-Za-z_.-]{{{_MIN_TOKEN_CHARS},256}}")


def is_secret(name: str) -> bool:
    """Return whether an environment variable of this name holds a secret, not the name of its file."""
    return _SECRET_NAME_PATTERN.fullmatch(name) is not None


def find_token_file() -> Path:
    return storage.find_state_folder() / "token"


def ensure_token() -> Path:
    """Return the token's file; make a new token if there is none."""
    file = find_token_file()
    if not storage.exists(file):
        storage.write_text(file, secrets.token_hex(32), secret=True)
    return _close_to_others(file)


def store_token(text: str, source: str) -> Path:
    """Store a copied token next to the present one, which `keep_token` replaces once it works."""
    token = text.strip()
    if not _TOKEN_PATTERN.fullmatch(token):
        raise Problem(
            f"{source} is not a token",
            cause="it is empty"
            if not token
            else f"it has {len(token)} characters; a token is one word of {_MIN_TOKEN_CHARS} to 256",
            fix="copy the file that `medley ray-head` names on the head, then: --token-file FILE",
        )
    file = find_token_file().with_name("token.new")
    storage.write_text(file, token, secret=True)
    return file


def keep_token(file: Path) -> Path:
    with storage.explain_errors(find_token_file(), "written"):
        return file.replace(find_token_file())


def require_token() -> Path:
    """Return the token's file, which must exist."""
    file = find_token_file()
    if not storage.exists(file):
        raise Problem(
            "this host does not have the cluster's token",
            cause=f"{file} does not exist",
            fix="copy it from the head: medley ray-worker HEAD --token-file FILE, or: ssh HEAD cat "
            ".local/state/medley/token | medley ray-worker HEAD --token-file -",
        )
    return _close_to_others(file)


def find_api_key_file() -> Path:
    """Return the file of the key named `default`, which scripts and clients read."""
    return storage.find_state_folder() / "api-key"


def find_key_folder() -> Path:
    """Return the folder of the named keys other than the default; as a server's keys: all of medley's own."""
    return storage.find_state_folder() / "keys"


def is_reachable_address(address: str) -> bool:
    """Return whether other hosts can reach a server at this address."""
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address != "localhost"


def choose_keys(word: str | None, address: str, *, make: bool) -> Path | None:
    """Return where a server's keys are: a file or the key folder; None where requests need no key.

    `word`: a file or `none`; default: medley's own keys where others reach the address.
    """
    if word == NONE or (word is None and not is_reachable_address(address)):
        return None
    if word is not None:
        return require_key(word)
    if make:
        with _lock_keys():
            if not list_medley_keys():
                _write_key(DEFAULT_KEY, _generate_key())
    for file in list_medley_keys().values():
        _close_to_others(file)
    return find_key_folder()


def list_medley_keys() -> dict[str, Path]:
    """Return the file of each of medley's own keys by name, the default first."""
    default = find_api_key_file()
    named_files = {
        file.name: file
        for file in storage.list_folder(find_key_folder())
        if _KEY_NAME_PATTERN.fullmatch(file.name)
    }
    return ({DEFAULT_KEY: default} if storage.exists(default) else {}) | named_files


def read_keys(source: Path, on_damage: Callable[[str, Problem], str | None] | None = None) -> dict[str, str]:
    """Return a server's keys by name, from what `choose_keys` returned.

    Raises a Problem for a file without a key, or takes what `on_damage` returns for that name instead.
    """
    if source != find_key_folder():
        return {"key": read_api_key(source)}
    keys: dict[str, str] = {}
    for name, file in list_medley_keys().items():
        try:
            _require_single(read := read_api_key(file), name, keys)
            key: str | None = read
        except Problem as problem:
            if isinstance(problem.__cause__, FileNotFoundError):  # it was revoked meanwhile
                continue
            if on_damage is None:
                raise
            key = on_damage(name, problem)
        if key is not None and key not in keys.values():
            keys[name] = key
    return keys


def _require_single(key: str, name: str, keys: Mapping[str, str]) -> None:
    """Raise a Problem for a key that another name has: Caddy refuses it, with the key in its words."""
    if same := next((other for other, text in keys.items() if text == key), None):
        raise Problem(
            f"the key named {name} is that of {same}",
            cause=f"{list_medley_keys()[name]} has the same text, so it cannot be revoked alone",
            fix=f"rm {quote_path(list_medley_keys()[name])}",
        )


def choose_client_key_file(source: Path) -> Path:
    """Return a file with one of a server's keys, for clients on its host."""
    return (
        next(iter(list_medley_keys().values()), find_api_key_file())
        if source == find_key_folder()
        else source
    )


def remember_secret(file: Path) -> None:
    """Keep the path of a file of the user's that holds a secret, so that no report shows what it holds."""
    with skip_unusable_file():
        if file not in list_secret_files():
            storage.append_text(_find_secret_list(), f"{file}\n")


def list_secret_files() -> list[Path]:
    """Return the files that `remember_secret` was given; some may be gone."""
    return [Path(line) for line in (storage.read_text(_find_secret_list(), "replace") or "").splitlines()]


def _find_secret_list() -> Path:
    return storage.find_state_folder() / "secret-files"


def add_key(name: str, file: str | None = None) -> Path:
    """Add a key to medley's own: a new one, or the one in a file. Return where it is."""
    if not _KEY_NAME_PATTERN.fullmatch(name):
        raise Problem(
            f"{name!r} cannot name a key",
            cause="a name has 1 to 32 of a-z, 0-9 and -, and begins with a letter or digit",
            fix="medley key add alice",
        )
    with _lock_keys():
        before = list_medley_keys()
        if name in before:
            raise Problem(
                f"there is a key named {name} already",
                cause=f"{before[name]} has it",
                fix=f"choose another name, or revoke it first: medley key revoke {name}",
            )
        key = read_api_key(require_key(file)) if file else _generate_key()
        same = next((other for other, own in before.items() if read_api_key(own) == key), None)
        if same is not None:
            raise Problem(
                f"{file} has the key named {same}",
                cause=f"it could not be revoked without revoking {same}",
                fix=f"leave --file out to make a new key: medley key add {name}",
            )
        return _write_key(name, key)


def revoke_key(name: str) -> str:
    """Remove one of medley's own keys, and return it. The last one stays."""
    with _lock_keys():
        before = list_medley_keys()
        if name not in before:
            raise Problem(
                f"there is no key named {name}",
                cause=f"the keys are {', '.join(before)}" if before else "there are no keys",
                fix="medley key list",
            )
        if len(before) == 1:
            raise Problem(
                f"{name} is the last key",
                cause="without one, servers that need a key would refuse all requests",
                fix=f"medley key add NAME && medley key revoke {name}",
            )
        key = (storage.read_text(before[name], "replace") or "").strip()
        storage.remove_file(before[name])
    return key


def _generate_key() -> str:
    return f"sk-{secrets.token_hex(24)}"


def _write_key(name: str, key: str) -> Path:
    file = (
        find_api_key_file() if name == DEFAULT_KEY else storage.make_private_folder(find_key_folder()) / name
    )
    storage.write_text(file, key, secret=True)
    return file


@contextmanager
def _lock_keys() -> Iterator[None]:
    with storage.lock_file(storage.find_state_folder() / "keys.lock", on_wait=lambda: None):
        yield


def require_origins(origins: tuple[str, ...], key: str | None) -> None:
    """Raise a Problem for a word that is not an origin, or where requests of web pages would need no key."""
    wrong = next((origin for origin in origins if not _ORIGIN_PATTERN.fullmatch(origin)), None)
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


def require_key(word: str) -> Path:
    """Return the file of a key that the user names; a Problem where it has none."""
    file = user.expand_home(word).absolute()
    read_api_key(file)
    return _close_to_others(file)


def read_api_key(file: Path) -> str:
    """Return the key in a file; a Problem where it has none."""
    text = storage.read_text(file)
    if text is None:
        raise Problem(
            f"{file} cannot be read",
            cause="No such file or directory",
            fix="name a file with the key, or leave --api-key out to make one",
        ) from FileNotFoundError(file)
    key = text.strip()
    if not _API_KEY_PATTERN.fullmatch(key):
        raise Problem(
            f"{file} is not an API key",
            cause="it is empty"
            if not key
            else f"it has {len(key)} characters; a key is 24 to 128 letters, digits, - or _",
            fix=f"openssl rand -hex 24 > {file}",
        )
    return key


def _close_to_others(file: Path) -> Path:
    """Remove other users' access to the file, which a copy by hand often has.

    A file of another owner is unchanged: systemd passes credentials as root's, readable by an ACL, which
    shows as the group's mode.
    """
    with storage.explain_errors(file, "read"):
        status = file.stat()
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
            file.chmod(0o600)
    return file
