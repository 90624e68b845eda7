"""Keep what happened to this host's servers and units: starts, ends, faults and restarts, with reasons.

A fault and a recovery also run the command in the file $MEDLEY_ON_EVENT, which `serve --on-event` sets: it
may hold a webhook's address, which no unit, log or command line is to show.
"""

import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from medley import credentials, json_shape, storage
from medley.cluster.cluster_file import require_own_file
from medley.command import Command, quote_path
from medley.errors import Problem, describe_error
from medley.process import Process
from medley.unusable_file import skip_unusable_file
from medley.values import Value

Kind = Literal["start", "ready", "fault", "restart", "recovery", "end", "upgrade"]
COMMAND_VARIABLE = "MEDLEY_ON_EVENT"
_MAX_FILE_BYTES = 512 << 10
"""Size of the events file above which its older half is deleted."""
_MAX_TEXT_CHARS = 4000
_COMMAND_KINDS = {"fault", "recovery"}
_RUN_LIMIT_S, _RUN_EVERY_S = 30, 10
_LOOK_EVERY_S = 0.5
_RUN_IN_FOLDER = ("/bin/sh", "-c", 'cd "$0" && exec "$@"')
"""Run the words after the next in that folder; env --chdir would take a path with = for a variable."""
_PATH_PATTERN = re.compile(r"(?:~|\.{1,2})?/[^\s;&|<>$`\"']*")
_RELATIVE_PATH_PATTERN = re.compile(r"(?<!\S)\.{1,2}/[^\s;&|<>$`\"'()]*")
_BARE_NAME_PATTERN = re.compile(r"(?<=\s)\w[\w+-]*\.[\w.+-]*(?![^\s;&|)])")
_command_started_s: dict[tuple[str, str], float] = {}
"""Monotonic time of the command's last start, in seconds, by kind and subject of the event."""


class Event(Value):
    at_s: float
    """Since the epoch."""
    kind: Kind
    subject: str
    """`demo on port 8000`, `medley-ray`."""
    text: str
    """One line: the reason, with its numbers."""


def get_events_file() -> Path:
    return storage.find_state_folder() / "events.jsonl"


def write_command_file(text: str) -> Path:
    """Return the file of the user's command; write one if `text` is no path. Only its owner can change it."""
    path = _parse_path(text)
    if path is None:
        text = _complete_paths(text)
        path = storage.find_state_folder() / f"on-event-{storage.hash_bytes(text.encode())[:8]}"
        storage.write_text(path, f"{text}\n", secret=True)
    _build_argv(str(path))
    credentials.remember_secret(path)
    return path


def _complete_paths(text: str) -> str:
    """Return a command with whole paths for relative ones, because it does not run in the current folder.

    Raise a Problem for a bare name that is a file here, but could be another word.
    """
    for word in _BARE_NAME_PATTERN.findall(text):
        if Path(word).exists():
            raise Problem(
                f"{word} in the command of --on-event is a file here, and the command runs elsewhere",
                cause="a command in this folder could run Python files of a stranger",
                fix=f"type its whole path: {quote_path(Path(word).absolute())}",
            )
    return _RELATIVE_PATH_PATTERN.sub(lambda match: quote_path(Path(match[0]).absolute()), text)


def require_command_file(text: str) -> None:
    """Raise a Problem for a command that is not in a file, where others could read it."""
    if _parse_path(text) is None:
        raise Problem(
            "the command of --on-event would be in a unit that every user can read",
            cause="its text may hold the address of a webhook",
            fix="write it into a file, and name that:\n(umask 077; cat > ~/.config/medley/on-event)\n"
            "medley service install serve MODEL -- --on-event ~/.config/medley/on-event",
        )


def _parse_path(text: str) -> Path | None:
    return Path(text).expanduser().absolute() if _PATH_PATTERN.fullmatch(text) else None


def _build_argv(command: str) -> tuple[str, ...]:
    """Return how to run a file: itself where it is a program, else by sh; or a text of an older medley.

    A file runs in its own folder and a text in /, because Python in them may import from the current folder.
    """
    file = _parse_path(command)
    if file is None:
        return (*_RUN_IN_FOLDER, "/", "/bin/sh", "-c", command)
    if not file.is_file():
        raise Problem(
            f"{file} of --on-event does not exist",
            cause="it is to be a file with a shell command, or a program",
            fix=f"(umask 077; cat > {quote_path(file)})  # the command, then Ctrl-D",
        )
    require_own_file(file, "medley runs it", f"chmod go-w {quote_path(file)} {quote_path(file.parent)}")
    words = (str(file),) if os.access(file, os.X_OK) else ("/bin/sh", str(file))
    return (*_RUN_IN_FOLDER, str(file.parent), *words)


def record_event(kind: Kind, subject: str, text: str) -> None:
    """Record an event; run the user's command on a fault or recovery. A full disk loses only the event."""
    event, now_s = Event(time.time(), kind, _clean_text(subject), _clean_text(text)), time.monotonic()
    _append_event(event)
    command = os.environ.get(COMMAND_VARIABLE)
    if (
        command
        and kind in _COMMAND_KINDS
        and now_s >= _command_started_s.get((kind, subject), float("-inf")) + _RUN_EVERY_S
    ):
        _command_started_s[kind, subject] = now_s
        # No daemon: a fault may be the end of this process, and it is reported before that.
        threading.Thread(target=_notify, args=(command, event, subject, text)).start()


def _notify(command: str, event: Event, subject: str, text: str) -> None:
    """Run the user's command with the event, without secrets and prompts: it may send them to a service.

    The names of hosts and models stay: a notice without them helps nobody. Secrets are hidden before the text
    becomes one line, because the end of a line ends many of them.
    """
    from medley.host.redact import redactor_of_host  # noqa: PLC0415 - as in unit_file.py, 40 ms

    redactor = redactor_of_host()
    subject, text = (_clean_text(redactor.hide_secrets(part)) for part in (subject, text))
    _run_command(command, event.replace(subject=subject, text=text))


def _clean_text(text: str) -> str:
    """Return one line that a variable of the user's command can hold: execve(2) takes no NUL, nor 128 kB."""
    printable = text.encode("utf-8", "replace").decode().replace("\0", "")
    return " ".join(printable.split())[:_MAX_TEXT_CHARS]


def _append_event(event: Event) -> None:
    line = json.dumps(event.to_table()) + "\n"
    with (
        skip_unusable_file(),
        storage.lock_file(get_events_file().with_suffix(".lock"), on_wait=lambda: None),
    ):
        text = storage.read_text(get_events_file(), errors="replace") or ""
        if len(text) > _MAX_FILE_BYTES:
            lines = text.splitlines(keepends=True)
            storage.write_text(get_events_file(), "".join(lines[len(lines) // 2 :]))
        storage.append_text(get_events_file(), line)
        event_counts = read_counts()
        event_counts[event.kind] += 1
        storage.write_text_in_place(_get_counts_file(), json.dumps(event_counts))


def _run_command(command: str, event: Event) -> None:
    """Run the user's command; the first failure of each kind in this process is an event."""
    fields = {"": event.kind, "_SUBJECT": event.subject, "_TEXT": event.text}
    env = {f"MEDLEY_EVENT{name}": value for name, value in fields.items()}
    try:
        command_process = Process(Command(_build_argv(command), env), lambda _: None, has_stdin=True)
        command_process.write_line(json.dumps(event.to_table()))
        command_process.close_stdin()
        finished = command_process.wait(_RUN_LIMIT_S)
        command_process.stop(grace_s=1)
        failure = f"did not end within {_RUN_LIMIT_S} s"
        if finished:
            failure = (
                f"ended with {finished.status}: {' '.join(finished.lines[-1:])}" if finished.status else ""
            )
    except Problem as problem:
        failure = problem.cause
    except (OSError, ValueError) as error:
        failure = f"could not start: {describe_error(error)}"
    if failure and (key := ("fault", "--on-event")) not in _command_started_s:
        _command_started_s[key] = time.monotonic()
        _append_event(Event(time.time(), "fault", "command of --on-event", f"it {failure}"))


def read_events() -> Iterator[Event]:
    """Yield all events, the oldest first; skip a line that a power cut damaged."""
    for line in (storage.read_text(get_events_file(), errors="replace") or "").splitlines():
        table = json_shape.parse_object(line)
        if table is not None and json_shape.has_type(table, Event):
            yield Event(**table)


def follow_events(count: int, *, follow: bool) -> Iterator[Event]:
    """Yield the last `count`; with `follow` then each new one, without an end."""
    yield from (recent := deque(read_events(), maxlen=count))
    seen_counts, newest_s = read_counts(), max((event.at_s for event in recent), default=time.time())
    while follow:
        time.sleep(_LOOK_EVERY_S)
        if (current_counts := read_counts()) != seen_counts:
            seen_counts, new_events = (
                current_counts,
                [event for event in read_events() if event.at_s > newest_s],
            )
            yield from new_events
            newest_s = max((event.at_s for event in new_events), default=newest_s)


def read_counts() -> dict[str, int]:
    """Return the number of events of each kind that this host ever recorded."""
    table: dict[str, Any] = {}
    with skip_unusable_file():
        table = storage.read_table(_get_counts_file()) or {}
    return {kind: count if isinstance(count := table.get(kind), int) else 0 for kind in get_args(Kind)}


def _get_counts_file() -> Path:
    return storage.find_state_folder() / "events.counts"
