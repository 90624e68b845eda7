"""Lasting is how long Ray is whole on this host: while its raylet is there, and on a head its gcs_server."""

import socket
import time
from typing import NoReturn

from medley import membership
from medley.membership import Membership
from medley.problem import Problem
from medley.process_identity import Identity, identified

VITAL = ("raylet", "gcs_server")
"""Names of the processes without which Ray is none; `ray start --block` does not see each of them end."""
_LOOK_EVERY_S = 1.0
_CONNECT_LIMIT_S = 1.0
_REFUSALS = 2
"""One after the other: a head under load may refuse one."""
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


class Watch:
    """For who runs something over Ray: a Problem once that Ray is another, or gone.

    A head's Ray comes back by itself within seconds, and knows nothing of what ran over the old one: its
    ranks answer no more, and nothing else would say so.
    """

    def __init__(self, part: Membership) -> None:
        self._part, self._vital = part, _vital()
        host, _, port = part.head.rpartition(":")
        self._head = (host.strip("[]"), int(port))
        self._looked = time.monotonic()
        self._refused = 0

    def look(self) -> None:
        """Often; most looks cost nothing."""
        if time.monotonic() < self._looked + _LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        gone = sorted(name for each, name in self._vital.items() if not each.alive)
        if gone:
            raise self._lost(f"{', '.join(gone)} of Ray ended on this host")
        try:
            socket.create_connection(self._head, timeout=_CONNECT_LIMIT_S).close()
            self._refused = 0
        except ConnectionRefusedError as error:
            self._refused += 1
            if self._refused >= _REFUSALS:
                raise self._lost(f"nothing listens any more at {self._part.head}") from error
        except OSError:  # a wire that is cut, which may mend: the engine itself hears of a loss
            pass

    def _lost(self, cause: str) -> Problem:
        return Problem(
            "the cluster's Ray has ended, and the model with it",
            cause=f"{cause}; one that starts anew knows nothing of its ranks",
            fix="medley status shows the cluster; bring it back: medley up; then serve again",
        )


def _vital() -> dict[Identity, str]:
    """None of a Ray in a container, which ends as a whole."""
    return {each: each.name for each in identified(membership.processes()) if each.name in VITAL}


def _last_words(name: str) -> str:
    try:
        log = membership.folder() / "session_latest" / "logs" / f"{name}.out"
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_WORDS:])
    except OSError:
        return "it left no log"
