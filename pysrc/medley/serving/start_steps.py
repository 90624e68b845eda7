"""Show the steps of an engine's start as medley's own progress."""

import re
import time
from dataclasses import dataclass, field
from functools import cache

from medley import config
from medley.explain.lines import parse_line
from medley.progress import Progress

_SLOW_START_S = 60
"""An engine imports for 30 to 60 s on two cores before it prints a line that shows progress."""
_SLOW_START_HINT = "its own lines: medley logs -f"


@cache
def _read_steps() -> list[tuple[re.Pattern[str], str]]:
    table = config.read_module_table(__file__, "start_steps.toml")
    return [(re.compile(step["pattern"]), step["shows"]) for step in table["step"]]


def find_step(raw: str) -> str | None:
    """Return the step that an engine's line begins, in medley's words."""
    text = parse_line(raw).text
    matches = ((pattern.search(text), shows) for pattern, shows in _read_steps())
    return next((match.expand(shows) for match, shows in matches if match), None)


@dataclass
class StartSteps:
    """The start of one engine, from its first line until it is ready."""

    progress: Progress
    hint_at_s: float = field(default_factory=lambda: time.monotonic() + _SLOW_START_S)
    _step: str = "import"
    _is_slow: bool = False
    is_over: bool = False

    def __post_init__(self) -> None:
        self.progress.moved(self._step)

    def show_line(self, raw: str) -> None:
        """Show the step that this line begins."""
        if not self.is_over and (step := find_step(raw)):
            self._step = step
            self._show()

    def check(self) -> None:
        """Show where the engine's own lines are, once a start is slow; call it often."""
        if not (self.is_over or self._is_slow) and time.monotonic() >= self.hint_at_s:
            self._is_slow = True
            self._show()

    def _show(self) -> None:
        self.progress.moved(f"{self._step}; {_SLOW_START_HINT}" if self._is_slow else self._step)
