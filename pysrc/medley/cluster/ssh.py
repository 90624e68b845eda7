"""Build ssh command lines, and explain why ssh failed."""

import re
import shlex
from collections.abc import Sequence

from medley.command import Command
from medley.errors import Problem

CONNECT_LIMIT_S = 8
_SSH_OPTIONS = {
    "BatchMode": "yes",  # a question would hang
    "ConnectTimeout": str(CONNECT_LIMIT_S),
    "StrictHostKeyChecking": "yes",  # whatever the user's configuration, because it carries the token
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ControlMaster": "no",  # a new master would outlive medley; a running one is used
    "EscapeChar": "none",
    "LogLevel": "ERROR",
}
# Folders where medley may be that only a login shell has on PATH.
_USER_FOLDERS = ("$HOME/.local/bin", "$HOME/.nix-profile/bin", "/etc/profiles/per-user/$USER/bin")
_SYSTEM_FOLDERS = ("/run/current-system/sw/bin", "/nix/var/nix/profiles/default/bin", "/usr/local/bin")
MISSING_MESSAGE = "no medley here"


class HostKeyUnknown(Problem):
    """ssh does not know the host key yet."""


class KeyRefused(Problem):
    """The host refuses the user's key, or there is none."""


class NameUnresolved(Problem):
    """The name of the host does not resolve here, for example because of a typo."""


_UNRESOLVED_PATTERN = r"Could not resolve hostname"
_UNKNOWN_KEY_PATTERN = r"Host key verification failed|No \S+ host key is known"
_REFUSED_KEY_PATTERN = r"Permission denied"
_PROBLEM_TYPES = {
    _UNKNOWN_KEY_PATTERN: HostKeyUnknown,
    _REFUSED_KEY_PATTERN: KeyRefused,
    _UNRESOLVED_PATTERN: NameUnresolved,
}
_FAILURE_EXPLANATIONS: tuple[tuple[str, str, str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key differs from the known one: another machine has its address, or it was reinstalled",
        "if it was reinstalled: ssh-keygen -R {host}; ssh {target} true  # and compare the fingerprint",
    ),
    (
        _UNKNOWN_KEY_PATTERN,
        "ssh does not know its host key yet",
        "log in once and compare the fingerprint: ssh {target} true",
    ),
    (
        _REFUSED_KEY_PATTERN,
        "it does not accept a login without a password",
        "give it your key: ssh-copy-id {login}",
    ),
    (
        _UNRESOLVED_PATTERN,
        "the name cannot be resolved",
        'fix its name, or set ssh = "USER@ADDRESS" in cluster.toml',
    ),
    (r"Connection refused", "no ssh server listens there", "on it: sudo systemctl enable --now ssh"),
    (
        r"timed out|No route to host|Network is unreachable|Connection reset|Connection closed",
        "it does not answer",
        "check that it is on and connected: ping {host}; or go on without it: --without {name}",
    ),
    (
        MISSING_MESSAGE,
        "ssh does not find medley on it",
        'install it there, or set medley = "/path/to/medley" at [hosts.{name}] in cluster.toml',
    ),
)  # fmt: skip


def build_ssh_command(target: str, programs: Sequence[Sequence[str]], words: Sequence[str]) -> Command:
    """Return the command that runs the first existing one of `programs` with these words at `target`.

    ssh joins its arguments with spaces and passes them to a shell, so it gets one quoted word.
    """
    options = [word for name, value in _SSH_OPTIONS.items() for word in ("-o", f"{name}={value}")]
    return Command(("ssh", "-T", *options, "--", target, build_script(programs, words)))


def build_script(programs: Sequence[Sequence[str]], words: Sequence[str]) -> str:
    """Return one line that any login shell, fish and csh too, passes on to sh."""
    attempts = (
        f"command -v {shlex.quote(program[0])} >/dev/null 2>&1 && exec {shlex.join((*program, *words))}"
        for program in programs
    )
    folders = ":".join((*_USER_FOLDERS, *_SYSTEM_FOLDERS))
    message = shlex.quote(f"{MISSING_MESSAGE}: {' or '.join(shlex.join(program) for program in programs)}")
    text = f'PATH="$PATH:{folders}"; {"; ".join(attempts)}; printf "%s\\n" {message} >&2; exit 127'
    return f"exec sh -c {shlex.quote(text)}"


def connection_problem(name: str, target: str, output: Sequence[str], status: int | None) -> Problem:
    """Return why the host `name` could not be reached, from ssh's output; `status` None: it hangs."""
    text = "\n".join(output)
    login, _, port = target.removeprefix("ssh://").partition(":")
    host = login.rpartition("@")[2]
    for pattern, cause, fix in _FAILURE_EXPLANATIONS:
        if re.search(pattern, text):
            last_line = output[-1].strip() if output else ""
            login_words = shlex.join(
                (*(("-p", port) if port else ()), login)
            )  # ssh-copy-id does not take ssh://
            fix_text = fix.format(
                host=shlex.quote(host), target=shlex.quote(target), name=name, login=login_words
            )
            problem_type = _PROBLEM_TYPES.get(pattern, Problem)
            return problem_type(f"{name} cannot be reached", cause=f"{cause} ({last_line})", fix=fix_text)
    if status is None:
        return Problem(
            f"{name} does not answer",
            cause=f"ssh {target} timed out without output",
            fix=f"try it by hand: ssh {shlex.quote(target)} true; or go on without it: --without {name}",
        )
    return Problem(
        f"{name} cannot be reached",
        cause=text[-400:] or f"ssh exited with {status} without output",
        fix=f"try it by hand: ssh {shlex.quote(target)} true",
    )
