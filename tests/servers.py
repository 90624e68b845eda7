"""A server started as a user starts it, watched from outside."""

import json
import os
import re
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from medley import process
from medley.command import Command
from medley.process_identity import list_descendants
from tests.waiting import wait_for

READY_LIMIT_S = 600
END_LIMIT_S = 10


class Served:
    """`medley serve …`, typed in some way; its output is kept."""

    def __init__(self, command: Command) -> None:
        self.lines: list[str] = []
        self.process = process.Process(command, self.lines.append)

    def ready(self) -> str:
        """Wait for the line that says so; returns the server's base URL."""
        wait_for(
            "the server is ready, or ends",
            lambda: self._url() or self.process.poll() is not None,
            READY_LIMIT_S,
            state=self.tail,
        )
        url = self._url()
        assert url, self.tail()
        return url

    def _url(self) -> str | None:
        pattern = re.compile(r"^ready after \d+ s: .* at (\S+), and it answered")
        return next((match[1] for line in self.lines if (match := pattern.search(line))), None)

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ctrl-C; returns the exit status, and checks that nothing it started is left."""
        family = list_descendants(self.process.pid)
        assert family, "an engine has processes"
        os.kill(self.process.pid, number)
        finished = self.process.wait(30)
        assert finished is not None, self.tail()
        names = {each: each.name for each in family}

        def left() -> list[str]:
            return [names[each] for each in family if each.is_alive]

        # A killed engine takes a while to give its memory back; medley waits 3 s for that.
        wait_for("nothing that it started is left", lambda: not left(), END_LIMIT_S, state=left)
        return finished.status

    def tail(self) -> str:
        return "\n".join(self.lines[-40:])


Start = Callable[[Command], Served]


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the second where it ends between open and read
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def chat(url: str, text: str = "Hello", tokens: int = 16) -> dict[str, Any]:
    """One chat completion, by nothing of ours."""
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        said: dict[str, Any] = json.load(answer)
    return said
