"""`Problem` (what, cause, fix), `Finding`, a problem that ends nothing, and the end by a signal."""

import re
import signal

from medley.values import Value

_ERRNO_PATTERN = re.compile(r"\[Errno -?\d+\] ?")


class Problem(Exception):  # noqa: N818 - it is what it says, and `except Problem` reads well
    """Something the user can act on.

    `what` happened, its `cause` with the numbers, the `fix` to type. `status` is the exit code: 1, or an
    engine's own where it died.
    """

    def __init__(self, what: str, *, cause: str, fix: str, status: int = 1) -> None:
        super().__init__(what, cause, fix)
        self.what, self.cause, self.fix, self.status = what, cause, fix, status

    @property
    def table(self) -> dict[str, str]:
        """The three texts by name, for programs."""
        return {"what": self.what, "cause": self.cause, "fix": self.fix}

    def __str__(self) -> str:
        return "\n".join((self.what, format_field("cause", self.cause), format_field("fix", self.fix)))


class Terminated(BaseException):
    """SIGTERM or SIGHUP: unwind as for Ctrl-C, so that everything started is ended."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        if self.number == signal.SIGHUP:
            return "its terminal was closed; medley serve --detach keeps a server running"
        return "ended by SIGTERM, as medley stop and kill send it"


def describe_error(error: BaseException) -> str:
    """Return why something could not be done, without the kernel's number for it and the file's name."""
    if isinstance(error, UnicodeDecodeError):
        byte = error.object[error.start]
        return f"it is not text: byte {error.start} is {byte:#04x}, which UTF-8 does not have"
    text = error.strerror if isinstance(error, OSError) else None
    return text or _ERRNO_PATTERN.sub("", str(error)) or type(error).__name__


def format_field(name: str, text: str) -> str:
    first, *further_lines = text.splitlines() or [""]
    return "\n".join([f"  {name + ':':<6} {first}", *(f"         {line}" for line in further_lines)])


class Finding(Value):
    """A condition that makes something slower or weaker; unlike a Problem it stops nothing."""

    what: str
    cause: str
    fix: str
    topic: str = ""
    """subnet, mtu, width, half, order, ring, gateway or kind: the key by which callers select findings."""
    ports: tuple[tuple[str, str], ...] = ()
    """(host, interface) of each port that the fix gives an address."""

    def __str__(self) -> str:
        return f"{self.what}: {self.cause}; {self.fix}"
