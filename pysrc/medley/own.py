"""Medley's own command: how a process of medley's starts another."""

import os
import sys
from pathlib import Path

# What a medley that is started for another needs to know of the place it runs in; the rest its host knows.
_CARRIED = (
    *("MEDLEY_", "HF_", "XDG_", "LANG", "LC_", "HOME", "PATH", "NIX_SSL_CERT_FILE", "SSL_CERT_FILE"),
    *("DOCKER_", "CONTAINER_", "CONTAINERS_"),
)
# A unit is a file that stays; for its token the hub has a file of its own (hf auth login).
_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD")


def command() -> tuple[str, ...]:
    """The words that start this same medley from anywhere."""
    started = Path(sys.argv[0])
    if started.name == "medley" and os.access(started, os.X_OK):
        return (str(started.absolute()),)
    return (sys.executable, "-m", "medley")


def variables() -> dict[str, str]:
    """Of our environment what such a process must have where it inherits none, as a unit does not."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_CARRIED) and not name.endswith(_SECRET)
    }
