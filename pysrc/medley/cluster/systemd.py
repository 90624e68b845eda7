"""Install units with systemd: this user's own, and the services of `medley service install`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from msgspec import field

from medley import process, storage, user
from medley.cluster import restart_rule, self_command, unit_file
from medley.cluster.unit_file import BootOptions, Unit, format_unit
from medley.command import Command
from medley.errors import Problem
from medley.network.ports import API_PORT
from medley.values import Value

ServiceRole = Literal["head", "worker", "serve"]
SERVICE_ROLES: tuple[ServiceRole, ...] = get_args(ServiceRole)
_UNIT_FOLDER = Path("/etc/systemd/system")
_NETWORK_TARGET = "network-online.target"
_COMMAND_LIMIT_S = 60
_SERVICE_LIMIT_S = 300
_STOP_LIMIT_S = 60
_DEFAULT_DRAIN_S = 30
_SYSTEMD_FOLDER = Path("/run/systemd/system")
"""Exists where process 1 is systemd: sd_booted(3)."""
_ANSWERING_STATES = {"initializing", "starting", "running", "degraded"}
_NOT_EXECUTED_STATUSES = range(200, 246)
"""The status of a program that systemd could not execute: systemd.exec(5)."""
_STATE_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "NRestarts",
    "MainPID",
    "ExecMainStatus",
)
# PATH decides an environment's Python, so another PATH would build a second environment.
_CARRIED_PREFIXES = (
    *("MEDLEY_", "HF_", "LC_", "LANG", "PATH", "SSL_CERT_FILE", "NIX_SSL_CERT_FILE"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    *("HUGGINGFACE_HUB_", "TRANSFORMERS_OFFLINE"),
)


class SystemdState(Value):
    """The state of a unit, as `systemctl show` prints it."""

    active_state: str
    """active, activating (also while it waits for a restart), deactivating, inactive or failed."""
    sub_state: str
    """running, auto-restart, dead and others."""
    result: str
    """success, exit-code, signal, timeout, start-limit-hit and others."""
    restart_count: int
    pid: int | None
    exit_status: int

    @property
    def table(self) -> dict[str, str | int | None]:
        """The state in JSON."""
        return {
            "active": self.active_state,
            "sub": self.sub_state,
            "result": self.result,
            "restarts": self.restart_count,
            "pid": self.pid,
            "status": self.exit_status,
        }


def is_available() -> bool:
    """Return whether this user's own manager answers."""
    if not is_booted():
        return False
    output = process.run(build_systemctl_command("is-system-running"), limit_s=_COMMAND_LIMIT_S).lines
    return bool(output) and output[-1] in _ANSWERING_STATES


def is_booted() -> bool:
    """Return whether this host runs systemd and has systemctl."""
    return _SYSTEMD_FOLDER.is_dir() and process.find_program("systemctl") is not None


def build_systemctl_command(*words: str, is_system: bool = False) -> Command:
    """Return a systemctl command with XDG_RUNTIME_DIR, which a login by su or sudo lacks."""
    if is_system:
        return Command(("systemctl", "--no-pager", *words))
    runtime_folder = f"/run/user/{os.getuid()}"
    env = (
        {}
        if "XDG_RUNTIME_DIR" in os.environ or not Path(runtime_folder).is_dir()
        else {"XDG_RUNTIME_DIR": runtime_folder}
    )
    return Command(("systemctl", "--user", "--no-pager", *words), env)


def list_install_commands(name: str, *, is_system: bool = True) -> tuple[Command, ...]:
    """Return the commands that enable and start a unit; do not wait for a service, which may first build."""
    unit, wait_flags = f"{name}.service", ("--no-block",) if is_system else ()
    return (
        build_systemctl_command("daemon-reload", is_system=is_system),
        build_systemctl_command("enable", "--quiet", unit, is_system=is_system),
        build_systemctl_command("restart", *wait_flags, unit, is_system=is_system),
    )


def get_unit_path(name: str, *, is_system: bool = False) -> Path:
    config_home = os.environ.get("XDG_CONFIG_HOME", "")
    user_folder = Path(config_home) if config_home.startswith("/") else user.find_home() / ".config"
    return (_UNIT_FOLDER if is_system else user_folder / "systemd" / "user") / f"{name}.service"


def start_unit(unit: Unit) -> None:
    """Start the unit, and end a running one of its name."""
    argv = unit.command.argv
    program = argv[0] if argv[0].startswith("/") else process.find_program(argv[0])
    if program is None:
        raise Problem(f"{argv[0]} not found", cause="it is not on PATH", fix=f"command -v {argv[0]}")
    full_unit = unit.replace(command=unit.command.replace(argv=(program, *argv[1:])))
    storage.write_text(
        get_unit_path(unit.name), format_unit(full_unit), secret=True
    )  # a URL may have a login
    # systemd starts a unit that failed often only after a while.
    process.run(build_systemctl_command("reset-failed", f"{unit.name}.service"), limit_s=_COMMAND_LIMIT_S)
    *prepared, restart = list_install_commands(unit.name, is_system=False)
    for command in prepared:
        _run_checked(command)
    try:
        _run_checked(restart)
    except Problem:
        # systemd sometimes reports that a program which ended immediately was not started.
        current = read_state(unit.name)
        if current is None or current.exit_status in _NOT_EXECUTED_STATUSES:
            raise


def stop_unit(name: str) -> None:
    if storage.exists(get_unit_path(name)):
        _remove_unit(name)
        process.run(build_systemctl_command("reset-failed", f"{name}.service"), limit_s=_COMMAND_LIMIT_S)


def _remove_unit(name: str, *, is_system: bool = False) -> None:
    _run_checked(
        build_systemctl_command("disable", "--quiet", "--now", f"{name}.service", is_system=is_system)
    )
    storage.remove_file(get_unit_path(name, is_system=is_system))
    _run_checked(build_systemctl_command("daemon-reload", is_system=is_system))


def read_state(name: str, *, is_system: bool = False) -> SystemdState | None:
    show_command = build_systemctl_command(
        "show", f"{name}.service", f"--property={','.join(_STATE_PROPERTIES)}", is_system=is_system
    )
    return parse_state("\n".join(process.run(show_command, limit_s=_COMMAND_LIMIT_S).lines))


def parse_state(answer: str) -> SystemdState | None:
    """Parse the output of `systemctl show`; None for a unit without a file."""
    values = dict(line.partition("=")[::2] for line in answer.splitlines())
    if values.get("LoadState") != "loaded":
        return None
    numbers = {name: int(value) if value.isdecimal() else 0 for name, value in values.items()}
    return SystemdState(
        active_state=values.get("ActiveState", "inactive"),
        sub_state=values.get("SubState", "dead"),
        result=values.get("Result", "success"),
        restart_count=numbers.get("NRestarts", 0),
        pid=numbers.get("MainPID") or None,
        exit_status=numbers.get("ExecMainStatus", 0),
    )


def is_lingering() -> bool:
    show_command = Command(("loginctl", "show-user", user.read_user_name(), "--property=Linger"))
    # loginctl does not find a user who neither lingers nor is logged in.
    return "Linger=yes" in process.run(show_command, limit_s=_COMMAND_LIMIT_S).lines


class Service(Value):
    """A system service of `medley service install`."""

    role: ServiceRole
    arguments: tuple[str, ...]
    user: str
    medley_command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        served = f"{unit_file.SERVER_UNIT_PREFIX}{_read_number('--port', self.arguments, API_PORT)}"
        return served if self.role == "serve" else f"medley-{self.role}"

    @property
    def text(self) -> str:
        verb: tuple[str, ...] = (f"ray-{self.role}", "--stay")
        if self.role == "serve":
            verb = ("serve",)
            boot = BootOptions(
                self.user, after=(_NETWORK_TARGET, "medley-head.service", "medley-worker.service")
            )
        else:
            boot = BootOptions(self.user, before=(*self.medley_command, "ray-stop"))
        command = Command((*self.medley_command, *verb, *self.arguments), self.env)
        title = f"medley {' '.join((verb[0], *self.arguments))}"
        limit_s = _STOP_LIMIT_S + (
            _read_number("--drain", self.arguments, _DEFAULT_DRAIN_S) if self.role == "serve" else 0
        )
        return format_unit(
            Unit(self.name, title, command, restart_rule.SERVICE_RULE, stop_limit_s=limit_s), boot
        )


def select_service_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the installing user's variables for a service, because systemd sets few."""
    return self_command.select_variables(environ, _CARRIED_PREFIXES)


def _read_number(switch: str, words: tuple[str, ...], default: int) -> int:
    value = find_switch_value(switch, words) or ""
    return int(value) if value.isdecimal() else default


def find_switch_value(switch: str, words: tuple[str, ...]) -> str | None:
    """Return the value of a switch of `serve`; words after -- are the engine's."""
    own_words = words[: words.index("--")] if "--" in words else words
    for position, word in enumerate(own_words):
        name, equals, value = word.partition("=")
        if name == switch:
            return value if equals else next(iter(own_words[position + 1 :]), "")
    return None


def require_role(role: str, words: tuple[str, ...]) -> ServiceRole:
    known_role = next((role_name for role_name in SERVICE_ROLES if role_name == role), None)
    if known_role is None:
        raise Problem(
            f"{role!r} is not a role",
            cause=f"the roles are {', '.join(SERVICE_ROLES)}",
            fix="medley service install --help",
        )
    if known_role != "head" and (not words or words[0].startswith("-")):
        argument = "HEAD" if known_role == "worker" else "MODEL"
        raise Problem(
            f"a {'server' if known_role == 'serve' else known_role} needs its {argument}",
            cause="the command does not name one",
            fix=f"medley service install {known_role} {argument}",
        )
    return known_role


def install_service(service: Service) -> None:
    """Start the service, now and at boot, and replace one of its name."""
    if not is_booted():
        raise Problem(
            "the service cannot be installed",
            cause="this host does not run systemd",
            fix="start it at boot in another way; its command: medley service install --dry-run",
        )
    storage.write_text(get_unit_path(service.name, is_system=True), service.text)
    for command in list_install_commands(service.name):
        _run_checked(command)


def remove_service(role: str) -> list[str]:
    names = list_service_names(role)
    for name in names:
        _remove_unit(name, is_system=True)
    return names


def list_service_names(role: str | None = None, folder: Path = _UNIT_FOLDER) -> list[str]:
    patterns = {
        role_name: f"{unit_file.SERVER_UNIT_PREFIX}*" if role_name == "serve" else f"medley-{role_name}"
        for role_name in SERVICE_ROLES
    }
    files = (
        (role_name, file.stem)
        for role_name in SERVICE_ROLES
        for file in storage.list_folder(folder, f"{patterns[role_name]}.service")
    )
    return sorted(name for role_name, name in files if role in {None, role_name, name})


def _run_checked(command: Command) -> None:
    is_user = "--user" in command.argv
    finished = process.run(command, limit_s=None if is_user else _SERVICE_LIMIT_S)
    if finished.status:
        log_command = "journalctl --user" if is_user else "journalctl"
        raise Problem(
            f"systemd refused: {command}",
            cause="\n".join(finished.lines[-4:]) or f"it exited with {finished.status}",
            fix=f"{log_command} --no-pager --lines=30",
        )
