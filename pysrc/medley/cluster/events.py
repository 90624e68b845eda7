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
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal, get_args

from medley import credentials, json_shape, storage
from medley.cluster import require_own
from medley.command import Command
from medley.errors import Problem, in_words
from medley.process import Process
from medley.unusable_file import optional

Kind = Literal["start", "ready", "fault", "restart", "recovery", "end", "upgrade"]
COMMAND = "MEDLEY_ON_EVENT"
_MOST_BYTES = 512 << 10
_LONGEST_TEXT = 4000
"""Then the older half is forgotten."""
_RUN_ON = {"fault", "recovery"}
_RUN_LIMIT_S, _RUN_EVERY_S = 30, 10
_LOOK_EVERY_S = 0.5
_PATH = re.compile(r"(?:~|\.{1,2})?/[^\s;&|<>$`\"']*")
_ran: dict[tuple[str, str], float] = {}
"""When the command began last, by kind and subject; of one that failed, by its own text."""


@dataclass(frozen=True)
class Event:
    at_s: float
    """Since the epoch."""
    kind: Kind
    subject: str
    """`demo on port 8000`, `medley-ray`."""
    text: str
    """One line: the reason, with its numbers."""


def file() -> Path:
    return storage.state() / "events.jsonl"


def command_file(text: str) -> Path:
    """Return the file of the user's command, as named or made of its text; only its owner can change it."""
    named = _named_file(text)
    if named is None:
        named = storage.state() / f"on-event-{storage.hash_bytes(text.encode())[:8]}"
        storage.write(named, f"{text}\n", secret=True)
    _argv(str(named))
    credentials.remember_secret(named)
    return named


def require_file(text: str) -> None:
    """Raise a Problem for a command that is not in a file, where others could read it."""
    if _named_file(text) is None:
        raise Problem(
            "the command of --on-event would be in a unit that every user can read",
            cause="its text may hold the address of a webhook",
            fix="write it into a file, and name that:\n(umask 077; cat > ~/.config/medley/on-event)\n"
            "medley service install serve MODEL -- --on-event ~/.config/medley/on-event",
        )


def _named_file(text: str) -> Path | None:
    return Path(text).expanduser().absolute() if _PATH.fullmatch(text) else None


def _argv(command: str) -> tuple[str, ...]:
    """Return how to run a file: itself where it is a program, else by sh; or a text of an older medley."""
    file = _named_file(command)
    if file is None:
        return ("/bin/sh", "-c", command)
    if not file.is_file():
        raise Problem(
            f"{file} of --on-event does not exist",
            cause="it is to be a file with a shell command, or a program",
            fix=f"(umask 077; cat > {quote(str(file))})  # the command, then Ctrl-D",
        )
    require_own(file, "medley runs it", f"chmod go-w {quote(str(file))} {quote(str(file.parent))}")
    return (str(file),) if os.access(file, os.X_OK) else ("/bin/sh", str(file))


def note(kind: Kind, subject: str, text: str) -> None:
    """Keep an event, and run the user's command on some; a full disk loses the event and nothing else."""
    found, now = Event(time.time(), kind, _clean(subject), _clean(text)), time.monotonic()
    _keep(found)
    command = os.environ.get(COMMAND)
    if command and kind in _RUN_ON and now >= _ran.get((kind, subject), float("-inf")) + _RUN_EVERY_S:
        _ran[kind, subject] = now
        # No daemon: a fault may be the end of this process, and it is reported before that.
        threading.Thread(target=_run, args=(command, found)).start()


def _clean(text: str) -> str:
    """Return one line that a variable of the user's command can hold: execve(2) takes no NUL, nor 128 kB."""
    whole = text.encode("utf-8", "replace").decode().replace("\0", "")
    return " ".join(whole.split())[:_LONGEST_TEXT]


def _keep(event: Event) -> None:
    line = json.dumps(asdict(event)) + "\n"
    with optional(), storage.lock(file().with_suffix(".lock"), waits=lambda: None):
        kept = storage.read_text(file(), errors="replace") or ""
        if len(kept) > _MOST_BYTES:
            lines = kept.splitlines(keepends=True)
            storage.write(file(), "".join(lines[len(lines) // 2 :]))
        storage.append(file(), line)
        counted = counts()
        counted[event.kind] += 1
        storage.overwrite(_counts(), json.dumps(counted))


def _run(command: str, event: Event) -> None:
    """Run the user's command; the first failure of each kind in this process is an event."""
    parts = {"": event.kind, "_SUBJECT": event.subject, "_TEXT": event.text}
    env = {f"MEDLEY_EVENT{name}": value for name, value in parts.items()}
    try:
        process = Process(Command(_argv(command), env), lambda _: None, has_stdin=True)
        process.say(json.dumps(asdict(event)))
        process.hang_up()
        finished = process.wait(_RUN_LIMIT_S)
        process.stop(grace_s=1)
        why = f"did not end within {_RUN_LIMIT_S} s"
        if finished:
            why = f"ended with {finished.status}: {' '.join(finished.lines[-1:])}" if finished.status else ""
    except Problem as problem:
        why = problem.cause
    except (OSError, ValueError) as error:
        why = f"could not start: {in_words(error)}"
    if why and (key := ("fault", "--on-event")) not in _ran:
        _ran[key] = time.monotonic()
        _keep(Event(time.time(), "fault", "command of --on-event", f"it {why}"))


def events() -> Iterator[Event]:
    """Yield all, the oldest first; a line that a power cut damaged is left out."""
    for line in (storage.read_text(file(), errors="replace") or "").splitlines():
        found = json_shape.table(line)
        if found is not None and json_shape.fits(found, Event):
            yield Event(**found)


def last(count: int, *, follow: bool) -> Iterator[Event]:
    """Yield the last `count`; with `follow` then each new one, without an end."""
    yield from (found := deque(events(), maxlen=count))
    seen, known_s = counts(), max((each.at_s for each in found), default=time.time())
    while follow:
        time.sleep(_LOOK_EVERY_S)
        if (now := counts()) != seen:
            seen, new = now, [each for each in events() if each.at_s > known_s]
            yield from new
            known_s = max((each.at_s for each in new), default=known_s)


def counts() -> dict[str, int]:
    """Count the events of each kind that were ever noted here."""
    found: dict[str, Any] = {}
    with optional():
        found = storage.read_table(_counts()) or {}
    return {kind: count if isinstance(count := found.get(kind), int) else 0 for kind in get_args(Kind)}


def _counts() -> Path:
    return storage.state() / "events.counts"
