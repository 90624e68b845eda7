"""Start, stop and supervise the commands that this host keeps running.

A unit is a file; `medley kept NAME` is its supervisor, a process that runs the command, restarts it by the
unit's policy, and writes its state and its log.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from medley import process, process_identity, storage
from medley.cluster import events, self_command, systemd
from medley.cluster.rank_memory import RankMemory
from medley.cluster.unit_file import Restart, Unit
from medley.command import Command
from medley.errors import Problem, in_words
from medley.process import Finished, OnLine, Process
from medley.process_identity import (
    EndedOrStopped,
    Identity,
    SharedMemory,
    descendants,
    end_processes,
    reap_orphans,
)
from medley.unusable_file import optional

BEGINS = "medley keeps "
_STARTED_LIMIT_S = 10
_LOOK_EVERY_S = 0.2
_VITAL_EVERY_S = 1.0
STOPPED_LIMIT_S = 20.0
"""A stopped gcs_server accepts connections, and all of Ray hangs."""
_CLEAR_LIMIT_S = 30
_STOP_LIMIT_S = 30
"""For a unit with a damaged file."""
_LAST_LINES = 6
_TAIL_BYTES = 256 << 10
_LOG_BYTES = 64 << 20


@dataclass(frozen=True)
class State:
    """The state of a unit, as its supervisor last wrote it."""

    name: str
    keeper: int
    running: bool
    since_s: float
    """When it started or ended, since the epoch."""
    restarts: int = 0
    """Restarts in a row."""
    status: int | None = None
    said: str = ""
    """Its last lines when it ended."""
    next_s: float | None = None
    """When it restarts, since the epoch."""
    kept: bool = True
    """Whether its supervisor lives."""


def folder() -> Path:
    return storage.state() / "units"


def log(name: str) -> Path:
    return storage.state() / "logs" / f"{name}.log"


def start(unit: Unit) -> None:
    """Start it, in the place of one of its name that runs."""
    stop(unit.name)
    storage.write(folder() / f"{unit.name}.json", unit.to_json())
    _keep(unit.name)


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Raise a Problem where a unit of this name runs, or another medley starts one."""
    with storage.lock(folder() / f"{name}.starting") as ours:
        found = state(name)
        if not ours or (found and found.kept and (found.running or found.next_s is not None)):
            keeps = f"process {found.keeper} supervises it" if found else ""
            raise Problem(
                f"{name} is started already",
                cause=keeps if ours else "another medley is starting it",
                fix="medley stop  # then run this again; or use another port: --port 8001",
            )
        yield


def _keep(name: str) -> None:
    state_ = folder() / f"{name}.state"
    storage.remove_file(state_)
    keeper = Command((*self_command.own_command(), "kept", name))
    told = os.environ.get("MEDLEY_UNITS")  # systemd or own
    # By default systemd where the user lingers, so that units outlive the login and start at boot.
    if told == "systemd" if told else boots():
        # systemd restarts only the supervisor, so states and logs are the same everywhere.
        unit = read(name)
        again, limit_s = unit.restart and Restart(first_s=2, longest_s=2), unit.stop_limit_s + 10
        command = keeper.with_env(unit.command.env)
        systemd.start(Unit(name, unit.title, command, again, stop_limit_s=limit_s))
    else:
        process.detach(keeper, log(name))
    if not process.wait_until(lambda: storage.exists(state_), _STARTED_LIMIT_S, every_s=0.02):
        raise Problem(
            f"{name} did not start",
            cause=f"its supervisor did not start within {_STARTED_LIMIT_S} s",
            fix=f"read its log: tail {log(name)}",
        )


def boots() -> bool | None:
    """Whether units start at boot; None without systemd."""
    return systemd.lingers() if systemd.available() else None


def stop(name: str) -> bool:
    keeper = _keeper(name)
    if storage.exists(systemd.file(name)):
        systemd.stop(name)
    elif keeper is not None:
        unit = _intact(name)
        end_processes([keeper], grace_s=(unit.stop_limit_s if unit else _STOP_LIMIT_S) + 10)
    for suffix in ("state", "json", "lock"):
        storage.remove_file(folder() / f"{name}.{suffix}")
    return keeper is not None


def resume() -> list[str]:
    """Start all units that were not stopped, as at boot; returns their names."""
    names = [file.stem for file in storage.list_folder(folder(), "*.json") if _keeper(file.stem) is None]
    names = [name for name in names if _intact(name)]
    for name in names:
        _keep(name)
    return names


def read(name: str) -> Unit:
    """Read a unit, whose file a power cut may have damaged."""
    file = folder() / f"{name}.json"
    text = storage.read_text(file, errors="replace")
    try:
        return Unit.from_json(text or "")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Problem(
            f"{name} cannot be restarted",
            cause=f"{file} is damaged: {in_words(error)}",
            fix="medley up, or run the command that started it: medley serve MODEL --detach, medley ray-head",
        ) from error


def _intact(name: str) -> Unit | None:
    with suppress(Problem):
        return read(name)
    return None


def state(name: str) -> State | None:
    found, keeper = storage.read_record(folder() / f"{name}.state", State), _keeper(name)
    if found is None:
        # The file is damaged: the supervisor rewrites it with the next change.
        return State(name, keeper.pid, running=True, since_s=0) if keeper else None
    return found if keeper else replace(found, kept=False, running=False, next_s=None)


def said(name: str) -> list[str]:
    """Return the end of its log since its last start, without timestamps."""
    lines: list[str] = []
    with optional():
        lines = storage.read_end(log(name), _TAIL_BYTES).decode(errors="replace").splitlines()
    words = [line.partition(" ")[2] for line in lines]
    began = max((at for at, line in enumerate(words) if line.startswith(BEGINS)), default=-1)
    return words[began + 1 :]


def states() -> Iterator[State]:
    for file in storage.list_folder(folder(), "*.json"):
        with optional():
            if found := state(file.stem):
                yield found


def _keeper(name: str) -> Identity | None:
    """Find its supervisor, which holds the lock as long as it lives."""
    lock = folder() / f"{name}.lock"
    if not storage.exists(lock):
        return None
    with storage.lock(lock) as free:
        return None if free else process_identity.find_file_holder(lock, "kept", name)


def main(name: str) -> int:
    """Supervise a unit until it ends for good or this process is stopped."""
    os.chdir("/")  # hold no folder that a user may want to unmount
    unit = read(name)
    with storage.lock(folder() / f"{name}.lock") as ours:
        return _Keeper(unit, os.getpid()).run() if ours else 1


class _Keeper:
    def __init__(self, unit: Unit, pid: int) -> None:
        self.unit, self.segments = unit, SharedMemory()
        self.state = State(unit.name, pid, running=False, since_s=time.time())
        self._write()

    def run(self) -> int:
        while True:
            began = time.monotonic()
            finished = self._once()
            waits_s = self._note_end(finished, time.monotonic() - began)
            if self.unit.restart is None:
                return finished.status
            # Where it gave up: until this process is stopped. A clock that is set back delays nothing.
            ended = time.monotonic()
            while waits_s is None or time.monotonic() < ended + waits_s:
                time.sleep(_LOOK_EVERY_S)

    def _once(self) -> Finished:
        with storage.log(log(self.unit.name), longest_bytes=_LOG_BYTES) as keep:
            # A container goes on where its client and its keeper were killed together.
            if undo := self.unit.command.undo:
                process.run(Command(undo), limit_s=_CLEAR_LIMIT_S)
            keep(f"{BEGINS}{self.unit.name}: {self.unit.command}")
            running = Process(self.unit.command, keep)
            after = Process(self.unit.after, keep) if self.unit.after else None
            try:
                self._write(running=True, since_s=time.time(), next_s=None)
                finished = self._until_its_end(running, after, keep)
            finally:
                running.stop(self.unit.stop_limit_s)
                if after:
                    after.stop(1)
                end_processes(descendants(self.state.keeper), grace_s=2)
                self.segments.settle()
        return finished

    def _until_its_end(self, running: Process, after: Process | None, keep: OnLine) -> Finished:
        """Wait until it or a vital process ends, which its command may not notice."""
        vital, lost, ranks = self._vital(), EndedOrStopped(STOPPED_LIMIT_S), RankMemory(self.unit.name)
        while (finished := running.wait(_VITAL_EVERY_S if self.unit.vital else None)) is None:
            gone = sorted(vital[each] for each in lost.find(vital))
            if gone:
                said = f"medley: {', '.join(gone)} is gone, and {self.unit.name} with it"
                keep(said)
                running.stop(self.unit.stop_limit_s)
                ended = running.poll() or Finished(1, ())
                return replace(ended, lines=(*ended.lines, said))
            vital = self._vital()
            ranks.look(vital and descendants(self.state.keeper))
            self.segments.check()
            reap_orphans()
            if after:
                after.poll()
        return finished

    def _vital(self) -> dict[Identity, str]:
        below = descendants(self.state.keeper)
        return {each: name for each in below if (name := each.name) in self.unit.vital}

    def _note_end(self, finished: Finished, lasted_s: float) -> float | None:
        """Return the seconds until the restart; None: there is none."""
        rule = self.unit.restart
        restarts, waits_s = (rule and rule.due(self.state.restarts, lasted_s)) or (self.state.restarts, None)
        said = f"it ended with {finished.status}: {' '.join(finished.lines[-1:])}"
        if waits_s is not None:
            events.note("restart", self.unit.name, f"restart {restarts} in {waits_s:.0f} s: {said}")
        elif rule:
            events.note("fault", self.unit.name, f"given up after restart {restarts}: {said}")
        self._write(
            running=False,
            since_s=time.time(),
            restarts=restarts,
            status=finished.status,
            said="\n".join(finished.lines[-_LAST_LINES:]),
            next_s=time.time() + waits_s if waits_s is not None else None,
        )
        return waits_s

    def _write(self, **changed: Any) -> None:  # noqa: ANN401 - each field by its name
        self.state = replace(self.state, **changed)
        with optional():
            storage.write(folder() / f"{self.unit.name}.state", json.dumps(asdict(self.state)))
