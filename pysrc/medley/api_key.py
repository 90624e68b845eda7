"""An API key is what every request to a server must give; it is kept in a file that its owner alone reads."""

import ipaddress
import json
import re
import secrets
import stat
from pathlib import Path

from medley import store
from medley.problem import Problem, in_words

NONE = "none"
VARIABLE = "MEDLEY_API_KEY"
"""Not OpenAI's: whoever listens at a port of this host would be sent the key of an account."""
_SHAPE = re.compile(r"[!-~]{8,512}")


def path() -> Path:
    return store.state() / "api-key"


def opens(address: str) -> bool:
    """Whether who listens there is reached from other hosts."""
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address != "localhost"


def chosen(asked: str | None, address: str, *, make: bool) -> Path | None:
    """The file of the key that requests must give: as asked, or one of our own where others reach the server.

    `asked`: a file, or `none`. Without `make` nothing is written.
    """
    if asked == NONE or (asked is None and not opens(address)):
        return None
    if asked is not None:
        return _given(Path(asked).expanduser().absolute())
    file = path()
    if make and not file.exists():
        store.write(file, f"sk-{secrets.token_hex(24)}", secret=True)
    return _closed(file) if file.exists() else file


def config(port: int) -> Path:
    """Where the key of the server on this port stands as SGLang's configuration."""
    return store.state() / f"sglang-{port}.yaml"


def configure(file: Path, key: str) -> None:
    """Write that configuration; a key has no sign that YAML would take for another thing in these quotes."""
    store.write(file, f"api-key: {json.dumps(key)}\n", secret=True)


def require_ours(flags: tuple[str, ...]) -> None:
    """A Problem where the user's flags name a configuration of their own, for SGLang takes only one."""
    if any(word.partition("=")[0] == "--config" for word in flags):
        raise Problem(
            "SGLang takes one --config, and the API key comes to it by one",
            cause="a key in a flag could be read by every user of this host",
            fix="say what your file says as flags after --, or: --api-key none",
        )


def read(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip()


def _given(file: Path) -> Path:
    try:
        key = read(file)
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{file} cannot be read",
            cause=in_words(error),
            fix="name a file that holds the key, or leave --api-key out: then one is made",
        ) from error
    if not _SHAPE.fullmatch(key):
        raise Problem(
            f"{file} holds no key",
            cause="it is empty" if not key else f"{len(key)} characters that are not one word of 8 or more",
            fix=f"openssl rand -hex 24 > {file}",
        )
    return _closed(file)


def _closed(file: Path) -> Path:
    """Closed to others if it was open."""
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        file.chmod(0o600)
    return file
