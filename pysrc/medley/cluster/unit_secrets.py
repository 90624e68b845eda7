"""Refuse to put a secret into a unit, whose variables and command others can read.

A user's own unit has mode 600, and its manager shows it to that user only. Every user can read a unit of the
system, so there the value counts as well as the name: a login in a URL, a webhook, a key of a known service.
"""

import re
from collections.abc import Iterator

from medley.command import Command
from medley.errors import Problem
from medley.host.redact import shapes
from medley.host.redact.named_values import has_secret_value, hide_named, is_placeholder, is_secret_variable

_LOGIN_PATTERN = re.compile(
    r"(?i)(?<![\w+.-])(?:(?!ssh:)[a-z][a-z0-9+.-]*://[^/\s?#@]+|ssh://[^/\s?#@:]+:[^/\s?#@]+)@"
)
"""A URL with a login; in a URL of ssh only with a password."""
_PATH_PATTERN = re.compile(r"(?:~[^/]*|\.{1,2})?/")
_CAUSE = "every user of this host can read the units of the system"
_KEY_FILE, _EVENT_FILE = "~/.config/medley/service-key", "~/.config/medley/on-event"


def require_no_secret_name(command: Command) -> None:
    """Raise a Problem for a variable whose name says that it is secret."""
    for name in command.env:
        if is_secret_variable(name):
            raise Problem(
                f"{name} would be in a file that others can read",
                cause="a unit's file holds all its variables",
                fix=f"unset {name}; for the hub's token use: hf auth login",
            )


def require_no_secret(command: Command) -> None:
    """Raise a Problem for a secret in a variable or in the command, whatever its name."""
    for name, value in command.env.items():
        _require_no_login(name, value, f"unset {name}, or: --set {name}=")
        if _is_exposed(name, value):
            raise Problem(
                f"{name} would be in a file that others can read",
                cause=f"it holds a secret, and {_CAUSE}",
                fix=f"unset {name}, or leave --set {name}=… out; a command with a webhook goes into a file:\n"
                f"(umask 077; cat > {_EVENT_FILE})\n"
                f"medley service install serve MODEL -- --on-event {_EVENT_FILE}",
            )
    for flag, value in _list_values(command.argv):
        _require_no_login("the command", value, "type ")
        if _is_exposed(flag, value):
            title = f"the value of {flag}" if flag else "a word of the command"
            raise Problem(
                f"{title} would be in a file that others can read",
                cause=f"it is a secret, and {_CAUSE}",
                fix=f"leave {flag or 'it'} out; a key of the API goes into a file:\n"
                f"(umask 077; cat > {_KEY_FILE})\n"
                f"medley service install serve MODEL -- --api-key {_KEY_FILE}",
            )


def _require_no_login(place: str, text: str, fix: str) -> None:
    """Raise a Problem for a URL with a login, which `systemctl show` prints for every user."""
    if _LOGIN_PATTERN.search(text):
        raise Problem(
            f"a login in a URL of {place} would be in a file that others can read",
            cause=_CAUSE,
            fix=f"{fix}URL  # without USER:PASSWORD@; uv and git read a login from ~/.netrc",
        )


def has_secret(name: str, value: str) -> bool:
    """Return whether a variable is secret by its name or by its value, such as a URL with a login."""
    is_named = is_secret_variable(name) and not is_placeholder(value)
    return is_named or _is_exposed(name, value) or _LOGIN_PATTERN.search(value) is not None


def _list_values(argv: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each value of the command with its flag; a word without a flag has an empty one.

    A flag of several values, such as `--api-key A B`, is the flag of each.
    """
    flag = ""
    for word in argv:
        if word.startswith("-"):
            flag, _, value = word.partition("=")
            if value:
                yield flag, value
        else:
            yield flag, word


def _is_exposed(name: str, value: str) -> bool:
    """Return whether a value is a secret; the path of its file is none, and that of a webhook is one."""
    if _PATH_PATTERN.match(value):
        return shapes.has_secret_path(value)
    if has_secret_value(name, value):
        return True
    return not is_placeholder(value) and (
        hide_named(value, has_requests=False) != value or shapes.has_secret(f"{name} {value}")
    )
