"""A terminal on a host: what is typed into a program there, and what it shows."""

import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.rack.host import Host
from tests.waiting import wait_for

LIMIT_S = 40


class Terminal:
    def __init__(self, own_end: int, process: "subprocess.Popen[bytes]") -> None:
        self._end, self._process = own_end, process
        self.shown = ""
        self._read_to = 0

    def sees(self, text: str, limit_s: float = LIMIT_S) -> str:
        """Wait until it is shown, behind what was waited for before; all that came until then."""
        wait_for(
            f"the terminal shows {text!r}, or the program ends",
            lambda: text in self.shown[self._read_to :] or not self._take(),
            limit_s,
            state=lambda: self.shown,
        )
        at = self.shown.find(text, self._read_to)
        assert at >= 0, f"it ended without {text!r}:\n{self.shown}"
        begun, self._read_to = self._read_to, at + len(text)
        return self.shown[begun : self._read_to]

    def types(self, text: str) -> None:
        # As late as a person: a Ctrl-C between a prompt and the read behind it is noted and ends nothing.
        time.sleep(0.5)
        os.write(self._end, text.encode())

    def ends(self, limit_s: float = LIMIT_S) -> int:
        """Its exit status."""
        wait_for("the program ends", lambda: not self._take(), limit_s, state=lambda: self.shown)
        return self._process.wait(20)

    def _take(self) -> bool:
        """Read what there is; false when the program has ended."""
        if not select.select([self._end], [], [], 0.1)[0]:
            return True
        try:
            some = os.read(self._end, 4096)
        except OSError:  # nobody holds the other end any more
            return False
        self.shown += some.decode(errors="replace").replace("\r\n", "\n")
        return bool(some)


@contextmanager
def terminal(host: Host, argv: Sequence[str]) -> Iterator[Terminal]:
    """It is the program's controlling one: Ctrl-C typed into it interrupts."""
    own, other = os.openpty()
    # A session of the program's own: what has brought it onto the host must outlive a Ctrl-C, and reap it.
    command = host.command(("setsid", "--ctty", "--wait", *argv))
    process = subprocess.Popen(
        command.argv,
        stdin=other,
        stdout=other,
        stderr=other,
        env={**command.build_environment(os.environ), "TERM": "dumb"},
    )
    os.close(other)
    try:
        yield Terminal(own, process)
    finally:
        os.close(own)  # who still reads there is hung up on
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
