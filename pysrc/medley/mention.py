"""A mention is one place where another host is named: in ssh's files, or among this host's neighbours."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address

from medley.problem import Problem

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_TARGET = re.compile(
    r"(ssh://)?((?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?(?P<host>[^@:]+)(:(?P<port>[0-9]{1,5}))?"
)
SSH_PORT = 22
_NEAR = (".local", ".lan", ".home", ".home.arpa", ".internal", ".localdomain")


@dataclass(frozen=True)
class Mention:
    """`name` is what a user would type; `also` are further names and addresses of the same host."""

    name: str
    by: str
    """What named it, for people."""
    where: str
    """A file and its line, or an interface."""
    also: tuple[str, ...] = ()
    port: int = SSH_PORT
    """Where `name` alone does not lead to sshd; an alias of ssh's own carries its port itself."""
    likely: bool = False
    """Whether it is taken where the user does not say."""

    @property
    def target(self) -> str:
        return self.name if self.port == SSH_PORT else f"ssh://{self.name}:{self.port}"


def is_plain(name: str) -> bool:
    """A name that means itself to a shell, to ssh and in a table."""
    return _PLAIN.fullmatch(name) is not None


def is_address(word: str) -> bool:
    try:
        IPv4Address(word)
    except ValueError:
        return False
    return True


def is_near(word: str) -> bool:
    """Whether such a host is likely to stand on the same desk: no public name or address."""
    if is_address(word):
        return IPv4Address(word).is_private
    return "." not in word or word.endswith(_NEAR)


def parts(target: str) -> tuple[str | None, str, str | None]:
    """The user, the host and the port that ssh is told."""
    found = _TARGET.fullmatch(target)
    return (found["user"], found["host"], found["port"]) if found else (None, target, None)


def refusal(mention: Mention) -> Problem:
    """Of a name that is not plain."""
    return Problem(
        f"{mention.where}: {mention.name[:60]!r} is no name for a host of a cluster",
        cause="medley takes letters, digits, dots, hyphens and _, at most 63 of them",
        fix=f"mend it in {mention.where}, or name the hosts yourself: medley init HOST HOST",
    )


def typed(word: str) -> Mention:
    """A host that the user names: HOST, USER@HOST or ssh://USER@HOST:PORT, as ssh takes it."""
    found = _TARGET.fullmatch(word)
    if not found or not is_plain(found["host"]) or (found["port"] and not word.startswith("ssh://")):
        raise Problem(
            f"{word[:60]!r} is no host",
            cause="a host is HOST, USER@HOST or ssh://USER@HOST:PORT, in letters, digits, dots, hyphens, _",
            fix="medley init spark-1 nvidia@192.168.100.11",
        )
    return _Typed(found["host"], "you", "what was typed", told=word)


@dataclass(frozen=True)
class _Typed(Mention):
    told: str = ""

    @property
    def target(self) -> str:
        return self.told
