"""Units as they run on this host: started, stopped, looked at."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from medley import ending, family, machine, own, store, systemd
from medley.command import Command
from medley.problem import Problem, in_words
from medley.process_identity import identified, of
from medley.unit import Restart, Unit

_STARTED_LIMIT_S = 10
_LOOK_EVERY_S = 0.02
_TAIL_BYTES = 256 << 10
BEGINS = "medley keeps "


@dataclass(frozen=True)
class State:
    """What its keeper last wrote of it."""

    name: str
    keeper: int
    """The process id of who keeps it."""
    running: bool
    since_s: float
    """Of the epoch: when it started, or ended."""
    restarts: int = 0
    """How often in a row it ended by itself and was started anew."""
    status: int | None = None
    """How it ended last."""
    said: str = ""
    """And its last words then."""
    next_s: float | None = None
    """When it is started anew, of the epoch."""
    kept: bool = True
    """Its keeper lives; a unit that was to run once has ended without it."""

    @property
    def table(self) -> Mapping[str, Any]:
        return asdict(self)


def folder() -> Path:
    return store.state() / "units"


def log(name: str) -> Path:
    return store.state() / "logs" / f"{name}.log"


def start(unit: Unit) -> None:
    """Start it, in the place of one of its name that runs."""
    stop(unit.name)
    store.write(folder() / f"{unit.name}.json", unit.to_json())
    _keep(unit.name)


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """A Problem where one of this name is kept already, or another medley is about to start one."""
    with store.lock(folder() / f"{name}.starting") as ours:
        found = state(name)
        if not ours or (found and found.kept and (found.running or found.next_s is not None)):
            raise Problem(
                f"{name} is started already",
                cause="another medley starts it now" if not ours else f"process {_keeper(name)} keeps it",
                fix="medley stop  # then the same again; or beside it, on another port: --port 8001",
            )
        yield


def _keep(name: str) -> None:
    """Its keeper writes a state at once, and may be gone again soon after."""
    state_ = folder() / f"{name}.state"
    state_.unlink(missing_ok=True)
    keeper = Command((*own.command(), "kept", name))
    if by_systemd():
        _by_systemd(read(name), keeper)
    else:
        machine.detach(keeper, log(name))
    deadline = time.monotonic() + _STARTED_LIMIT_S
    while not state_.exists():
        if time.monotonic() > deadline:
            raise Problem(
                f"{name} could not be started",
                cause=f"its keeper did not come up in {_STARTED_LIMIT_S} s",
                fix=f"see what it says: tail {log(name)}",
            )
        time.sleep(_LOOK_EVERY_S)


def by_systemd() -> bool:
    """Whether keepers are this user's systemd's, which then starts them with the host.

    MEDLEY_UNITS says so, systemd or own; else it is where the user lingers: they would end with the login.
    """
    told = os.environ.get("MEDLEY_UNITS")
    return told == "systemd" if told else bool(boots())


def boots() -> bool | None:
    """Whether what is kept here starts with the host; None where no systemd could do that."""
    return systemd.lingers() if systemd.available() else None


def _by_systemd(unit: Unit, keeper: Command) -> None:
    """The keeper starts the unit anew, and systemd the keeper: so states and logs are the same everywhere."""
    again = unit.restart and Restart(first_s=2, longest_s=2)
    command = keeper.with_env(unit.command.env)
    limit_s = unit.stop_limit_s + 10
    systemd.start(Unit(unit.name, unit.title, command, again, stop_limit_s=limit_s))


def stop(name: str) -> bool:
    """End it and forget it; whether it ran."""
    keeper = _keeper(name)
    if systemd.has(name):
        systemd.stop(name)
    elif keeper is not None:
        ending.end(identified({keeper}), grace_s=_stop_limit_s(name) + 10)
    for suffix in ("state", "json", "lock"):
        (folder() / f"{name}.{suffix}").unlink(missing_ok=True)
    return keeper is not None


def resume() -> list[str]:
    """Start what was started here and not stopped, as a boot does; returns the names."""
    names = [file.stem for file in sorted(folder().glob("*.json")) if _keeper(file.stem) is None]
    names = [name for name in names if _whole(name)]
    for name in names:
        _keep(name)
    return names


def _whole(name: str) -> bool:
    try:
        read(name)
    except Problem:
        return False
    return True


def restart(name: str) -> None:
    """Have one that waits, or was given up, start anew at once."""
    found, keeper = state(name), _keeper(name)
    if found and found.kept and not found.running and keeper and (waits := of(keeper)):
        waits.signal(signal.SIGUSR1)


def read(name: str) -> Unit:
    """A Problem where its file lost a part, as in a power cut."""
    file = folder() / f"{name}.json"
    try:
        return Unit.from_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Problem(
            f"{name} cannot be started anew by itself",
            cause=f"{file} is not whole: {in_words(error)}",
            fix="medley up, or what started it: medley serve MODEL --detach, medley ray-head",
        ) from error


def state(name: str) -> State | None:
    """As it is now, or ended; None where there is none of the name."""
    found, keeper = store.record(folder() / f"{name}.state", State), _keeper(name)
    if found is None:
        # It lost a part: its keeper writes it anew when it changes.
        return State(name, keeper, running=True, since_s=0) if keeper else None
    return found if keeper else replace(found, kept=False, running=False, next_s=None)


def said(name: str) -> list[str]:
    """What it has said since it was last started, as far as that is worth reading, without the times."""
    try:
        with log(name).open("rb") as file:
            file.seek(max(0, log(name).stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    words = [line.partition(" ")[2] for line in lines]
    began = max((at for at, line in enumerate(words) if line.startswith(BEGINS)), default=-1)
    return words[began + 1 :]


def states() -> Iterator[State]:
    """Of all that were started here, and not stopped."""
    found = (state(file.stem) for file in sorted(folder().glob("*.json")))
    return (each for each in found if each)


def _keeper(name: str) -> int | None:
    """The process that keeps it: it holds the lock as long as it lives, and no longer."""
    lock = folder() / f"{name}.lock"
    if not lock.exists():
        return None
    with store.lock(lock) as free:
        return None if free else family.holder(lock, "kept", name)


def _stop_limit_s(name: str) -> float:
    try:
        return read(name).stop_limit_s
    except Problem:
        return 30  # a unit that lost a part is ended all the same
