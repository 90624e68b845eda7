"""What each errand answers, as JSON has it: an answer of another shape is another medley's, or nobody's."""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from medley.membership import Membership
from medley.problem import Problem
from medley.serving import Server
from medley.shaped import fits
from medley.units import State


class Greeting(TypedDict):
    """The first that an agent says."""

    medley: str
    host: str
    epoch_s: float


class Refusal(TypedDict):
    """A Problem of another host."""

    what: str
    cause: str
    fix: str


class _Node(TypedDict):
    address: str
    name: str
    alive: bool
    slots: int
    free: int


class _Look(TypedDict):
    transcript: str
    processes: int
    membership: Membership | None
    units: list[State]
    boots: bool | None
    user: str
    free_bytes: int
    state: str


class _Prepare(TypedDict):
    terms: dict[str, Any]
    slots: int


class _Begin(TypedDict):
    command: NotRequired[str]
    why: NotRequired[list[tuple[str, str]]]


class _Gathered(TypedDict):
    nodes: list[_Node]


class _Settle(TypedDict):
    nodes: NotRequired[list[_Node]]


class _Memory(TypedDict):
    total_bytes: int
    available_bytes: int


class _Wire(TypedDict):
    interface: str
    up: bool
    mbit: int | None


class _Tell(TypedDict):
    membership: Membership | None
    units: list[State]
    servers: list[Server]
    memory: _Memory
    wire: _Wire | None
    low: list[str]
    nodes: list[_Node] | Refusal | None


class _Manifest(TypedDict):
    files: list[tuple[str, int, str]]
    links: list[tuple[str, str]]
    piece_bytes: int


class _Transfer(TypedDict):
    """Each step of it has some of these."""

    here: NotRequired[bool]
    root: NotRequired[str]
    free_bytes: NotRequired[int]
    manifest: NotRequired[_Manifest]
    size_bytes: NotRequired[int]
    digest: NotRequired[str]
    port: NotRequired[int]
    received_bytes: NotRequired[int]
    damage: NotRequired[list[str]]


class _Token(TypedDict):
    token: str


class _Listen(TypedDict):
    ports: list[int]


class _Connect(TypedDict):
    closed: list[tuple[str, str, int, str]]


class _End(TypedDict):
    ended: int
    left: list[int]


class _Log(TypedDict):
    files: list[str]


class _Type(TypedDict):
    status: int


class _Examine(TypedDict):
    transcript: str


ANSWERS: Mapping[str, Any] = {
    "look": _Look,
    "prepare": _Prepare,
    "token": _Token,
    "listen": _Listen,
    "connect": _Connect,
    "begin": _Begin,
    "settle": _Settle,
    "gather": _Gathered,
    "end": _End,
    "tell": _Tell,
    "log": _Log,
    "type": _Type,
    "transfer": _Transfer,
    "examine": _Examine,
    "mend": dict[str, Any],
    "sample": dict[str, Any],  # `Sample.of` looks at it itself
}
_STEPS = {
    "has": {"here", "root", "free_bytes"},
    "offer": {"manifest", "size_bytes", "digest"},
    "pass on": {"port"},
    "fetch": {"received_bytes"},
    "verify": {"damage"},
}


def require(host: str, errand: str, asked: Mapping[str, Any], said: object) -> Mapping[str, Any]:
    """The answer, if it has the shape of one; a Problem that names the host if not."""
    keys = _STEPS.get(str(asked.get("step")), set()) if errand == "transfer" else set()
    if isinstance(said, dict) and fits(said, ANSWERS.get(errand, dict[str, Any])) and keys <= set(said):
        return said
    raise misunderstood(host, errand)


def misunderstood(host: str, errand: str) -> Problem:
    return Problem(
        f"{host} answers {errand!r} in another way than this medley",
        cause="its medley is older or newer, or something else speaks for it",
        fix="use the same medley on all hosts: git pull, or the same flake",
    )
