"""A real terminal on a host, by tmux: what is typed into it, and the screen as a person sees it."""

from collections.abc import Callable

from tests.rack.host import Host
from tests.waiting import LIMIT_S, wait_for


class Tmux:
    """A shell in a window of 80 columns and 24 lines; it ends with its host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        # Without the user's own settings; sh, because its prompt is short.
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "env", "PS1=> ", "sh")
        self._tmux("set-option", "-g", "status", "off")
        self.resize(80, 24)
        self.shows("a prompt", lambda lines: bool(lines and lines[0]))

    def types(self, line: str) -> None:
        self._tmux("send-keys", "-l", line)
        self.keys("Enter")

    def keys(self, *names: str) -> None:
        self._tmux("send-keys", *names)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def lines(self) -> list[str]:
        """The screen, without the empty lines at its end."""
        return self._tmux("capture-pane", "-p").rstrip("\n").split("\n")

    def painted(self) -> str:
        """With its colours."""
        return self._tmux("capture-pane", "-e", "-p")

    def says(self, form: str) -> str:
        return self._tmux("display-message", "-p", form).strip()

    def shows(
        self, description: str, true: Callable[[list[str]], bool], limit_s: float = LIMIT_S
    ) -> list[str]:
        """The screen, as soon as that is true of it."""

        def look() -> list[str] | None:
            return lines if true(lines := self.lines()) else None

        return wait_for(f"the screen shows {description}", look, limit_s, state=self.lines)

    def _tmux(self, *words: str) -> str:
        return self._host.says("tmux", "-L", "test", *words)
