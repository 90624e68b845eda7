"""Start, stop and supervise the commands that this host keeps running, under systemd or by medley itself.

A unit is a file; `medley kept NAME` is its supervisor, a process that runs the command, restarts it by the
unit's policy, and writes its state and its log.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from medley import process, process_identity, storage
from medley.cluster import events, restart_rule, self_command, systemd
from medley.cluster.rank_memory import RankMemory
from medley.cluster.unit_file import STOP_LIMIT_S, Unit
from medley.command import Command
from medley.errors import Problem, describe_error
from medley.process import OnLine, Process, ProcessResult
from medley.process_identity import (
    FailedProcessFinder,
    ProcessIdentity,
    SharedMemoryCleaner,
    end_processes,
    list_descendants,
    reap_orphans,
)
from medley.unusable_file import skip_unusable_file
from medley.values import Value

STARTED_PREFIX = "medley keeps "
_STARTED_LIMIT_S = 10
_POLL_INTERVAL_S = 0.2
_VITAL_CHECK_INTERVAL_S = 1.0
STOPPED_LIMIT_S = 20.0
"""Seconds that a vital process may be stopped before it counts as ended.

A stopped gcs_server accepts connections, and all of Ray hangs.
"""
_UNDO_LIMIT_S = 30
_LAST_LINE_COUNT = 6
_MAX_TAIL_BYTES = 256 << 10
_MAX_LOG_BYTES = 64 << 20


class UnitState(Value):
    """The state of a unit, as its supervisor last wrote it."""

    name: str
    keeper: int
    """The process id of its supervisor."""
    running: bool
    since_s: float
    """Time of its start or end, in seconds since the epoch."""
    restarts: int = 0
    """Restarts in a row."""
    status: int | None = None
    said: str = ""
    """The last lines of its output, after it ended."""
    next_s: float | None = None
    """Time of its restart, in seconds since the epoch."""
    kept: bool = True
    """Whether its supervisor lives."""


def get_units_folder() -> Path:
    return storage.find_state_folder() / "units"


def get_log_file(name: str) -> Path:
    return storage.find_state_folder() / "logs" / f"{name}.log"


def start_unit(unit: Unit) -> None:
    """Start the unit; end a running one of its name first."""
    stop_unit(unit.name)
    storage.write_text(get_units_folder() / f"{unit.name}.json", unit.to_json())
    _start_supervisor(unit.name)


@contextmanager
def claim_start(name: str) -> Iterator[None]:
    """Claim a unit during the body; raise a Problem where it runs, or another medley starts it."""
    with storage.lock_file(get_units_folder() / f"{name}.starting") as is_free:
        running_state = read_state(name)
        if not is_free or (
            running_state
            and running_state.kept
            and (running_state.running or running_state.next_s is not None)
        ):
            cause = f"process {running_state.keeper} supervises it" if running_state else ""
            raise Problem(
                f"{name} is started already",
                cause=cause if is_free else "another medley is starting it",
                fix="medley stop  # then run this again; or use another port: --port 8001",
            )
        yield


def _start_supervisor(name: str) -> None:
    state_file = get_units_folder() / f"{name}.state"
    storage.remove_file(state_file)
    supervise_command = Command((*self_command.get_own_command(), "kept", name))
    if choose_supervisor() == "systemd":
        # systemd restarts only the supervisor, so states and logs are the same everywhere.
        unit = read_unit(name)
        restart = restart_rule.SUPERVISOR_RULE if unit.restart else None
        limit_s = unit.stop_limit_s + 10
        command = supervise_command.add_variables(unit.command.env)
        systemd.start_unit(Unit(name, unit.title, command, restart, stop_limit_s=limit_s))
    else:
        process.start_detached(supervise_command, get_log_file(name))
    if not process.wait_until(lambda: storage.exists(state_file), _STARTED_LIMIT_S, every_s=0.02):
        raise Problem(
            f"{name} did not start",
            cause=f"its supervisor did not start within {_STARTED_LIMIT_S} s",
            fix=f"read its log: tail {get_log_file(name)}",
        )


def choose_supervisor() -> Literal["systemd", "own"]:
    """Return which program runs a unit's supervisor: MEDLEY_UNITS, else systemd if the user lingers.

    Then units outlive the login and start at boot.
    """
    requested = os.environ.get("MEDLEY_UNITS")
    uses_systemd = requested == "systemd" if requested else is_started_at_boot()
    return "systemd" if uses_systemd else "own"


def is_started_at_boot() -> bool | None:
    """Return whether units start at boot; None without systemd."""
    return systemd.is_lingering() if systemd.is_available() else None


def stop_unit(name: str) -> bool:
    supervisor = _find_supervisor(name)
    if storage.exists(systemd.get_unit_path(name)):
        systemd.stop_unit(name)
    elif supervisor is not None:
        unit = _read_intact_unit(name)
        end_processes([supervisor], grace_s=(unit.stop_limit_s if unit else STOP_LIMIT_S) + 10)
    for suffix in ("state", "json", "lock"):
        storage.remove_file(get_units_folder() / f"{name}.{suffix}")
    return supervisor is not None


def resume_units() -> list[str]:
    """Start all units that were not stopped, as at boot; return their names."""
    names = [
        file.stem
        for file in storage.list_folder(get_units_folder(), "*.json")
        if _find_supervisor(file.stem) is None
    ]
    names = [name for name in names if _read_intact_unit(name)]
    for name in names:
        _start_supervisor(name)
    return names


def read_unit(name: str) -> Unit:
    """Return a unit; raise a Problem if a power cut damaged its file."""
    file = get_units_folder() / f"{name}.json"
    text = storage.read_text(file, errors="replace")
    try:
        return Unit.from_json(text or "")
    except (ValueError, RecursionError) as error:
        raise Problem(
            f"{name} cannot be restarted",
            cause=f"{file} is damaged: {describe_error(error)}",
            fix="medley up, or run the command that started it: medley serve MODEL --detach, medley ray-head",
        ) from error


def _read_intact_unit(name: str) -> Unit | None:
    with suppress(Problem):
        return read_unit(name)
    return None


def read_state(name: str) -> UnitState | None:
    saved = storage.read_record(get_units_folder() / f"{name}.state", UnitState)
    supervisor = _find_supervisor(name)
    if saved is None:
        # The file is damaged: the supervisor rewrites it with the next change.
        return UnitState(name, supervisor.pid, running=True, since_s=0) if supervisor else None
    return saved if supervisor else saved.replace(kept=False, running=False, next_s=None)


def read_last_log_lines(name: str) -> list[str]:
    """Return the end of its log since its last start, without timestamps."""
    lines: list[str] = []
    with skip_unusable_file():
        lines = storage.read_end(get_log_file(name), _MAX_TAIL_BYTES).decode(errors="replace").splitlines()
    texts = [line.partition(" ")[2] for line in lines]
    start_line = max(
        (number for number, line in enumerate(texts) if line.startswith(STARTED_PREFIX)), default=-1
    )
    return texts[start_line + 1 :]


def list_states() -> Iterator[UnitState]:
    for file in storage.list_folder(get_units_folder(), "*.json"):
        with skip_unusable_file():
            if unit_state := read_state(file.stem):
                yield unit_state


def _find_supervisor(name: str) -> ProcessIdentity | None:
    """Return the unit's supervisor, which holds the lock as long as it lives."""
    lock = get_units_folder() / f"{name}.lock"
    if not storage.exists(lock):
        return None
    with storage.lock_file(lock) as is_free:
        return None if is_free else process_identity.find_file_holder(lock, "kept", name)


def main(name: str) -> int:
    """Supervise a unit, as the internal verb `kept`, until it ends for good or this process is stopped."""
    os.chdir("/")  # hold no folder that a user may want to unmount
    unit = read_unit(name)
    with storage.lock_file(get_units_folder() / f"{name}.lock") as is_free:
        return UnitSupervisor(unit, os.getpid()).run() if is_free else 1


class UnitSupervisor:
    """Runs the command of one unit, restarts it by the unit's rule, and writes its state."""

    def __init__(self, unit: Unit, pid: int) -> None:
        self.unit, self.shared_memory = unit, SharedMemoryCleaner()
        self.state = UnitState(unit.name, pid, running=False, since_s=time.time())
        self._write_state()

    def run(self) -> int:
        while True:
            began_s = time.monotonic()
            finished = self._run_once()
            delay_s = self._record_end(finished, time.monotonic() - began_s)
            if self.unit.restart is None:
                return finished.status
            # Without a delay it gave up, and waits until this process is stopped.
            # The monotonic clock ignores a new date.
            ended_s = time.monotonic()
            while delay_s is None or time.monotonic() < ended_s + delay_s:
                time.sleep(_POLL_INTERVAL_S)

    def _run_once(self) -> ProcessResult:
        with storage.open_log(get_log_file(self.unit.name), rotate_from_bytes=_MAX_LOG_BYTES) as write_line:
            # A container goes on if its client and this supervisor were killed together.
            if undo := self.unit.command.undo:
                process.run(Command(undo), limit_s=_UNDO_LIMIT_S)
            write_line(f"{STARTED_PREFIX}{self.unit.name}: {self.unit.command}")
            main_process = Process(self.unit.command, write_line)
            hook_process = Process(self.unit.start_hook, write_line) if self.unit.start_hook else None
            try:
                self._write_state(running=True, since_s=time.time(), next_s=None)
                finished = self._wait_for_end(main_process, hook_process, write_line)
            finally:
                main_process.stop(self.unit.stop_limit_s)
                if hook_process:
                    hook_process.stop(1)
                end_processes(list_descendants(self.state.keeper), grace_s=2)
                self.shared_memory.remove_unused()
        return finished

    def _wait_for_end(
        self, main_process: Process, hook_process: Process | None, write_line: OnLine
    ) -> ProcessResult:
        """Wait until the unit's command ends, or a vital process, whose end the command may not notice."""
        vital_processes = self._find_vital_processes()
        finder = FailedProcessFinder(STOPPED_LIMIT_S)
        rank_memory = RankMemory(self.unit.name)
        while (finished := main_process.wait(_VITAL_CHECK_INTERVAL_S if self.unit.vital else None)) is None:
            gone_names = sorted(vital_processes[identity] for identity in finder.find(vital_processes))
            if gone_names:
                message = f"medley: {', '.join(gone_names)} is gone, and {self.unit.name} with it"
                write_line(message)
                main_process.stop(self.unit.stop_limit_s)
                finished_early = main_process.poll() or ProcessResult(1, ())
                return finished_early.replace(lines=(*finished_early.lines, message))
            vital_processes = self._find_vital_processes()
            if vital_processes:
                rank_memory.check(list_descendants(self.state.keeper))
            self.shared_memory.check()
            reap_orphans()
            if hook_process:
                hook_process.poll()
        return finished

    def _find_vital_processes(self) -> dict[ProcessIdentity, str]:
        processes = list_descendants(self.state.keeper)
        return {identity: name for identity in processes if (name := identity.name) in self.unit.vital}

    def _record_end(self, finished: ProcessResult, lasted_s: float) -> float | None:
        """Return the seconds until the restart; None: there is none."""
        restart = self.unit.restart
        next_restart = restart.compute_next(self.state.restarts, lasted_s) if restart else None
        restarts, delay_s = next_restart or (self.state.restarts, None)
        reason = f"it ended with {finished.status}: {' '.join(finished.lines[-1:])}"
        if delay_s is not None:
            events.record_event("restart", self.unit.name, f"restart {restarts} in {delay_s:.0f} s: {reason}")
        elif restart:
            events.record_event("fault", self.unit.name, f"given up after restart {restarts}: {reason}")
        self._write_state(
            running=False,
            since_s=time.time(),
            restarts=restarts,
            status=finished.status,
            said="\n".join(finished.lines[-_LAST_LINE_COUNT:]),
            next_s=time.time() + delay_s if delay_s is not None else None,
        )
        return delay_s

    def _write_state(self, **changes: Any) -> None:  # noqa: ANN401 - each field by its name
        self.state = self.state.replace(**changes)
        with skip_unusable_file():
            storage.write_text(get_units_folder() / f"{self.unit.name}.state", self.state.to_json())
