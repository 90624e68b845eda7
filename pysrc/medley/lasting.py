"""Lasting is how long Ray is whole on this host: while its raylet is there, and on a head its gcs_server."""

import time
from pathlib import Path
from typing import NoReturn

from medley import membership
from medley.family import alive
from medley.problem import Problem

_VITAL = {"raylet", "gcs_server"}
_LOOK_EVERY_S = 1.0
_WORDS = 4


def stay() -> NoReturn:
    """Until one of them ends, which is a Problem; the rest is ended then, and when we are told to stop."""
    try:
        vital = _vital()
        while all(map(alive, vital)) and membership.noted():
            time.sleep(_LOOK_EVERY_S)
        gone = ", ".join(sorted(name for pid, name in vital.items() if not alive(pid)))
        raise Problem(
            "Ray has ended on this host",
            cause=f"{gone or 'its container'} is gone: {_last_words(gone.partition(',')[0])}",
            fix=f"look at what it wrote: ls {membership.folder()}/session_latest/logs",
        )
    finally:
        membership.stop()


def _vital() -> dict[int, str]:
    """None of a Ray in a container, which ends as a whole."""
    names = {pid: _name(pid) for pid in membership.processes()}
    return {pid: name for pid, name in names.items() if name in _VITAL}


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _last_words(name: str) -> str:
    try:
        log = membership.folder() / "session_latest" / "logs" / f"{name}.out"
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_WORDS:])
    except OSError:
        return "it left no log"
