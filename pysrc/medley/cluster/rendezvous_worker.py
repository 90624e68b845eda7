"""Run the ranks of a host that joined a model without Ray, as its head orders."""

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Literal, TypedDict

from medley import storage
from medley.cluster.rendezvous_head import ALIVE_INTERVAL_S, SILENT_LIMIT_S
from medley.command import AnnotatedCommand, Command, Flag, Variable
from medley.environment.payload import process_stacks
from medley.errors import Problem
from medley.explain import LastError, explain_engine_end
from medley.host import memory_pressure
from medley.host.memory_pressure import MemoryWatch
from medley.json_shape import has_type
from medley.model.remote_code import Code
from medley.network.secure_channel import Channel, ChannelClosed, ChannelRefused
from medley.process import Process
from medley.process_identity import SharedMemoryCleaner

_POLL_INTERVAL_S = 0.2
_MAX_NAME_CHARS = 100


class _Order(TypedDict):
    words: list[str]
    flags: list[tuple[list[str], str | None, str]]
    variables: list[tuple[str, str, str]]
    extra: list[str]
    files: dict[str, str]


class _Extras(TypedDict):
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
    beside: _Extras
    script: str | None
    fetch: _Fetch | None


def build_command_table(annotated_command: AnnotatedCommand) -> dict[str, Any]:
    """Return a command in JSON, as the message `order` sends it to another host."""
    return {
        "words": annotated_command.words,
        "flags": [(flag.names, flag.value, flag.why) for flag in annotated_command.flags],
        "variables": [
            (variable.name, variable.value, variable.why)
            for variable in annotated_command.variables
            if not variable.secret
        ],
        "extra": annotated_command.extra,
    }


def parse_command_table(
    table: Mapping[str, Any], program_folder: Path, own_variables: tuple[Variable, ...]
) -> AnnotatedCommand:
    """Return the command with this host's programs; its own variables, `own_variables`, win."""
    program, *words = table["words"]
    order_variables = (Variable(*row) for row in table["variables"])
    own_names = {variable.name for variable in own_variables}
    return AnnotatedCommand(
        (str(program_folder / Path(program).name), *words),
        tuple(Flag(tuple(names), value, why) for names, value, why in table["flags"]),
        (*(variable for variable in order_variables if variable.name not in own_names), *own_variables),
        tuple(table["extra"]),
    )


def receive_command_table(channel: Channel) -> Mapping[str, Any] | None:
    """Wait for the command of this host; None where the head does not need it."""
    head = _Head(channel)
    while True:
        message = head.next_message()
        if "order" in message:
            return require_command_table(message["order"])
        if "end" in message:
            return None


def localize_command_table(
    table: Mapping[str, Any], folder: Path, path_prefixes: Mapping[str, str]
) -> dict[str, Any]:
    """Write a command's files here; `path_prefixes`: from the head's paths to those here."""
    local_paths = {}
    for head_path, head_text in table["files"].items():
        text = head_text
        for head_prefix, local_prefix in path_prefixes.items():
            text = text.replace(f'"{head_prefix}', f'"{local_prefix}')
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        file = folder / digest / (PurePath(head_path).name.strip(".")[-_MAX_NAME_CHARS:] or "file")
        storage.write_text(file, text)
        local_paths[head_path] = str(file)

    def localize_word(word: str) -> str:
        prefix = next((head_prefix for head_prefix in path_prefixes if word.startswith(head_prefix)), "")
        return local_paths.get(word) or path_prefixes.get(prefix, "") + word.removeprefix(prefix)

    return {
        **table,
        "words": [localize_word(word) for word in table["words"]],
        "flags": [(names, value and localize_word(value), why) for names, value, why in table["flags"]],
        "variables": [(name, localize_word(value), why) for name, value, why in table["variables"]],
        "extra": [localize_word(word) for word in table["extra"]],
    }


def run_node(
    channel: Channel,
    command: Command,
    log: Path,
    on_line: Callable[[str], None],
    find_last_error: LastError,
    *,
    may_end: bool = False,
) -> bool:
    """Run it until the head ends it, and return whether the head restarts it.

    `may_end`: a successful end by itself is no Problem.
    """
    kernel_kills, node_process = memory_pressure.count_kernel_kills(), Process(command, on_line)
    node_process.prefer_for_oom_kill()
    head, is_done, will_restart, memory, shared_memory = (
        _Head(channel),
        False,
        False,
        MemoryWatch(),
        SharedMemoryCleaner(),
    )
    try:
        while "end" not in (message := head.next_message()):
            will_restart = will_restart or "again" in message
            if "look" in message:
                _send(
                    channel,
                    {
                        "looked": process_stacks.describe_processes(
                            [node_process.pid], stacks=bool(message["look"])
                        )
                    },
                )
            _report_memory(channel, memory)
            shared_memory.check()
            finished = None if is_done else node_process.poll()
            if finished is not None and may_end and not finished.status:
                is_done = True
                _send(channel, {"done": True})
            elif finished is not None:
                problem = explain_engine_end(
                    finished,
                    ready=True,
                    log=log,
                    last_error=find_last_error,
                    killer=memory_pressure.describe_killer(kernel_kills),
                )
                _send(channel, {"ended": f"{problem.what}: {problem.cause}"})
                raise problem
        will_restart = bool(message.get("again"))
    except Problem as problem:
        if not will_restart:
            raise
        on_line(f"{problem.what}: {problem.cause}")
    finally:
        shared_memory.remove_unused()
        node_process.stop()
        shared_memory.remove_unused()
    _send(channel, {"ended": "the head ended it"})
    return will_restart


def _report_memory(channel: Channel, memory: MemoryWatch) -> None:
    """Report low memory to the head; raise a Problem if memory is about to run out."""
    low_before = memory.low
    if memory.check():
        problem = memory.build_problem("this host's part of the model")
        _send(channel, {"ended": f"{problem.what}: {problem.cause}"})
        raise problem
    if bool(low_before) != bool(memory.low):
        _send(channel, {"low": memory.low})


def require_terms(terms: object) -> Mapping[str, Any]:
    if not isinstance(terms, dict) or not has_type(terms, _Terms):
        raise _unknown_problem("describes its model in a way")
    return terms


def _unknown_problem(what: str) -> Problem:
    return Problem(
        f"the head {what} that medley here does not know",
        cause="its medley has another version, or another program answered",
        fix="use the same medley on all hosts: git pull, or the same flake",
    )


def require_command_table(table: object) -> Mapping[str, Any]:
    if not isinstance(table, dict) or not has_type(table, _Order) or not table["words"]:
        raise _unknown_problem("sent an order")
    if "\\x00" in repr(table) or not all(names for names, _, _ in table["flags"]):
        raise _unknown_problem("sent an order")
    return table


@contextlib.contextmanager
def send_signs_of_life(channel: Channel) -> Iterator[None]:
    stop_event = threading.Event()

    def send_signs() -> None:
        while not stop_event.wait(ALIVE_INTERVAL_S):
            _send(channel, {"alive": True})

    thread = threading.Thread(target=send_signs, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop_event.set()
        thread.join()


class _Head:
    """The connection to the head; each wait for a message also sends a sign of life."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._sent = 0.0

    def next_message(self) -> Mapping[str, Any]:
        """Return the next message, or an empty one after a moment."""
        try:
            if time.monotonic() - self._sent > ALIVE_INTERVAL_S:
                self._sent = time.monotonic()
                self._channel.send({"alive": True})
            message = self._channel.receive(_POLL_INTERVAL_S)
        except (ChannelClosed, ChannelRefused) as error:
            raise _head_gone_problem(str(error)) from error
        if time.monotonic() - self._channel.last_received_s > SILENT_LIMIT_S:
            raise _head_gone_problem(f"nothing came for {SILENT_LIMIT_S:.0f} s: its power or link is gone")
        return message or {}


def _send(channel: Channel, message: Mapping[str, Any]) -> None:
    with contextlib.suppress(ChannelClosed):
        channel.send(message)


def _head_gone_problem(cause: str) -> Problem:
    return Problem(
        "the head is gone, and its model with it",
        cause=cause,
        fix="start both again: on the head medley serve, then here medley join HEAD",
    )
