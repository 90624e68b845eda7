"""Install units with systemd: this user's own, and the services of `medley service install`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from getpass import getuser
from pathlib import Path
from typing import Literal, get_args

from medley import process, storage
from medley.cluster import self_command, unit_file
from medley.cluster.unit_file import Boot, Restart, Unit, text
from medley.command import Command
from medley.errors import Problem

Role = Literal["head", "worker", "serve"]
ROLES: tuple[Role, ...] = get_args(Role)
_UNIT_FOLDER = Path("/etc/systemd/system")
_NETWORK = "network-online.target"
_LIMIT_S = 60
_SERVICE_LIMIT_S = 300
_STOP_LIMIT_S = 60
_PORT = 8000
_BOOTED = Path("/run/systemd/system")
"""The folder is there where process 1 is systemd: sd_booted(3)."""
_ANSWERS = {"initializing", "starting", "running", "degraded"}
_NOT_EXECUTED = range(200, 246)
"""What systemd itself gives as the status of a program that it could not execute: systemd.exec(5)."""
_SHOWN = ("LoadState", "ActiveState", "SubState", "Result", "NRestarts", "MainPID", "ExecMainStatus")
# PATH tells which Python is an environment's, so with another one a second would be built.
_CARRIED = (
    *("MEDLEY_", "HF_", "LC_", "LANG", "PATH", "SSL_CERT_FILE", "NIX_SSL_CERT_FILE"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
)
# Whatever it lacks at the host's start (a head, a link, the hub) may come later, so it is never given up.
_AGAIN = Restart(first_s=5, longest_s=60)


@dataclass(frozen=True)
class Shown:
    """The state of a unit, as systemd reports it."""

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


def available() -> bool:
    """Whether this user's own manager answers."""
    if not booted():
        return False
    said = process.run(systemctl("is-system-running"), limit_s=_LIMIT_S).lines
    return bool(said) and said[-1] in _ANSWERS


def booted() -> bool:
    """Whether this host runs systemd, and has the program that speaks to it."""
    return _BOOTED.is_dir() and process.program("systemctl") is not None


def systemctl(*words: str, system: bool = False) -> Command:
    """A login by su or sudo lacks the variable that leads to the manager."""
    if system:
        return Command(("systemctl", "--no-pager", *words))
    own = f"/run/user/{os.getuid()}"
    env = {} if "XDG_RUNTIME_DIR" in os.environ or not Path(own).is_dir() else {"XDG_RUNTIME_DIR": own}
    return Command(("systemctl", "--user", "--no-pager", *words), env)


def install_commands(name: str, *, system: bool = True) -> tuple[Command, ...]:
    """Return what starts a unit whose file is there, and has it start at boot.

    The system's are not waited for: an environment may have to be built first.
    """
    unit, wait = f"{name}.service", ("--no-block",) if system else ()
    return (
        systemctl("daemon-reload", system=system),
        systemctl("enable", "--quiet", unit, system=system),
        systemctl("restart", *wait, unit, system=system),
    )


def file(name: str, *, system: bool = False) -> Path:
    """Return where the unit of the name stands: this user's own, or the system's."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    own = Path(base) if base.startswith("/") else Path.home() / ".config"
    return (_UNIT_FOLDER if system else own / "systemd" / "user") / f"{name}.service"


def start(unit: Unit) -> None:
    """Start it, in the place of one of its name that runs."""
    argv = unit.command.argv
    found = argv[0] if argv[0].startswith("/") else process.program(argv[0])
    if found is None:
        raise Problem(f"there is no {argv[0]}", cause="PATH has none", fix=f"command -v {argv[0]}")
    whole = replace(unit, command=replace(unit.command, argv=(found, *argv[1:])))
    storage.write(file(unit.name), text(whole))
    # One that was given up would not start for a while.
    process.run(systemctl("reset-failed", f"{unit.name}.service"), limit_s=_LIMIT_S)
    *prepared, restart = install_commands(unit.name, system=False)
    for command in prepared:
        _run(command)
    try:
        _run(restart)
    except Problem:
        # Of a program that ended at once systemd says now and then that it was not started, though it was.
        now = state(unit.name)
        if now is None or now.status in _NOT_EXECUTED:
            raise


def stop(name: str) -> None:
    """End it and forget it, if it is there."""
    if file(name).exists():
        _remove(name)
        process.run(systemctl("reset-failed", f"{name}.service"), limit_s=_LIMIT_S)


def _remove(name: str, *, system: bool = False) -> None:
    _run(systemctl("disable", "--quiet", "--now", f"{name}.service", system=system))
    file(name, system=system).unlink(missing_ok=True)
    _run(systemctl("daemon-reload", system=system))


def state(name: str, *, system: bool = False) -> Shown | None:
    """As it is now; None where there is none of the name."""
    ask = systemctl("show", f"{name}.service", f"--property={','.join(_SHOWN)}", system=system)
    return shown("\n".join(process.run(ask, limit_s=_LIMIT_S).lines))


def shown(answer: str) -> Shown | None:
    """Parse what `systemctl show` prints, in any order; None of a unit that has no file."""
    values = dict(line.partition("=")[::2] for line in answer.splitlines())
    if values.get("LoadState") != "loaded":
        return None
    numbers = {name: int(value) if value.isdecimal() else 0 for name, value in values.items()}
    return Shown(
        active=values.get("ActiveState", "inactive"),
        sub=values.get("SubState", "dead"),
        result=values.get("Result", "success"),
        restarts=numbers.get("NRestarts", 0),
        pid=numbers.get("MainPID") or None,
        status=numbers.get("ExecMainStatus", 0),
    )


def lingers() -> bool:
    """Whether this user's manager lives on when the user logs out, and starts with the host."""
    asked = Command(("loginctl", "show-user", getuser(), "--property=Linger"))
    # Of a user who neither lingers nor is logged in loginctl says that there is none.
    return "Linger=yes" in process.run(asked, limit_s=_LIMIT_S).lines


@dataclass(frozen=True)
class Service:
    role: Role
    words: tuple[str, ...]
    """What is typed after the verb: a head, a model, switches."""
    user: str
    medley: tuple[str, ...]
    """Medley's own words, by their full path."""
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{unit_file.UNIT}{_port(self.words)}" if self.role == "serve" else f"medley-{self.role}"

    @property
    def text(self) -> str:
        verb: tuple[str, ...] = (f"ray-{self.role}", "--stay")
        if self.role == "serve":
            verb = ("serve",)
            boot = Boot(self.user, after=(_NETWORK, "medley-head.service", "medley-worker.service"))
        else:
            boot = Boot(self.user, before=(*self.medley, "ray-stop"))
        command = Command((*self.medley, *verb, *self.words), self.env)
        title = f"medley {' '.join((verb[0], *self.words))}"
        return text(Unit(self.name, title, command, _AGAIN, stop_limit_s=_STOP_LIMIT_S), boot)


def carried_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a service gets of the installing user's environment; systemd's has next to nothing."""
    return self_command.carried(environ, _CARRIED)


def _port(words: tuple[str, ...]) -> int:
    """Return the port that `serve` takes; what comes after -- is the engine's."""
    own = words[: words.index("--")] if "--" in words else words
    for at, word in enumerate(own):
        name, equals, value = word.partition("=")
        value = value if equals else next(iter(own[at + 1 :]), "")
        if name == "--port" and value.isdecimal():
            return int(value)
    return _PORT


def require_complete(role: str, words: tuple[str, ...]) -> Role:
    """Return the role; raise a Problem where the words lack what it needs."""
    found = next((each for each in ROLES if each == role), None)
    if found is None:
        raise Problem(
            f"{role} is no role", cause=f"there are {', '.join(ROLES)}", fix="medley service install --help"
        )
    if found != "head" and (not words or words[0].startswith("-")):
        what = "HEAD" if found == "worker" else "MODEL"
        raise Problem(
            f"a {'server' if found == 'serve' else found} needs its {what}",
            cause="nothing says which",
            fix=f"medley service install {found} {what}",
        )
    return found


def install_service(service: Service) -> None:
    """Start it, now and with the host; one of its name is put in its place."""
    if not booted():
        raise Problem(
            "no service can be installed",
            cause="this host does not run systemd",
            fix="start it in another way at boot, as medley service install --dry-run shows it",
        )
    storage.write(file(service.name, system=True), service.text)
    for command in install_commands(service.name):
        _run(command)


def remove_service(role: str) -> list[str]:
    """End those of the role, and forget them; returns their names."""
    found = service_names(role)
    for name in found:
        _remove(name, system=True)
    return found


def service_names(role: str | None = None, folder: Path = _UNIT_FOLDER) -> list[str]:
    """Return the names of all that are installed here, or of one role, or the one of this name."""
    patterns = {each: f"{unit_file.UNIT}*" if each == "serve" else f"medley-{each}" for each in ROLES}
    found = ((each, file.stem) for each in ROLES for file in folder.glob(f"{patterns[each]}.service"))
    return sorted(name for each, name in found if role in {None, each, name})


def _run(command: Command) -> None:
    own = "--user" in command.argv
    ended = process.run(command, limit_s=None if own else _SERVICE_LIMIT_S)
    if ended.status:
        see = "see what it says of it: journalctl --user" if own else "see what it says: journalctl"
        raise Problem(
            f"systemd refused: {command}",
            cause="\n".join(ended.lines[-4:]) or f"it ended with {ended.status}",
            fix=f"{see} --no-pager --lines=30",
        )
