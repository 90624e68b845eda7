"""Decide after which time without progress an engine is stalled, as the watchdog applies it."""

from dataclasses import dataclass

STALL_LIMIT_S = 120
"""The default of --stall-limit."""
SPINNING_LIMIT_FACTOR = 5
"""An engine may be active without progress for this multiple of `limit_s`."""
_UNKNOWN_LIMIT_FACTOR = 2
"""It may be idle for this multiple of `limit_s` while a host does not report its ranks."""
_REQUEST_PAUSE_S = 30.0


@dataclass
class ProgressClock:
    """The times of the last progress and the last activity, by time.monotonic()."""

    limit_s: float
    progress_at_s: float
    active_at_s: float = float("-inf")

    def is_suspect(self, now: float) -> bool:
        """Return whether it is time to send a request and to sample the processes."""
        return now - self.progress_at_s >= min(self.limit_s / 4, _REQUEST_PAUSE_S)

    def is_stalled(self, now: float, *, has_samples: bool) -> bool:
        """Return whether the engine is stalled; `has_samples`: all ranks were sampled since it was active."""
        idle_s = now - max(self.progress_at_s, self.active_at_s)
        is_spinning = now - self.progress_at_s >= self.limit_s * SPINNING_LIMIT_FACTOR
        return is_spinning or idle_s >= self.limit_s * (1 if has_samples else _UNKNOWN_LIMIT_FACTOR)
