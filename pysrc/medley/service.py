"""A service is what this host does from its start on, whoever is logged in: a unit of the system's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from medley import machine, own, serving, store, systemd
from medley.command import Command
from medley.problem import Problem
from medley.systemd import systemctl
from medley.unit import Restart, Unit
from medley.unit_text import Boot, text

Role = Literal["head", "worker", "serve"]
ROLES: tuple[Role, ...] = get_args(Role)
FOLDER = Path("/etc/systemd/system")
NETWORK = "network-online.target"
_LIMIT_S = 300
_STOP_LIMIT_S = 60
_PORT = 8000
# PATH tells which Python is an environment's, so with another one a second would be built.
_CARRIED = (
    *("MEDLEY_", "HF_", "LC_", "LANG", "PATH", "SSL_CERT_FILE", "NIX_SSL_CERT_FILE"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
)
# Whatever it lacks at the host's start (a head, a link, the hub) may come later, so it is never given up.
_AGAIN = Restart(first_s=5, longest_s=60)


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
        return f"{serving.UNIT}{_port(self.words)}" if self.role == "serve" else f"medley-{self.role}"

    @property
    def verb(self) -> str:
        return "serve" if self.role == "serve" else f"ray-{self.role}"

    @property
    def text(self) -> str:
        stays = () if self.role == "serve" else ("--stay",)
        command = Command((*self.medley, self.verb, *stays, *self.words), self.env)
        title = f"medley {' '.join((self.verb, *self.words))}"
        return text(Unit(self.name, title, command, _AGAIN, stop_limit_s=_STOP_LIMIT_S), self._boot)

    @property
    def _boot(self) -> Boot:
        if self.role == "serve":
            others = (f"medley-{role}.service" for role in ROLES if role != "serve")
            return Boot(self.user, after=(NETWORK, *others))
        return Boot(self.user, before=(*self.medley, "ray-stop"))

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.service"


def carried(environ: Mapping[str, str]) -> dict[str, str]:
    """What it is to have of the environment of who installs it: systemd's own has next to nothing."""
    return {
        name: own.path(value) if name == "PATH" else value
        for name, value in environ.items()
        if name.startswith(_CARRIED)
    }


def _port(words: tuple[str, ...]) -> int:
    """As `serve` takes it: what comes after -- is the engine's."""
    own = words[: words.index("--")] if "--" in words else words
    for at, word in enumerate(own):
        name, equals, value = word.partition("=")
        value = value if equals else next(iter(own[at + 1 :]), "")
        if name == "--port" and value.isdecimal():
            return int(value)
    return _PORT


def require_whole(role: str, words: tuple[str, ...]) -> Role:
    """The role, once what it cannot do without is there."""
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


def install(service: Service) -> None:
    """Start it, now and with the host; one of its name is put in its place."""
    _require_systemd()
    store.write(service.file, service.text)
    for command in installed(service.name):
        _done(command)


def installed(name: str) -> tuple[Command, ...]:
    """Not until it is up: an environment may have to be built first."""
    unit = f"{name}.service"
    return (
        systemctl("daemon-reload", system=True),
        systemctl("enable", "--quiet", unit, system=True),
        systemctl("restart", "--no-block", unit, system=True),
    )


def remove(role: str) -> list[str]:
    """End those of the role, and forget them; returns their names."""
    found = names(role)
    for name in found:
        _done(systemctl("disable", "--quiet", "--now", f"{name}.service", system=True))
        (FOLDER / f"{name}.service").unlink(missing_ok=True)
    if found:
        _done(systemctl("daemon-reload", system=True))
    return found


def names(role: str | None = None, folder: Path = FOLDER) -> list[str]:
    """Of all that are installed here, or of one role, or the one of this name."""
    return sorted(name for each in ROLES for name in _of(each, folder) if role in {None, each, name})


def _of(role: Role, folder: Path) -> Iterator[str]:
    pattern = f"{serving.UNIT}*.service" if role == "serve" else f"medley-{role}.service"
    return (file.stem for file in folder.glob(pattern))


def _require_systemd() -> None:
    if not systemd.booted():
        raise Problem(
            "no service can be installed",
            cause="this host does not run systemd",
            fix="start it in another way at boot, as medley service install --dry-run shows it",
        )


def _done(command: Command) -> None:
    ended = machine.run(command, limit_s=_LIMIT_S)
    if ended.status:
        raise Problem(
            f"systemd refused: {command}",
            cause="\n".join(ended.lines[-4:]) or f"it ended with {ended.status}",
            fix="see what it says: journalctl --no-pager --lines=30",
        )
