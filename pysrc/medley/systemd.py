"""Systemd keeps a unit of this user's, where a user manager of it answers: started, stopped, looked at."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from getpass import getuser
from pathlib import Path

from medley import machine, store
from medley.command import Command
from medley.problem import Problem
from medley.unit import Unit
from medley.unit_text import text

_LIMIT_S = 60
_BOOTED = Path("/run/systemd/system")
"""Which there is where process 1 is systemd: sd_booted(3)."""
_ANSWERS = {"initializing", "starting", "running", "degraded"}
_SHOWN = ("LoadState", "ActiveState", "SubState", "Result", "NRestarts", "MainPID", "ExecMainStatus")


@dataclass(frozen=True)
class Shown:
    """What systemd says of a unit."""

    active: str
    """active, activating (also while it waits to be started anew), deactivating, inactive or failed."""
    sub: str
    """running, auto-restart, dead and others."""
    result: str
    """success, or why it ended: exit-code, signal, timeout, start-limit-hit and others."""
    restarts: int
    """How often in a row it was started anew."""
    pid: int | None
    status: int
    """How its process ended last."""

    @property
    def running(self) -> bool:
        return self.active == "active"

    @property
    def given_up(self) -> bool:
        return self.active == "failed"


def available() -> bool:
    """Whether this user's own manager answers."""
    if not booted():
        return False
    said = machine.run(systemctl("is-system-running"), limit_s=_LIMIT_S).lines
    return bool(said) and said[-1] in _ANSWERS


def booted() -> bool:
    """Whether this host runs systemd, and has the program that speaks to it."""
    return _BOOTED.is_dir() and machine.program("systemctl") is not None


def systemctl(*words: str, system: bool = False) -> Command:
    """A login by su or sudo lacks the variable that leads to the manager."""
    if system:
        return Command(("systemctl", "--no-pager", *words))
    own = f"/run/user/{os.getuid()}"
    env = {} if "XDG_RUNTIME_DIR" in os.environ or not Path(own).is_dir() else {"XDG_RUNTIME_DIR": own}
    return Command(("systemctl", "--user", "--no-pager", *words), env)


def started(name: str, *, waits: bool) -> tuple[Command, ...]:
    """What makes a unit run whose file is there; with `waits` until it is up."""
    wait = () if waits else ("--no-block",)
    return (
        systemctl("daemon-reload"),
        systemctl("enable", "--quiet", f"{name}.service"),
        systemctl("restart", *wait, f"{name}.service"),
    )


def stopped(name: str) -> tuple[Command, ...]:
    """What ends it, and then, once its file is gone, makes systemd forget it."""
    return systemctl("disable", "--quiet", "--now", f"{name}.service"), systemctl("daemon-reload")


def logged(name: str, lines: int, *, follow: bool = False) -> Command:
    """What it said, from systemd's journal."""
    more = ("--follow",) if follow else ()
    argv = ("journalctl", "--user", "--no-pager", "--output=short-iso", f"--unit={name}.service")
    return Command((*argv, f"--lines={lines}", *more))


def has(name: str) -> bool:
    """Whether a unit of the name is this user's manager's."""
    return _file(name).exists()


def start(unit: Unit) -> None:
    """Start it, in the place of one of its name that runs."""
    argv = unit.command.argv
    found = argv[0] if argv[0].startswith("/") else machine.program(argv[0])
    if found is None:
        raise Problem(f"there is no {argv[0]}", cause="PATH has none", fix=f"command -v {argv[0]}")
    whole = replace(unit, command=replace(unit.command, argv=(found, *argv[1:])))
    store.write(_file(unit.name), text(whole))
    # One that was given up would not start for a while.
    machine.run(systemctl("reset-failed", f"{unit.name}.service"), limit_s=_LIMIT_S)
    for command in started(unit.name, waits=unit.after is None):
        _done(command)


def stop(name: str) -> bool:
    """End it and forget it; whether it ran."""
    found = state(name)
    if not _file(name).exists():
        return False
    end, forget = stopped(name)
    _done(end)
    _file(name).unlink()
    _done(forget)
    machine.run(systemctl("reset-failed", f"{name}.service"), limit_s=_LIMIT_S)
    return found is not None and found.active not in {"inactive", "failed"}


def state(name: str, *, system: bool = False) -> Shown | None:
    """As it is now; None where there is none of the name."""
    ask = systemctl("show", f"{name}.service", f"--property={','.join(_SHOWN)}", system=system)
    return shown("\n".join(machine.run(ask, limit_s=_LIMIT_S).lines))


def shown(said: str) -> Shown | None:
    """What `systemctl show` says, in any order; None of a unit that has no file."""
    told = dict(line.partition("=")[::2] for line in said.splitlines())
    if told.get("LoadState") != "loaded":
        return None
    return Shown(
        active=told.get("ActiveState", "inactive"),
        sub=told.get("SubState", "dead"),
        result=told.get("Result", "success"),
        restarts=_number(told, "NRestarts"),
        pid=_number(told, "MainPID") or None,
        status=_number(told, "ExecMainStatus"),
    )


def _number(told: Mapping[str, str], name: str) -> int:
    value = told.get(name, "")
    return int(value) if value.isdecimal() else 0


def lingers() -> bool:
    """Whether this user's manager lives on when the user logs out, and starts with the host."""
    asked = Command(("loginctl", "show-user", getuser(), "--property=Linger"))
    return lingering(machine.run(asked, limit_s=_LIMIT_S).lines)


def lingering(said: tuple[str, ...]) -> bool:
    """Of a user who neither lingers nor is logged in loginctl says that there is none."""
    return "Linger=yes" in said


def require_lingering() -> None:
    if not lingers():
        raise Problem(
            "what medley starts here would end when you log out",
            cause="systemd ends a user's units with the last login, unless the user lingers",
            fix=f"sudo loginctl enable-linger {getuser()}",
        )


def _done(command: Command) -> None:
    ended = machine.run(command, limit_s=None)
    if ended.status:
        raise Problem(
            f"systemd refused: {command}",
            cause="\n".join(ended.lines[-4:]) or f"it ended with {ended.status}",
            fix="see what it says of it: journalctl --user --no-pager --lines=30",
        )


def _file(name: str) -> Path:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if base.startswith("/") else Path.home() / ".config"
    return folder / "systemd" / "user" / f"{name}.service"
