"""Lasting is how long Ray is whole on this host: while its raylet is there, and on a head its gcs_server."""

import time
from pathlib import Path
from typing import NoReturn

from medley import membership
from medley.problem import Problem
from medley.process_identity import Identity, identified

_VITAL = {"raylet", "gcs_server"}
_LOOK_EVERY_S = 1.0
_WORDS = 4


def stay() -> NoReturn:
    """Until one of them ends, which is a Problem; the rest is ended then, and when we are told to stop."""
    try:
        vital = _vital()
        while all(each.alive for each in vital) and membership.noted():
            time.sleep(_LOOK_EVERY_S)
        gone = ", ".join(sorted(name for each, name in vital.items() if not each.alive))
        raise Problem(
            "Ray has ended on this host",
            cause=f"{gone or 'its container'} is gone: {_last_words(gone.partition(',')[0])}",
            fix=f"look at what it wrote: ls {membership.folder()}/session_latest/logs",
        )
    finally:
        membership.stop()


def _vital() -> dict[Identity, str]:
    """None of a Ray in a container, which ends as a whole."""
    names = {each: _name(each.pid) for each in identified(membership.processes())}
    return {each: name for each, name in names.items() if name in _VITAL}


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
