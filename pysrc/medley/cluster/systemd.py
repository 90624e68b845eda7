"""Install units with systemd: this user's own, and the services of `medley service install`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from medley import process, storage, user
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
_PORT, _DRAIN_S = 8000, 30
_BOOTED = Path("/run/systemd/system")
"""Exists where process 1 is systemd: sd_booted(3)."""
_ANSWERS = {"initializing", "starting", "running", "degraded"}
_NOT_EXECUTED = range(200, 246)
"""The status of a program that systemd could not execute: systemd.exec(5)."""
_SHOWN = ("LoadState", "ActiveState", "SubState", "Result", "NRestarts", "MainPID", "ExecMainStatus")
# PATH decides an environment's Python, so another PATH would build a second environment.
_CARRIED = (
    *("MEDLEY_", "HF_", "LC_", "LANG", "PATH", "SSL_CERT_FILE", "NIX_SSL_CERT_FILE"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    *("HUGGINGFACE_HUB_", "TRANSFORMERS_OFFLINE"),
)
# A head, link or hub that is missing at boot may come later, so the unit restarts forever.
_AGAIN = Restart(first_s=5, longest_s=60)


@dataclass(frozen=True)
class Shown:
    active: str
    """active, activating (also while it waits for a restart), deactivating, inactive or failed."""
    sub: str
    """running, auto-restart, dead and others."""
    result: str
    """success, exit-code, signal, timeout, start-limit-hit and others."""
    restarts: int
    pid: int | None
    status: int


def available() -> bool:
    """Whether this user's own manager answers."""
    if not booted():
        return False
    said = process.run(systemctl("is-system-running"), limit_s=_LIMIT_S).lines
    return bool(said) and said[-1] in _ANSWERS


def booted() -> bool:
    """Whether this host runs systemd and has systemctl."""
    return _BOOTED.is_dir() and process.find_program("systemctl") is not None


def systemctl(*words: str, system: bool = False) -> Command:
    """Set XDG_RUNTIME_DIR, which a login by su or sudo lacks."""
    if system:
        return Command(("systemctl", "--no-pager", *words))
    own = f"/run/user/{os.getuid()}"
    env = {} if "XDG_RUNTIME_DIR" in os.environ or not Path(own).is_dir() else {"XDG_RUNTIME_DIR": own}
    return Command(("systemctl", "--user", "--no-pager", *words), env)


def install_commands(name: str, *, system: bool = True) -> tuple[Command, ...]:
    """Return the commands that enable and start a unit; do not wait for a system's, which may build."""
    unit, wait = f"{name}.service", ("--no-block",) if system else ()
    return (
        systemctl("daemon-reload", system=system),
        systemctl("enable", "--quiet", unit, system=system),
        systemctl("restart", *wait, unit, system=system),
    )


def file(name: str, *, system: bool = False) -> Path:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    own = Path(base) if base.startswith("/") else user.home() / ".config"
    return (_UNIT_FOLDER if system else own / "systemd" / "user") / f"{name}.service"


def start(unit: Unit) -> None:
    """Start the unit, and end a running one of its name."""
    argv = unit.command.argv
    found = argv[0] if argv[0].startswith("/") else process.find_program(argv[0])
    if found is None:
        raise Problem(f"{argv[0]} not found", cause="it is not on PATH", fix=f"command -v {argv[0]}")
    whole = replace(unit, command=replace(unit.command, argv=(found, *argv[1:])))
    storage.write(file(unit.name), text(whole), secret=True)  # a URL may have a login
    # systemd starts a unit that failed often only after a while.
    process.run(systemctl("reset-failed", f"{unit.name}.service"), limit_s=_LIMIT_S)
    *prepared, restart = install_commands(unit.name, system=False)
    for command in prepared:
        _run(command)
    try:
        _run(restart)
    except Problem:
        # systemd sometimes reports that a program which ended immediately was not started.
        now = state(unit.name)
        if now is None or now.status in _NOT_EXECUTED:
            raise


def stop(name: str) -> None:
    if storage.exists(file(name)):
        _remove(name)
        process.run(systemctl("reset-failed", f"{name}.service"), limit_s=_LIMIT_S)


def _remove(name: str, *, system: bool = False) -> None:
    _run(systemctl("disable", "--quiet", "--now", f"{name}.service", system=system))
    storage.remove_file(file(name, system=system))
    _run(systemctl("daemon-reload", system=system))


def state(name: str, *, system: bool = False) -> Shown | None:
    ask = systemctl("show", f"{name}.service", f"--property={','.join(_SHOWN)}", system=system)
    return shown("\n".join(process.run(ask, limit_s=_LIMIT_S).lines))


def shown(answer: str) -> Shown | None:
    """Parse the output of `systemctl show`; None for a unit without a file."""
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
    asked = Command(("loginctl", "show-user", user.name(), "--property=Linger"))
    # loginctl does not find a user who neither lingers nor is logged in.
    return "Linger=yes" in process.run(asked, limit_s=_LIMIT_S).lines


@dataclass(frozen=True)
class Service:
    role: Role
    words: tuple[str, ...]
    user: str
    medley: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        served = f"{unit_file.UNIT}{_number('--port', self.words, _PORT)}"
        return served if self.role == "serve" else f"medley-{self.role}"

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
        limit_s = _STOP_LIMIT_S + (_number("--drain", self.words, _DRAIN_S) if self.role == "serve" else 0)
        return text(Unit(self.name, title, command, _AGAIN, stop_limit_s=limit_s), boot)


def carried_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the installing user's variables for a service, because systemd sets few."""
    return self_command.carried(environ, _CARRIED)


def _number(switch: str, words: tuple[str, ...], default: int) -> int:
    value = value_of(switch, words) or ""
    return int(value) if value.isdecimal() else default


def value_of(switch: str, words: tuple[str, ...]) -> str | None:
    """Return the value of a switch of `serve`; words after -- are the engine's."""
    own = words[: words.index("--")] if "--" in words else words
    for at, word in enumerate(own):
        name, equals, value = word.partition("=")
        if name == switch:
            return value if equals else next(iter(own[at + 1 :]), "")
    return None


def require_complete(role: str, words: tuple[str, ...]) -> Role:
    found = next((each for each in ROLES if each == role), None)
    if found is None:
        raise Problem(
            f"{role!r} is not a role",
            cause=f"the roles are {', '.join(ROLES)}",
            fix="medley service install --help",
        )
    if found != "head" and (not words or words[0].startswith("-")):
        what = "HEAD" if found == "worker" else "MODEL"
        raise Problem(
            f"a {'server' if found == 'serve' else found} needs its {what}",
            cause="the command does not name one",
            fix=f"medley service install {found} {what}",
        )
    return found


def install_service(service: Service) -> None:
    """Start the service, now and at boot, and replace one of its name."""
    if not booted():
        raise Problem(
            "the service cannot be installed",
            cause="this host does not run systemd",
            fix="start it at boot in another way; its command: medley service install --dry-run",
        )
    storage.write(file(service.name, system=True), service.text)
    for command in install_commands(service.name):
        _run(command)


def remove_service(role: str) -> list[str]:
    found = service_names(role)
    for name in found:
        _remove(name, system=True)
    return found


def service_names(role: str | None = None, folder: Path = _UNIT_FOLDER) -> list[str]:
    patterns = {each: f"{unit_file.UNIT}*" if each == "serve" else f"medley-{each}" for each in ROLES}
    found = (
        (each, file.stem)
        for each in ROLES
        for file in storage.list_folder(folder, f"{patterns[each]}.service")
    )
    return sorted(name for each, name in found if role in {None, each, name})


def _run(command: Command) -> None:
    own = "--user" in command.argv
    ended = process.run(command, limit_s=None if own else _SERVICE_LIMIT_S)
    if ended.status:
        see = "journalctl --user" if own else "journalctl"
        raise Problem(
            f"systemd refused: {command}",
            cause="\n".join(ended.lines[-4:]) or f"it exited with {ended.status}",
            fix=f"{see} --no-pager --lines=30",
        )
