"""Run a host's part of a model without Ray, as its head orders."""

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Literal, TypedDict

from medley import storage
from medley.cluster.rendezvous_head import ALIVE_EVERY_S, SILENT_LIMIT_S
from medley.command import AnnotatedCommand, Command, Flag, Variable
from medley.environment.payload import process_stacks
from medley.errors import Problem
from medley.explain import LastError, explain_engine_end
from medley.host import memory_pressure
from medley.host.memory_pressure import MemoryWatch
from medley.json_shape import fits
from medley.model.remote_code import Code
from medley.network.secure_channel import Channel, ChannelClosed, ChannelRefused
from medley.process import Process
from medley.process_identity import SharedMemory

_LOOK_EVERY_S = 0.2
_LONGEST = 100


class _Order(TypedDict):
    words: list[str]
    flags: list[tuple[list[str], str | None, str]]
    variables: list[tuple[str, str, str]]
    extra: list[str]
    files: dict[str, str]


class _Beside(TypedDict):
    needs: list[dict[str, Any]]
    code: Code | None
    cache: str


class _Fetch(TypedDict):
    repository: str
    revision: str | None


class _Terms(TypedDict):
    host: str
    engine: str
    engine_name: Literal["vllm", "sglang"]
    model: str
    target: str
    beside: _Beside
    script: str | None
    fetch: _Fetch | None


def as_table(reasoned: AnnotatedCommand) -> dict[str, Any]:
    """Return a command as an order to another host, in JSON."""
    return {
        "words": reasoned.words,
        "flags": [(flag.names, flag.value, flag.why) for flag in reasoned.flags],
        "variables": [(each.name, each.value, each.why) for each in reasoned.variables if not each.secret],
        "extra": reasoned.extra,
    }


def from_table(table: Mapping[str, Any], binary: Path, ours: tuple[Variable, ...]) -> AnnotatedCommand:
    """Return the command with this host's programs; its own variables, `ours`, win."""
    program, *words = table["words"]
    told = (Variable(*each) for each in table["variables"])
    names = {each.name for each in ours}
    return AnnotatedCommand(
        (str(binary / Path(program).name), *words),
        tuple(Flag(tuple(names), value, why) for names, value, why in table["flags"]),
        (*(each for each in told if each.name not in names), *ours),
        tuple(table["extra"]),
    )


def receive_order(channel: Channel) -> Mapping[str, Any] | None:
    """Wait for the order of this host; None where the head does not need it."""
    head = _Head(channel)
    while True:
        message = head.next_message()
        if "order" in message:
            return require_order(message["order"])
        if "end" in message:
            return None


def localized_order(order: Mapping[str, Any], folder: Path, moved: Mapping[str, str]) -> dict[str, Any]:
    """Write an order's files here; `moved`: prefixes of paths on the head, and their counterparts here."""
    here = {}
    for there, sent in order["files"].items():
        text = sent
        for theirs, ours in moved.items():
            text = text.replace(f'"{theirs}', f'"{ours}')
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        file = folder / digest / (PurePath(there).name.strip(".")[-_LONGEST:] or "file")
        storage.write(file, text)
        here[there] = str(file)

    def local(word: str) -> str:
        found = next((theirs for theirs in moved if word.startswith(theirs)), "")
        return here.get(word) or moved.get(found, "") + word.removeprefix(found)

    return {
        **order,
        "words": [local(word) for word in order["words"]],
        "flags": [(names, value and local(value), why) for names, value, why in order["flags"]],
        "variables": [(name, local(value), why) for name, value, why in order["variables"]],
        "extra": [local(word) for word in order["extra"]],
    }


def run_part(
    channel: Channel,
    command: Command,
    log: Path,
    on_line: Callable[[str], None],
    last_error: LastError,
    *,
    ends: bool = False,
) -> bool:
    """Run it until the head ends it, and return whether the head restarts it.

    `ends`: a successful end by itself is no Problem.
    """
    kills, process = memory_pressure.count_kernel_kills(), Process(command, on_line)
    process.die_first()
    head, done, again, memory, segments = _Head(channel), False, False, MemoryWatch(), SharedMemory()
    try:
        while "end" not in (message := head.next_message()):
            again = again or "again" in message
            if "look" in message:
                _send(
                    channel,
                    {
                        "looked": process_stacks.describe_processes(
                            [process.pid], stacks=bool(message["look"])
                        )
                    },
                )
            _watch_memory(channel, memory)
            segments.check()
            finished = None if done else process.poll()
            if finished is not None and ends and not finished.status:
                done = True
                _send(channel, {"done": True})
            elif finished is not None:
                problem = explain_engine_end(
                    finished,
                    ready=True,
                    log=log,
                    last_error=last_error,
                    killer=memory_pressure.describe_killer(kills),
                )
                _send(channel, {"ended": f"{problem.what}: {problem.cause}"})
                raise problem
        again = bool(message.get("again"))
    except Problem as problem:
        if not again:
            raise
        on_line(f"{problem.what}: {problem.cause}")
    finally:
        segments.settle()
        process.stop()
        segments.settle()
    _send(channel, {"ended": "the head ended it"})
    return again


def _watch_memory(channel: Channel, memory: MemoryWatch) -> None:
    """Tell the head while memory is low; end the part where it is about to run out."""
    before = memory.low
    if memory.look():
        problem = memory.problem("this host's part of the model")
        _send(channel, {"ended": f"{problem.what}: {problem.cause}"})
        raise problem
    if bool(before) != bool(memory.low):
        _send(channel, {"low": memory.low})


def require_terms(found: object) -> Mapping[str, Any]:
    if not isinstance(found, dict) or not fits(found, _Terms):
        raise _unknown("describes its model in a way")
    return found


def _unknown(what: str) -> Problem:
    return Problem(
        f"the head {what} that medley here does not know",
        cause="its medley has another version, or another program answered",
        fix="use the same medley on all hosts: git pull, or the same flake",
    )


def require_order(found: object) -> Mapping[str, Any]:
    if not isinstance(found, dict) or not fits(found, _Order) or not found["words"]:
        raise _unknown("sent an order")
    if "\\x00" in repr(found) or not all(names for names, _, _ in found["flags"]):
        raise _unknown("sent an order")
    return found


@contextlib.contextmanager
def alive(channel: Channel) -> Iterator[None]:
    done = threading.Event()

    def say() -> None:
        while not done.wait(ALIVE_EVERY_S):
            _send(channel, {"alive": True})

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class _Head:
    """The head; every wait for its messages sends it a sign of life."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._sent = 0.0

    def next_message(self) -> Mapping[str, Any]:
        """Return the next message, or an empty one after a moment."""
        try:
            if time.monotonic() - self._sent > ALIVE_EVERY_S:
                self._sent = time.monotonic()
                self._channel.send({"alive": True})
            message = self._channel.receive(_LOOK_EVERY_S)
        except (ChannelClosed, ChannelRefused) as error:
            raise _gone(str(error)) from error
        if time.monotonic() - self._channel.last_received_s > SILENT_LIMIT_S:
            raise _gone(f"nothing came for {SILENT_LIMIT_S:.0f} s: its power or link is gone")
        return message or {}


def _send(channel: Channel, message: Mapping[str, Any]) -> None:
    with contextlib.suppress(ChannelClosed):
        channel.send(message)


def _gone(cause: str) -> Problem:
    return Problem(
        "the head is gone, and its model with it",
        cause=cause,
        fix="start both again: on the head medley serve, then here medley join HEAD",
    )
