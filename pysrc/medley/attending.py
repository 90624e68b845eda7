"""Attending is a host's part in a model that another host heads: its own ranks, from `medley join` on."""

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Literal, TypedDict

from medley import store
from medley.command import Command
from medley.machine import Process
from medley.meeting import ALIVE_EVERY_S, SILENT_LIMIT_S
from medley.problem import Problem
from medley.reasoned import Flag, Reasoned
from medley.remote_code import Code
from medley.sealed import Channel, Closed, Refused
from medley.shaped import fits
from medley.supervise import LastError, died
from medley.variables import Variable

_LOOK_EVERY_S = 0.2
_LONGEST = 100
"""Characters of a file's name."""


class _Order(TypedDict):
    """What a host is to run, as JSON has it."""

    words: list[str]
    flags: list[tuple[list[str], str | None, str]]
    variables: list[tuple[str, str, str]]
    extra: list[str]
    files: dict[str, str]


def as_table(reasoned: Reasoned) -> dict[str, Any]:
    """A command as an order to another host, whose own folders of programs are not known here."""
    return {
        "words": reasoned.words,
        "flags": [(flag.names, flag.value, flag.why) for flag in reasoned.flags],
        "variables": [(each.name, each.value, each.why) for each in reasoned.variables if not each.secret],
        "extra": reasoned.extra,
    }


def from_table(table: Mapping[str, Any], binary: Path, ours: tuple[Variable, ...]) -> Reasoned:
    """The command as it is here; `ours` are this host's own variables, which win."""
    program, *words = table["words"]
    told = (Variable(*each) for each in table["variables"])
    names = {each.name for each in ours}
    return Reasoned(
        (str(binary / Path(program).name), *words),
        tuple(Flag(tuple(names), value, why) for names, value, why in table["flags"]),
        (*(each for each in told if each.name not in names), *ours),
        tuple(table["extra"]),
    )


@contextlib.contextmanager
def alive(channel: Channel) -> Iterator[None]:
    """The head hears of us while the body takes its time."""
    done = threading.Event()

    def say() -> None:
        while not done.wait(ALIVE_EVERY_S):
            with contextlib.suppress(Closed):
                channel.send({"alive": True})

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def order(channel: Channel) -> Mapping[str, Any] | None:
    """What this host is to run, once all have come; None where the head wants nothing of it."""
    told = _Told(channel)
    while True:
        message = told.next()
        if message and "order" in message:
            return require_order(message["order"])
        if message and "end" in message:
            return None


class _Beside(TypedDict):
    needs: list[dict[str, Any]]
    code: Code | None
    cache: str


class _Terms(TypedDict):
    """What a head says of its model first."""

    host: str
    engine: str
    engine_name: Literal["vllm", "sglang"]
    model: str
    target: str
    beside: _Beside
    script: str | None


def require_terms(found: object) -> Mapping[str, Any]:
    """They, if they have the shape of some."""
    if not isinstance(found, dict) or not fits(found, _Terms):
        raise _unknown("says what it serves in a way")
    return found


def _unknown(what: str) -> Problem:
    return Problem(
        f"the head {what} that medley here does not know",
        cause="its medley is another version, or it is none",
        fix="use the same medley on all hosts: git pull, or the same flake",
    )


def require_order(found: object) -> Mapping[str, Any]:
    """It, if it has the shape of one."""
    if not isinstance(found, dict) or not fits(found, _Order) or not found["words"] or "\\x00" in repr(found):
        raise _unknown("orders something")
    return found


def kept(order: Mapping[str, Any], folder: Path, moved: Mapping[str, str]) -> dict[str, Any]:
    """The order with the head's files in a folder of this host's, each named where the head's was.

    `moved`: beginnings of paths that their text names, and what they are here.
    """
    here = {}
    for there, sent in order["files"].items():
        text = sent
        for theirs, ours in moved.items():
            text = text.replace(f'"{theirs}', f'"{ours}')
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        file = folder / digest / (PurePath(there).name.strip(".")[-_LONGEST:] or "file")
        store.write(file, text)
        here[there] = str(file)
    return {
        **order,
        "words": [here.get(word, word) for word in order["words"]],
        "variables": [(name, here.get(value, value), why) for name, value, why in order["variables"]],
        "extra": [here.get(word, word) for word in order["extra"]],
    }


def attend(
    channel: Channel,
    command: Command,
    log: Path,
    on_line: Callable[[str], None],
    last_error: LastError,
    *,
    ends: bool = False,
) -> None:
    """Run it until the head ends it; a Problem where it ends by itself, or the head is gone.

    `ends`: it may end well by itself, and the head waits for it.
    """
    process = Process(command, on_line)
    told, done = _Told(channel), False
    try:
        while True:
            message = told.next()
            if message and "end" in message:
                break
            finished = None if done else process.poll()
            if finished is not None and ends and not finished.status:
                done = True
                with contextlib.suppress(Closed):
                    channel.send({"done": True})
            elif finished is not None:
                problem = died(finished, ready=True, log=log, last_error=last_error)
                _say(channel, f"{problem.what}: {problem.cause}")
                raise problem
    finally:
        process.stop()
    _say(channel, "as it was told")


class _Told:
    """What the head says, while it hears that we live."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._said = 0.0

    def next(self) -> Mapping[str, Any] | None:
        try:
            if time.monotonic() - self._said > ALIVE_EVERY_S:
                self._said = time.monotonic()
                self._channel.send({"alive": True})
            message = self._channel.receive(_LOOK_EVERY_S)
        except (Closed, Refused) as error:
            raise _gone(str(error)) from error
        if time.monotonic() - self._channel.heard > SILENT_LIMIT_S:
            raise _gone(f"it is silent for {SILENT_LIMIT_S:.0f} s: its power or the link is gone")
        return message


def _say(channel: Channel, words: str) -> None:
    with contextlib.suppress(Closed):
        channel.send({"ended": words})


def _gone(cause: str) -> Problem:
    return Problem(
        "the head is gone, and its model with it",
        cause=cause,
        fix="start both again: medley serve there, then medley join here",
    )
