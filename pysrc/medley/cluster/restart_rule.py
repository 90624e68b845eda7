"""Decide when a unit or a server is restarted, how long medley waits before, and when it gives up.

`serving/restarter.py` restarts the engine of a server by this rule, and `units.py` the command of a unit.
"""

from medley.values import Value


class Restart(Value):
    """The rule for restarts: the first delay is `first_s` seconds, and each next one twice as long.

    Give up after `limit` restarts in a row of less than `lasting_s` each; None: never.
    """

    first_s: float = 2
    longest_s: float = 60
    limit: int | None = None
    lasting_s: float = 120

    def compute_next(self, done_count: int, lasted_s: float | None) -> tuple[int, float] | None:
        """Return the number of the next restart in a row and its delay; None: give up.

        The last of `done_count` restarts in a row lasted `lasted_s`; None: it was never ready.
        """
        if lasted_s is not None and lasted_s >= self.lasting_s:
            done_count = 0
        if self.limit is not None and done_count >= self.limit:
            return None
        return done_count + 1, float(min(self.longest_s, self.first_s * 2 ** min(done_count, 30)))


SERVED_ENGINE_RULE = Restart(first_s=2, longest_s=120, limit=10, lasting_s=600)
"""For the engine of `medley serve --restart`."""
KILLED_SERVER_RULE = Restart(limit=3)
"""For the unit of such a server: medley restarts its engine itself, so only a killed medley counts."""
RAY_RULE = Restart(longest_s=30)
SUPERVISOR_RULE = Restart(first_s=2, longest_s=2)
"""For the supervisor of a unit that restarts, where systemd starts it."""
SERVICE_RULE = Restart(first_s=5, longest_s=60)
"""For what starts at boot, without a limit: a head, link or hub that is missing then may come later."""
