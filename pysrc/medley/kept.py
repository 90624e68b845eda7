"""A keeper keeps one unit running where no systemd does: starts it, again where it ends, notes how it is."""

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from medley import ending, machine, store, units
from medley.command import Command
from medley.family import descendants
from medley.process_identity import Identity, identified
from medley.unit import Unit
from medley.units import State

_LOOK_EVERY_S = 0.2
_VITAL_EVERY_S = 1.0
_WORDS = 6
_LOG_BYTES = 64 << 20
_CLEAR_LIMIT_S = 30


def main(name: str) -> int:
    """`medley kept UNIT`: until it ends for good, or we are told to stop; then nothing of it is left."""
    os.chdir("/")  # no folder is held that somebody may want to unmount
    unit = units.read(name)
    with store.lock(units.folder() / f"{name}.lock") as ours:
        return _Keeper(unit, os.getpid()).run() if ours else 1


class _Keeper:
    def __init__(self, unit: Unit, pid: int) -> None:
        self.unit = unit
        self.state = State(unit.name, pid, running=False, since_s=time.time())
        self._woken = False
        self._write()
        signal.signal(signal.SIGUSR1, self._wake)

    def run(self) -> int:
        while True:
            began = time.monotonic()
            finished = self._once()
            self._ended(finished, time.monotonic() - began)
            if not self._waited():
                return finished.status

    def _once(self) -> machine.Finished:
        with _Log(units.log(self.unit.name)) as keep:
            self._clear()
            keep.line(f"{units.BEGINS}{self.unit.name}: {self.unit.command}")
            process = machine.Process(self.unit.command, keep.line)
            after = machine.Process(self.unit.after, keep.line) if self.unit.after else None
            try:
                self._write(running=True, since_s=time.time(), next_s=None)
                finished = self._until_its_end(process, keep)
            finally:
                process.stop(self.unit.stop_limit_s)
                if after:
                    after.stop(1)
                ending.end(identified(descendants(self.state.keeper)), grace_s=2)
        return finished

    def _until_its_end(self, process: machine.Process, keep: "_Log") -> machine.Finished:
        """Or that of a part without which it is none, which its own command may not notice."""
        vital: dict[Identity, str] = {}
        while (finished := process.wait(_VITAL_EVERY_S if self.unit.vital else None)) is None:
            gone = sorted(name for each, name in vital.items() if not each.alive)
            if gone:
                said = f"medley: {', '.join(gone)} is gone, and {self.unit.name} with it"
                keep.line(said)
                process.stop(self.unit.stop_limit_s)
                ended = process.poll() or machine.Finished(1, ())
                return replace(ended, lines=(*ended.lines, said))
            found = identified(descendants(self.state.keeper))
            vital = {each: name for each in found if (name := each.name) in self.unit.vital}
        return finished

    def _clear(self) -> None:
        """A container goes on where its client and its keeper were killed together."""
        if undo := self.unit.command.undo:
            machine.run(Command(undo), limit_s=_CLEAR_LIMIT_S)

    def _ended(self, finished: machine.Finished, lasted_s: float) -> None:
        rule = self.unit.restart
        done = 0 if rule and lasted_s >= rule.lasting_s else self.state.restarts
        again = rule is not None and (rule.limit is None or done < rule.limit)
        waits_s = rule.waits_s(done) if rule and again else None
        self._write(
            running=False,
            since_s=time.time(),
            restarts=done + 1 if again else done,
            status=finished.status,
            said="\n".join(finished.lines[-_WORDS:]),
            next_s=time.time() + waits_s if waits_s is not None else None,
        )

    def _waited(self) -> bool:
        """Whether it is to be started anew, once that is due; what was given up waits to be told."""
        if self.unit.restart is None:
            return False
        while not self._woken and (self.state.next_s is None or time.time() < self.state.next_s):
            time.sleep(_LOOK_EVERY_S)
        self._woken = False
        return True

    def _wake(self, _number: int, _frame: object) -> None:
        self._woken = True

    def _write(self, **changed: Any) -> None:  # noqa: ANN401 - each field by its name
        self.state = replace(self.state, **changed)
        with suppress(OSError):  # the disk is full
            store.write(units.folder() / f"{self.unit.name}.state", json.dumps(self.state.table))


class _Log:
    """Each line with its time; beyond its size the older half is another file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        store.make(self.path.parent)
        with suppress(FileNotFoundError):
            if self.path.stat().st_size > _LOG_BYTES:
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        # Without a buffer, so that a disk which is full costs lines of the log and not the unit.
        self._file = self.path.open("ab", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def line(self, text: str) -> None:
        with suppress(OSError, ValueError):  # closed: a reader that outlives its process
            self._file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n".encode(errors="replace"))
