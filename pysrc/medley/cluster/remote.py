"""Connect to the agent on a host, send it requests, and check the shape of its answers."""

import json
import re
import shlex
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Self, TypedDict

from medley import json_shape, process
from medley.cluster import self_command, ssh
from medley.cluster.membership import Membership
from medley.cluster.units import UnitState
from medley.command import Command
from medley.errors import Problem
from medley.network.socket_url import write_socket_url
from medley.process_identity import ProcessIdentity
from medley.values import Value

GREETING_LIMIT_S = 20
_END_LIMIT_S = 5
_MAX_QUEUED_LINES = 32
"""Lines of a host that wait to be read; each has 8 MiB at most."""
Note = Callable[[str], None]


_PORT_PATTERN = re.compile(r":([0-9]{1,5})(?:/v1)?$")


class Server(Value):
    """A server that `medley serve` runs: its base URL, the model's name, and medley's own process."""

    url: str
    model: str
    pid: int
    started: int
    boot: str
    """`started` and `boot` distinguish that process from a later one with its number."""
    key: str | None = None
    state: str = "starting"
    since_s: float = 0
    drain_s: int = 0
    """Seconds that running requests have to finish when the server is ended."""
    hosts: str = ""
    """The addresses of the hosts of Ray that it runs over, with spaces between them."""
    folder: str = ""
    """The folder of its sockets: the engine's own, and the one by which the edge is controlled."""

    @property
    def port(self) -> int:
        """The port of the URL; 0 if the URL names none, which no medley writes."""
        match = _PORT_PATTERN.search(self.url)
        return int(match[1]) if match else 0

    @property
    def local_url(self) -> str:
        """The engine's own URL for this user's programs on its host: without a key and without the edge."""
        return write_socket_url(Path(self.folder) / "engine.sock") if self.folder else self.url

    @property
    def control_socket(self) -> Path:
        return Path(self.folder) / "control.sock"

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.started, self.boot)


class Greeting(TypedDict):
    medley: str
    host: str
    epoch_s: float


class Refusal(TypedDict):
    what: str
    cause: str
    fix: str


class _Node(TypedDict):
    address: str
    name: str
    alive: bool
    slots: int
    free: int


class _Memory(TypedDict):
    total_bytes: int
    available_bytes: int


class _Link(TypedDict):
    interface: str
    up: bool
    mbit: int | None


class _Manifest(TypedDict):
    files: list[tuple[str, int, str]]
    links: list[tuple[str, str]]
    piece_bytes: int


_ANSWER_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "look": {
        "transcript": str,
        "processes": int,
        "membership": Membership | None,
        "units": list[UnitState],
        "boots": bool | None,
        "user": str,
        "free_bytes": int,
        "state": str,
    },
    "prepare": {"terms": dict[str, Any], "slots": int},
    "token": {"token": str},
    "listen": {"ports": list[int]},
    "connect": {"closed": list[tuple[str, str, int, str]]},
    "begin": {"command": str, "why": list[tuple[str, str]]},
    "settle": {"nodes": list[_Node]},
    "gather": {"nodes": list[_Node]},
    "end": {"ended": int, "left": list[int]},
    "tell": {
        "membership": Membership | None,
        "units": list[UnitState],
        "servers": list[Server],
        "memory": _Memory,
        "wire": _Link | None,
        "low": list[str],
        "nodes": list[_Node] | Refusal | None,
    },
    "log": {"files": list[str]},
    "events": {"file": str},
    "type": {"status": int},
    "transfer: has": {"here": bool, "root": str, "free_bytes": int},
    "transfer: offer": {"manifest": _Manifest, "size_bytes": int, "digest": str},
    "transfer: pass on": {"port": int},
    "transfer: fetch": {"received_bytes": int},
    "transfer: verify": {"damage": list[str]},
    "examine": {"transcript": str},
}
"""The fields of each request's answer; `mend` and `sample` answer any table, which their callers check."""
_PARTIAL_REQUESTS = {"begin", "settle"}
"""Requests whose answers may lack fields."""


class ConnectionLost(Problem):
    """The connection to the host is gone."""


class NotAnswering(Problem):
    """The host is connected, but did not answer in time."""


class Remote:
    """A connection to an agent; its processes end with it, except units."""

    def __init__(self, name: str, target: str, command: Command) -> None:
        self.name, self._target = name, target
        # Bounded, because the other host decides how much it sends: ssh waits while the queue is full.
        self._lines: Queue[str] = Queue(_MAX_QUEUED_LINES)
        self._error_lines: deque[str] = deque(maxlen=_MAX_QUEUED_LINES)
        self._process = process.Process(command, self._lines.put, self._error_lines.append, has_stdin=True)
        self.greeting: Mapping[str, Any] = {}
        self.clock_ahead_s = 0.0
        """Seconds that the host's clock is ahead of this host's, within a message's delay."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_greeting(self, limit_s: float = GREETING_LIMIT_S) -> Mapping[str, Any]:
        deadline = time.monotonic() + limit_s
        while not self.greeting:
            message = self._read_message(deadline)
            if message is None:
                ended = self._process.poll()
                raise ssh.connection_problem(
                    self.name, self._target, self._error_lines, ended.status if ended else None
                )
            if "medley" in message:
                if not json_shape.has_type(message, Greeting):
                    raise invalid_answer_problem(self.name, "who are you")
                self.greeting = message
                self.clock_ahead_s = message["epoch_s"] - time.time()
        return self.greeting

    def ask(
        self, request: str, fields: Mapping[str, Any], limit_s: float, note: Note = lambda _: None
    ) -> Mapping[str, Any]:
        self._process.write_line(json.dumps({"do": request, "with": fields}))
        deadline = time.monotonic() + limit_s
        while True:
            match self._read_message(deadline):
                case None:
                    raise self._silence_problem(request, limit_s)
                case {"note": text}:
                    note(str(text))
                case {"problem": refusal}:
                    if not json_shape.has_type(refusal, Refusal):
                        raise invalid_answer_problem(self.name, request)
                    raise Problem(
                        f"{self.name}: {refusal['what']}", cause=refusal["cause"], fix=refusal["fix"]
                    )
                case {"said": answer}:
                    return require_answer(self.name, request, fields, answer)
                case _:  # a message of a later medley
                    pass

    def hang_up(self) -> None:
        self._process.close_stdin()

    def terminate(self) -> None:
        self._process.terminate()

    def close(self, limit_s: float = _END_LIMIT_S) -> None:
        self.hang_up()
        self._process.wait(limit_s)
        self._process.stop(grace_s=1)

    def _read_message(self, deadline: float) -> dict[str, Any] | None:
        """Return the next message in time, or None; skip other lines, of a login shell."""
        while time.monotonic() < deadline:
            try:
                line = self._lines.get(timeout=0.05)
            except Empty:
                if self._process.poll() and self._lines.empty():
                    return None
            else:
                if line.startswith("{") and (message := json_shape.parse_object(line)):
                    return message
        return None

    def _silence_problem(self, request: str, limit_s: float) -> Problem:
        if self._process.poll() is None:
            return NotAnswering(
                f"{self.name} did not answer in time",
                cause=f"{request!r} took more than {limit_s:.0f} s",
                fix=f"log in and check it: ssh {shlex.quote(self._target)}; "
                f"or go on without it: --without {self.name}",
            )
        return ConnectionLost(
            f"the connection to {self.name} is gone",
            cause=(self._error_lines or ["ssh printed nothing"])[-1],
            fix="check that it is on and connected, then run this again: finished steps are kept",
        )


def connect_local(name: str) -> Remote:
    return Remote(name, name, Command((*self_command.get_own_command(), "agent")))


def require_answer(
    host: str, request: str, request_fields: Mapping[str, Any], answer: object
) -> Mapping[str, Any]:
    """Return an answer of the right shape, else raise a Problem that names the host."""
    answer_fields = _ANSWER_FIELDS.get(
        f"{request}: {request_fields['step']}" if "step" in request_fields else request, {}
    )
    if isinstance(answer, dict) and json_shape.has_type(answer, dict[str, Any]):
        required_fields = {
            name: hint
            for name, hint in answer_fields.items()
            if name in answer or request not in _PARTIAL_REQUESTS
        }
        if all(
            name in answer and json_shape.has_type(answer[name], hint)
            for name, hint in required_fields.items()
        ):
            return answer
    raise invalid_answer_problem(host, request)


def invalid_answer_problem(host: str, request: str) -> Problem:
    return Problem(
        f"the answer of {host} to {request!r} is not valid",
        cause="its medley is older or newer, or another program answered",
        fix="use the same medley on all hosts: git pull, or the same flake",
    )
