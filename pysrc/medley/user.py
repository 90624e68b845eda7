"""Name the user who runs medley, the user's home, and owners of files; a container may know none of them."""

import getpass
import os
import pwd
from contextlib import suppress
from pathlib import Path

NO_HOME = Path("/nonexistent")
"""The home of a user who has none, which Debian gives to `nobody`: nothing is there."""


def read_user_name() -> str:
    """Return the user's name, or the number of one without a name (docker run --user 1234)."""
    with suppress(KeyError, OSError):  # Python 3.13 raises OSError where earlier ones raise KeyError
        return getpass.getuser()
    return str(os.geteuid())


def find_home() -> Path:
    """Return $HOME, else the home in /etc/passwd, else NO_HOME: what only reads goes on without."""
    try:
        return Path.home()
    except RuntimeError:
        return NO_HOME


def expand_home(path: str | Path) -> Path:
    """Replace `~` and `~USER`; a name that nobody has stays as it is, as in a shell."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises RuntimeError for such a name


def describe_owner(uid: int) -> str:
    """Return `root (uid 0)`, or `uid 1234` where that has no name."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
